// Writes small packages byte by byte for the reader's tests: manifest, protobuf and weight.bin, each breakable.
// Threads: one.
// Ownership: TemporaryPackage owns its folder and removes it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace mil_test {

inline std::string message(const auto& fill) {
  std::string bytes;
  protozero::pbf_writer writer(bytes);
  fill(writer);
  return bytes;
}

// ValueType of a tensor; a negative dimension is unknown.
inline std::string tensor_type(std::uint64_t dtype, const std::vector<std::int64_t>& dims) {
  const std::string tensor = message([&](auto& w) {
    w.add_uint64(1, dtype);
    w.add_uint64(2, dims.size());
    for (const std::int64_t d : dims) {
      w.add_message(3, message([&](auto& dimension) {
                      if (d < 0) {
                        dimension.add_message(2, std::string());
                      } else {
                        dimension.add_message(
                            1, message([&](auto& size) { size.add_uint64(1, static_cast<std::uint64_t>(d)); }));
                      }
                    }));
    }
  });
  return message([&](auto& w) { w.add_message(1, tensor); });
}

inline std::string named_type(const std::string& name, const std::string& type) {
  return message([&](auto& w) {
    w.add_string(1, name);
    w.add_message(2, type);
  });
}

inline std::string entry(const std::string& key, const std::string& value) {
  return message([&](auto& w) {
    w.add_string(1, key);
    w.add_message(2, value);
  });
}

inline std::string blob_value(const std::string& type, const std::string& file, std::uint64_t offset) {
  return message([&](auto& w) {
    w.add_message(2, type);
    w.add_message(5, message([&](auto& blob) {
                    blob.add_string(1, file);
                    blob.add_uint64(2, offset);
                  }));
  });
}

inline std::string float_value(const std::string& type, const std::vector<float>& values) {
  const std::string floats = message([&](auto& w) { w.add_packed_float(1, values.begin(), values.end()); });
  const std::string tensor = message([&](auto& w) { w.add_message(1, floats); });
  const std::string immediate = message([&](auto& w) { w.add_message(1, tensor); });
  return message([&](auto& w) {
    w.add_message(2, type);
    w.add_message(3, immediate);
  });
}

struct Argument {
  std::string name;
  std::vector<std::string> bound;
};

inline std::string operation(const std::string& type, const std::vector<Argument>& inputs, const std::string& output,
                             const std::string& output_type, const std::string& val = {}) {
  return message([&](auto& w) {
    w.add_string(1, type);
    for (const Argument& input : inputs) {
      w.add_message(2, entry(input.name, message([&](auto& argument) {
                               for (const std::string& name : input.bound) {
                                 argument.add_message(1, message([&](auto& binding) { binding.add_string(1, name); }));
                               }
                             })));
    }
    w.add_message(3, named_type(output, output_type));
    if (!val.empty()) w.add_message(5, entry("val", val));
  });
}

// Optional when it has a default, with which a missing input is filled.
inline std::string feature(const std::string& name, std::uint64_t dtype, const std::vector<std::int64_t>& dims,
                           const float* fallback = nullptr) {
  const std::string array = message([&](auto& w) {
    w.add_packed_int64(1, dims.begin(), dims.end());
    w.add_uint64(2, dtype);
    if (fallback) w.add_float(51, *fallback);
  });
  const std::string type = message([&](auto& w) {
    w.add_message(5, array);
    if (fallback) w.add_bool(1000, true);
  });
  return message([&](auto& w) {
    w.add_string(1, name);
    w.add_message(3, type);
  });
}

constexpr std::uint64_t kHalf = 10, kFloat = 11, kArrayFloat = 65568;

// input x [2, 4] -> linear with a weight [3, 4] from the blob at `offset` -> y [2, 3]; everything may be replaced.
struct Parts {
  std::string weight_file = "@model_path/weights/weight.bin";
  std::uint64_t weight_offset = 64;
  std::vector<std::int64_t> weight_dims = {3, 4};
  std::string op_type = "linear";
  std::string op_input = "x";
  std::string block_output = "y";
  std::vector<std::int64_t> input_dims = {2, 4};
  std::vector<std::string> extra_operations;
  std::uint64_t output_type = kFloat;
  const float* input_default = nullptr;
  std::string opset = "CoreML7", block_key = "CoreML7";

  std::string model() const {
    const std::string weight_type = tensor_type(kHalf, weight_dims), y_type = tensor_type(output_type, {2, 3});
    const std::string block = message([&](auto& w) {
      w.add_string(2, block_output);
      w.add_message(3, operation("const", {}, "w", weight_type, blob_value(weight_type, weight_file, weight_offset)));
      w.add_message(3, operation(op_type, {{"x", {op_input}}, {"weight", {"w"}}}, "y", y_type));
      for (const std::string& extra : extra_operations) w.add_message(3, extra);
    });
    const std::string function = message([&](auto& w) {
      w.add_message(1, named_type("x", tensor_type(kFloat, input_dims)));
      w.add_string(2, opset);
      w.add_message(3, entry(block_key, block));
    });
    const std::string program = message([&](auto& w) {
      w.add_uint64(1, 1);
      w.add_message(2, entry("main", function));
    });
    const std::string description = message([&](auto& w) {
      w.add_message(1, feature("x", kArrayFloat, {2, 4}, input_default));
      w.add_message(10, feature("y", kArrayFloat, {2, 3}));
    });
    return message([&](auto& w) {
      w.add_uint64(1, 8);
      w.add_message(2, description);
      w.add_message(502, program);
    });
  }
};

// Header and one fp16 record of 12 elements at offset 64.
inline std::string weight_bin(std::uint32_t magic = 0xDEADBEEF, std::uint32_t dtype = 1, std::uint64_t bytes = 24,
                              std::uint64_t data_offset = 128) {
  std::string file(128, '\0');
  const std::uint32_t header[2] = {1, 2};
  std::memcpy(file.data(), header, 8);
  std::memcpy(file.data() + 64, &magic, 4);
  std::memcpy(file.data() + 68, &dtype, 4);
  std::memcpy(file.data() + 72, &bytes, 8);
  std::memcpy(file.data() + 80, &data_offset, 8);
  for (int i = 0; i < 12; ++i) {
    const auto half = static_cast<_Float16>(i - 5);
    file.append(reinterpret_cast<const char*>(&half), 2);
  }
  return file;
}

class TemporaryPackage {
 public:
  TemporaryPackage() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mil_test_XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed");
    folder_ = pattern;
    std::filesystem::create_directories(data() / "weights");
    write("Manifest.json", R"({"fileFormatVersion": "1.0.0", "rootModelIdentifier": "A", "itemInfoEntries":
      {"A": {"path": "com.apple.CoreML/model.mlmodel", "author": "t", "name": "n", "description": "d"}}})");
    write("Data/com.apple.CoreML/model.mlmodel", Parts{}.model());
    write("Data/com.apple.CoreML/weights/weight.bin", weight_bin());
  }
  TemporaryPackage(const TemporaryPackage&) = delete;
  TemporaryPackage& operator=(const TemporaryPackage&) = delete;
  ~TemporaryPackage() { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(folder_ / name);
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void model(const Parts& parts) const { write("Data/com.apple.CoreML/model.mlmodel", parts.model()); }
  void weights(const std::string& bytes) const { write("Data/com.apple.CoreML/weights/weight.bin", bytes); }
  std::filesystem::path data() const { return folder_ / "Data" / "com.apple.CoreML"; }
  std::string path() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace mil_test
