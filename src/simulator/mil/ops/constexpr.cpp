// Compressed weights: palettes, affine and blockwise quantisation, sparsity; in the attribute form of iOS 16 and 17 and
// the input form of iOS 18. Each is decoded once, when the first op asks for it, and kept in its declared type.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "mil/kernels/kernels.h"
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/registry.h"
#include "mil/program/constant_pool.h"

namespace coremlsim::mil {
namespace {

const Value& need(Call& c, std::string_view name) {
  const Value* value = c.literal(name);
  if (!value) c.fail("no constant '" + std::string(name) + "'");
  if (value->type.tensor.dtype == MilType::kString || value->type.tensor.dtype == MilType::kNone) {
    c.fail("'" + std::string(name) + "' has no numbers");
  }
  return *value;
}

std::int64_t count_of(const Value& value) { return element_count(value.type.tensor.dims, "a compressed weight"); }

std::vector<float> decode(const Value& value) {
  std::vector<float> out(static_cast<std::size_t>(count_of(value)));
  decode_to_float(value.type.tensor.dtype, value.raw.data(), 0, static_cast<std::int64_t>(out.size()), out.data());
  return out;
}

std::int64_t integer_at(const Value& value, std::int64_t i) {
  return decode_integer(value.type.tensor.dtype, value.raw.data(), i);
}

// Elements as the declared type stores them; `raw` is set by the constant pool.
Value encode(MilType type, Shape shape, const std::vector<float>& values) {
  Value value;
  value.type.kind = ValueKind::kTensor;
  value.type.tensor = {type, std::move(shape)};
  const auto count = static_cast<std::int64_t>(values.size());
  value.owned.assign(static_cast<std::size_t>(packed_byte_count(type, count)), 0);
  if (type == MilType::kFloat16) {
    kernels().f32_to_f16(values.data(), reinterpret_cast<std::uint16_t*>(value.owned.data()), count);
  } else if (type == MilType::kFloat32) {
    std::memcpy(value.owned.data(), values.data(), values.size() * sizeof(float));
  } else if (is_float(type)) {
    throw ModelError("a compressed weight of type " + std::string(type_name(type)));
  } else {
    const int bits = bit_width(type);
    for (std::int64_t i = 0; i < count; ++i) {
      const float v = values[static_cast<std::size_t>(i)];
      const auto element = static_cast<std::uint64_t>(std::fabs(v) < 9e18F ? static_cast<std::int64_t>(v) : 0);
      for (int b = 0; b < bits; ++b) {
        const std::int64_t at = i * bits + b;
        if ((element >> b) & 1U)
          value.owned[static_cast<std::size_t>(at / 8)] |= static_cast<std::uint8_t>(1U << (at % 8));
      }
    }
  }
  return value;
}

Shape shape_argument(Call& c) {
  const Value& value = need(c, "shape");
  Shape shape(static_cast<std::size_t>(std::min<std::int64_t>(count_of(value), kMaxRank + 1)));
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = integer_at(value, static_cast<std::int64_t>(i));
  (void)element_count(shape, "a compressed weight");
  return shape;
}

// Per dimension: the index in a block grid that covers `shape` evenly.
class BlockGrid {
 public:
  BlockGrid(Call& c, const Shape& shape, const Shape& grid) : shape_(shape), strides_(mil::dense_strides(grid)) {
    if (grid.size() != shape.size()) c.fail("grid " + describe(grid) + " does not fit " + describe(shape));
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (grid[d] == 0 || shape[d] % grid[d] != 0)
        c.fail("grid " + describe(grid) + " does not divide " + describe(shape));
      block_.push_back(std::max<std::int64_t>(shape[d] / grid[d], 1));
    }
  }
  std::int64_t at(std::int64_t element) const {
    std::int64_t index = 0;
    for (std::size_t d = shape_.size(); d-- > 0;) {
      index += element % shape_[d] / block_[d] * strides_[d];
      element /= shape_[d];
    }
    return index;
  }
  // How many elements from a multiple of it on share one block.
  std::int64_t run() const { return block_.empty() ? 1 : block_.back(); }

