#include "simulator_package.h"

#include <stdlib.h>

#include <cstring>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <stdexcept>

namespace kvb_test {
namespace {

using protozero::pbf_writer;
using Shape = std::vector<std::int64_t>;

constexpr int kFloat16 = 10;  // MIL data types
constexpr int kString = 2;
constexpr const char* kOpset = "CoreML8";

template <class Fill>
void nested(pbf_writer& parent, protozero::pbf_tag_type tag, Fill fill) {
  pbf_writer child{parent, tag};
  fill(child);
}

void tensor_type(pbf_writer& type, int dtype, const Shape& shape) {
  nested(type, 1, [&](pbf_writer& tensor) {
    tensor.add_int32(1, dtype);
    tensor.add_int64(2, static_cast<std::int64_t>(shape.size()));
    for (const std::int64_t extent : shape) {
      nested(tensor, 3, [&](pbf_writer& dimension) {
        nested(dimension, 1, [&](pbf_writer& constant) { constant.add_uint64(1, static_cast<std::uint64_t>(extent)); });
      });
    }
  });
}

void named_type(pbf_writer& parent, protozero::pbf_tag_type tag, const std::string& name, const Shape& shape,
                bool state = false) {
  nested(parent, tag, [&](pbf_writer& value) {
    value.add_string(1, name);
    nested(value, 2, [&](pbf_writer& type) {
      if (state) {
        nested(type, 5, [&](pbf_writer& wrapper) {
          nested(wrapper, 1, [&](pbf_writer& inner) { tensor_type(inner, kFloat16, shape); });
        });
      } else {
        tensor_type(type, kFloat16, shape);
      }
    });
  });
}

void name_attribute(pbf_writer& operation, const std::string& name) {
  nested(operation, 5, [&](pbf_writer& entry) {
    entry.add_string(1, "name");
    nested(entry, 2, [&](pbf_writer& value) {
      nested(value, 2, [&](pbf_writer& type) { tensor_type(type, kString, {}); });
      nested(value, 3, [&](pbf_writer& immediate) {
        nested(immediate, 1, [&](pbf_writer& tensor) {
          nested(tensor, 4, [&](pbf_writer& strings) { strings.add_string(1, name); });
        });
      });
    });
  });
}

struct Binding {
  std::string argument, name;
};

void operation(pbf_writer& block, const std::string& type, const std::vector<Binding>& inputs,
               const std::string& output, const Shape& shape) {
  nested(block, 3, [&](pbf_writer& op) {
    op.add_string(1, type);
    for (const Binding& input : inputs) {
      nested(op, 2, [&](pbf_writer& entry) {
        entry.add_string(1, input.argument);
        nested(entry, 2, [&](pbf_writer& argument) {
          nested(argument, 1, [&](pbf_writer& binding) { binding.add_string(1, input.name); });
        });
      });
    }
    if (!output.empty()) {
      named_type(op, 3, output, shape);
    }
    name_attribute(op, output.empty() ? type : output);
  });
}

void constant(pbf_writer& block, const std::string& name, _Float16 number) {
  nested(block, 3, [&](pbf_writer& op) {
    op.add_string(1, "const");
    named_type(op, 3, name, {});
    name_attribute(op, name);
    nested(op, 5, [&](pbf_writer& entry) {
      entry.add_string(1, "val");
      nested(entry, 2, [&](pbf_writer& value) {
        nested(value, 2, [&](pbf_writer& type) { tensor_type(type, kFloat16, {}); });
        nested(value, 3, [&](pbf_writer& immediate) {
          nested(immediate, 1, [&](pbf_writer& tensor) {
            nested(tensor, 7, [&](pbf_writer& bytes) {
              bytes.add_bytes(1, reinterpret_cast<const char*>(&number), sizeof number);
            });
          });
        });
      });
    });
  });
}

void array_feature(pbf_writer& parent, protozero::pbf_tag_type tag, const std::string& name, const Shape& shape,
                   int dtype, const std::vector<Shape>& enumerated, bool state = false) {
  nested(parent, tag, [&](pbf_writer& feature) {
    feature.add_string(1, name);
    nested(feature, 3, [&](pbf_writer& type) {
      const auto array = [&](pbf_writer& body) {
        body.add_packed_int64(1, shape.begin(), shape.end());
        body.add_int32(2, dtype);
        if (!enumerated.empty()) {
          nested(body, 21, [&](pbf_writer& shapes) {
            for (const Shape& one : enumerated) {
              nested(shapes, 1, [&](pbf_writer& entry) { entry.add_packed_int64(1, one.begin(), one.end()); });
            }
          });
        }
      };
      if (state) {
        nested(type, 8, [&](pbf_writer& wrapper) { nested(wrapper, 1, array); });
      } else {
        nested(type, 5, array);
      }
    });
  });
}

void write_features(pbf_writer& description, const PackageOptions& options, bool per_function) {
  const Shape output_shape = options.enumerated.empty() ? options.shape : Shape{};
  array_feature(description, per_function ? 2 : 1, "x", options.shape, 65552, options.enumerated);
  array_feature(description, per_function ? 3 : 10, "y", output_shape, options.output_type, {});
  array_feature(description, per_function ? 3 : 10, "z", output_shape, options.output_type, {});
  if (options.with_state) {
    array_feature(description, per_function ? 6 : 13, "s", options.shape, 65552, {}, true);
  }
}

void write_function(pbf_writer& function, const PackageOptions& options) {
  named_type(function, 1, "x", options.shape);
  if (options.with_state) {
    named_type(function, 1, "s", options.shape, true);
  }
  function.add_string(2, kOpset);
  nested(function, 3, [&](pbf_writer& entry) {
    entry.add_string(1, kOpset);
    nested(entry, 2, [&](pbf_writer& block) {
      block.add_string(2, "y");
      block.add_string(2, "z");
      constant(block, "two", static_cast<_Float16>(2));
      constant(block, "one", static_cast<_Float16>(1));
      if (options.with_state) {
        operation(block, "read_state", {{"input", "s"}}, "before", options.shape);
        operation(block, "add", {{"x", "before"}, {"y", "x"}}, "after", options.shape);
        operation(block, "write_state", {{"input", "s"}, {"data", "after"}}, "", options.shape);
        operation(block, "read_state", {{"input", "s"}}, "y", options.shape);
      } else {
        operation(block, "add", {{"x", "x"}, {"y", "one"}}, "y", options.shape);
      }
      operation(block, "mul", {{"x", "x"}, {"y", "two"}}, "z", options.shape);
    });
  });
}

std::string write_model(const PackageOptions& options) {
  const bool several = options.functions.size() > 1;
  std::string bytes;
  pbf_writer model{bytes};
  model.add_int32(1, 9);
  nested(model, 2, [&](pbf_writer& description) {
    if (!several) {
      write_features(description, options, false);
      return;
    }
    for (const std::string& name : options.functions) {
      nested(description, 20, [&](pbf_writer& function) {
        function.add_string(1, name);
        write_features(function, options, true);
      });
    }
    description.add_string(21, options.functions.front());
  });
  nested(model, 502, [&](pbf_writer& program) {
    program.add_int64(1, 1);
    for (const std::string& name : options.functions) {
      nested(program, 2, [&](pbf_writer& entry) {
        entry.add_string(1, name);
        nested(entry, 2, [&](pbf_writer& function) { write_function(function, options); });
      });
    }
  });
  return bytes;
}

constexpr const char* kManifest = R"({
  "fileFormatVersion": "1.0.0",
  "itemInfoEntries": {
    "4B0D5F5C-0000-4000-8000-000000000001": {
      "author": "com.apple.CoreML", "description": "CoreML Model Specification",
      "name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"
    }
  },
  "rootModelIdentifier": "4B0D5F5C-0000-4000-8000-000000000001"
})";

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kvb-simulator-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("cannot create a temporary folder");
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path write_package(const std::filesystem::path& folder, const PackageOptions& options) {
  const std::filesystem::path package = folder / "tiny.mlpackage";
  std::filesystem::create_directories(package / "Data/com.apple.CoreML");
  std::ofstream(package / "Manifest.json") << kManifest;
  std::ofstream(package / "Data/com.apple.CoreML/model.mlmodel", std::ios::binary) << write_model(options);
  return package;
}

}  // namespace kvb_test