 private:
  Shape shape_;
  std::vector<std::int64_t> strides_, block_;
};

std::vector<float> shift_scale(Call& c, std::vector<float> data, const Shape& shape) {
  const Value& scale = need(c, "scale");
  const Value* offset = c.literal("offset");
  const BlockGrid grid(c, shape, scale.type.tensor.dims);
  if (offset && count_of(*offset) != count_of(scale)) c.fail("offset and scale differ in shape");
  const std::vector<float> scales = decode(scale);
  const std::vector<float> offsets = offset ? decode(*offset) : std::vector<float>(scales.size(), 0.0F);
  const auto total = static_cast<std::int64_t>(data.size());
  for (std::int64_t i = 0; i < total; i += grid.run()) {
    const auto block = static_cast<std::size_t>(grid.at(i));
    for (std::int64_t j = i; j < i + grid.run(); ++j) {
      data[static_cast<std::size_t>(j)] = scales[block] * (data[static_cast<std::size_t>(j)] - offsets[block]);
    }
  }
  return data;
}

void blockwise_shift_scale(Call& c) {
  const Value& data = need(c, "data");
  c.constant([&] {
    return encode(c.declared().dtype, data.type.tensor.dims, shift_scale(c, decode(data), data.type.tensor.dims));
  });
}

void affine_dequantize(Call& c) {
  const Value& data = need(c, "quantized_data");
  const Value& scale = need(c, "scale");
  const Value& zero = need(c, "zero_point");
  const Value* axis_value = c.literal("axis");
  const Shape& shape = data.type.tensor.dims;
  const auto rank = static_cast<std::int64_t>(shape.size());
  std::int64_t axis = axis_value && count_of(*axis_value) == 1 ? integer_at(*axis_value, 0) : 0;
  if (axis < 0) axis += rank;
  if (rank == 0 || axis < 0 || axis >= rank) c.fail("axis does not fit rank " + std::to_string(rank));
  const std::int64_t channels = shape[static_cast<std::size_t>(axis)];
  for (const Value* v : {&scale, &zero}) {
    if (count_of(*v) != 1 && count_of(*v) != channels)
      c.fail("scale and zero_point need 1 or " + std::to_string(channels) + " entries");
  }
  c.constant([&] {
    std::vector<float> values = decode(data);
    const std::vector<float> scales = decode(scale), zeros = decode(zero);
    const std::int64_t inner = dense_strides(shape)[static_cast<std::size_t>(axis)];
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto channel = static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner % channels);
      values[i] = scales[scales.size() == 1 ? 0 : channel] * (values[i] - zeros[zeros.size() == 1 ? 0 : channel]);
    }
    return encode(c.declared().dtype, shape, values);
  });
}

// iOS 18: `indices` of an unsigned type of as many bits as the palette needs, a palette per block of the grid, and
// optionally vectors as palette entries that are laid out along vector_axis.
struct Palette {
  Shape out_shape;
  std::int64_t entries = 0, vector_size = 1, axis = 0;
};

Palette read_palette(Call& c, const Shape& indices, const Value& lut) {
  const Shape& dims = lut.type.tensor.dims;
  if (dims.size() != indices.size() + 2)
    c.fail("lut " + describe(dims) + " needs two dimensions more than the indices");
  Palette palette{indices, dims[dims.size() - 2], dims.back(), 0};
  if (palette.vector_size < 1 || palette.entries < 1) c.fail("an empty lut");
  const auto rank = static_cast<std::int64_t>(indices.size());
  if (palette.vector_size > 1) {
    palette.axis = integer_at(need(c, "vector_axis"), 0);
    if (palette.axis < 0) palette.axis += rank;
    if (palette.axis < 0 || palette.axis >= rank) c.fail("vector_axis does not fit");
    std::int64_t& size = palette.out_shape[static_cast<std::size_t>(palette.axis)];
    if (__builtin_mul_overflow(size, palette.vector_size, &size)) c.fail("lut is too large");
  }
  (void)element_count(palette.out_shape, "a compressed weight");
  return palette;
}

template <class IndexAt>
std::vector<float> look_up(Call& c, const Shape& indices, const Value& lut, const Palette& palette, IndexAt index_at) {
  const Shape& dims = lut.type.tensor.dims;
  const BlockGrid grid(c, indices, Shape(dims.begin(), dims.end() - 2));
  const std::vector<float> table = decode(lut);
  const std::int64_t total = element_count(indices, "indices");
  std::vector<float> out(static_cast<std::size_t>(total * palette.vector_size));
  // An index (o, a, i) becomes the elements (o, a * vector_size + v, i).
  const std::int64_t inner = indices.empty() ? 1 : dense_strides(indices)[static_cast<std::size_t>(palette.axis)];
  for (std::int64_t i = 0; i < total; ++i) {
    const std::int64_t index = index_at(i);
    if (index < 0 || index >= palette.entries)
      c.fail("index " + std::to_string(index) + " beyond a lut of " + std::to_string(palette.entries));
    const std::int64_t entry = (grid.at(i) * palette.entries + index) * palette.vector_size;
    const std::int64_t outer = i / inner, within = i % inner;
    for (std::int64_t v = 0; v < palette.vector_size; ++v) {
      out[static_cast<std::size_t>((outer * palette.vector_size + v) * inner + within)] =
          table[static_cast<std::size_t>(entry + v)];
    }
  }
  return out;
}

void lut_to_dense(Call& c) {
  const Value& indices = need(c, "indices");
  const Value& lut = need(c, "lut");
  if (!c.literal("shape")) {
    const Shape& shape = indices.type.tensor.dims;
    const Palette palette = read_palette(c, shape, lut);
    return c.constant([&] {
      return encode(c.declared().dtype, palette.out_shape,
                    look_up(c, shape, lut, palette, [&](std::int64_t i) { return integer_at(indices, i); }));
    });
  }
  const Shape shape = shape_argument(c);
  const std::int64_t entries = count_of(lut), total = element_count(shape, "a compressed weight");
  const int bits = std::countr_zero(static_cast<std::uint64_t>(entries));
  if (entries < 2 || entries > 256 || entries != std::int64_t{1} << bits)
    c.fail("a lut of " + std::to_string(entries) + " entries");
  if (static_cast<std::int64_t>(indices.raw.size()) != (total * bits + 7) / 8)
    c.fail("indices do not fit shape " + describe(shape));
  c.constant([&] {
    const std::vector<float> table = decode(lut);
    std::vector<float> out(static_cast<std::size_t>(total));
    for (std::int64_t i = 0; i < total; ++i) {
      const std::int64_t at = i * bits, last = (at + bits - 1) / 8;
      unsigned word = indices.raw[static_cast<std::size_t>(at / 8)];
      if (last != at / 8) word |= static_cast<unsigned>(indices.raw[static_cast<std::size_t>(last)]) << 8;
      out[static_cast<std::size_t>(i)] = table[(word >> (at % 8)) & static_cast<unsigned>(entries - 1)];
    }
    return encode(c.declared().dtype, shape, out);
  });
}

bool bit_at(const Value& mask, std::int64_t i) { return (mask.raw[static_cast<std::size_t>(i / 8)] >> (i % 8)) & 1U; }

std::int64_t set_bits(const Value& mask, std::int64_t total) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < total; ++i) count += bit_at(mask, i);
  return count;
}

// The mask as packed bits, for both forms.
const Value& bit_mask(Call& c, std::string_view name, std::int64_t total) {
  const Value& mask = need(c, name);
  if (static_cast<std::int64_t>(mask.raw.size()) != (total + 7) / 8 || bit_width(mask.type.tensor.dtype) > 8) {
    c.fail("mask does not hold " + std::to_string(total) + " bits");
  }
  return mask;
}

// Scatters nonzero values to their dense places; `fill` elsewhere.
std::vector<float> spread(Call& c, const Value& mask, const std::vector<float>& nonzero, std::int64_t total) {
  if (set_bits(mask, total) != static_cast<std::int64_t>(nonzero.size())) c.fail("mask and nonzero data disagree");
  std::vector<float> out(static_cast<std::size_t>(total), 0.0F);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < total; ++i) {
    if (bit_at(mask, i)) out[static_cast<std::size_t>(i)] = nonzero[next++];
  }
  return out;
}

void sparse_to_dense(Call& c) {
  const Value& nonzero = need(c, "nonzero_data");
  const Shape shape = c.literal("shape") ? shape_argument(c) : need(c, "mask").type.tensor.dims;
  const std::int64_t total = element_count(shape, "a compressed weight");
  const Value& mask = bit_mask(c, "mask", total);
  c.constant([&] { return encode(c.declared().dtype, shape, spread(c, mask, decode(nonzero), total)); });
}

std::vector<float> bits_of(const Value& mask, std::int64_t total) {
  std::vector<float> bits(static_cast<std::size_t>(total));
  for (std::int64_t i = 0; i < total; ++i) bits[static_cast<std::size_t>(i)] = bit_at(mask, i) ? 1.0F : 0.0F;
  return bits;
}

// Output 0 is the mask, output 1 the values under it.
void two_outputs(Call& c, const Shape& shape, const std::vector<float>& mask, const std::vector<float>& dense) {
  std::vector<float> nonzero;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] != 0.0F) nonzero.push_back(dense[i]);
  }
  const auto count = static_cast<std::int64_t>(nonzero.size());
  c.constant([&] { return encode(MilType::kUInt1, shape, mask); }, 0);
  c.constant([&] { return encode(c.declared(1).dtype, {count}, nonzero); }, 1);
}

void lut_to_sparse(Call& c) {
  const Shape shape = need(c, "indices_mask").type.tensor.dims;
  const std::int64_t total = element_count(shape, "a compressed weight");
  const Value& mask = bit_mask(c, "indices_mask", total);
  const Value& lut = need(c, "lut");
  const Palette palette = read_palette(c, shape, lut);
  const std::vector<float> indices = spread(c, mask, decode(need(c, "indices_nonzero_data")), total);
  const std::vector<float> dense = look_up(c, shape, lut, palette, [&](std::int64_t i) {
    return static_cast<std::int64_t>(indices[static_cast<std::size_t>(i)]);
  });
  std::vector<float> wide(dense.size());
  const std::vector<float> bits = bits_of(mask, total);
  const std::int64_t inner = shape.empty() ? 1 : dense_strides(shape)[static_cast<std::size_t>(palette.axis)];
  for (std::int64_t i = 0; i < total; ++i) {
    for (std::int64_t v = 0; v < palette.vector_size; ++v) {
      wide[static_cast<std::size_t>((i / inner * palette.vector_size + v) * inner + i % inner)] =
          bits[static_cast<std::size_t>(i)];
    }
  }
  two_outputs(c, palette.out_shape, wide, dense);
}

void sparse_blockwise_shift_scale(Call& c) {
  const Shape shape = need(c, "data_mask").type.tensor.dims;
  const std::int64_t total = element_count(shape, "a compressed weight");
  const Value& mask = bit_mask(c, "data_mask", total);
  std::vector<float> dense = shift_scale(c, spread(c, mask, decode(need(c, "nonzero_data")), total), shape);
  two_outputs(c, shape, bits_of(mask, total), dense);
}

void cast(Call& c) {
  const Value& source = need(c, "source_val");
  c.constant([&] { return encode(c.declared().dtype, source.type.tensor.dims, decode(source)); });
}

}  // namespace

OpTable constexpr_ops() {
  return {
      {"constexpr_affine_dequantize", affine_dequantize},
      {"constexpr_blockwise_shift_scale", blockwise_shift_scale},
      {"constexpr_cast", cast},
      {"constexpr_lut_to_dense", lut_to_dense},
      {"constexpr_lut_to_sparse", lut_to_sparse},
      {"constexpr_sparse_blockwise_shift_scale", sparse_blockwise_shift_scale},
      {"constexpr_sparse_to_dense", sparse_to_dense},
  };
}

}  // namespace coremlsim::mil
