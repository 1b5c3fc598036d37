#include "bind/arrays.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvbacking/error.h"

namespace nb = nanobind;

namespace kvbacking::bind {
namespace {

struct DTypePair {
  DType ours;
  nb::dlpack::dtype_code code;
  std::uint8_t bits;
};

constexpr DTypePair kDTypes[] = {
    {DType::kFloat16, nb::dlpack::dtype_code::Float, 16}, {DType::kFloat32, nb::dlpack::dtype_code::Float, 32},
    {DType::kFloat64, nb::dlpack::dtype_code::Float, 64}, {DType::kInt32, nb::dlpack::dtype_code::Int, 32},
    {DType::kInt8, nb::dlpack::dtype_code::Int, 8},
};

nb::dlpack::dtype to_dlpack(DType dtype) {
  for (const DTypePair& pair : kDTypes) {
    if (pair.ours == dtype) {
      return {static_cast<std::uint8_t>(pair.code), pair.bits, 1};
    }
  }
  throw Error(ErrorCode::kInvalidArgument, "[bind::to_dlpack] unknown element type");
}

template <typename Array>
Layout describe(const Array& array) {
  const nb::dlpack::dtype dtype = array.dtype();
  const DTypePair* match = nullptr;
  for (const DTypePair& pair : kDTypes) {
    if (dtype.code == static_cast<std::uint8_t>(pair.code) && dtype.bits == pair.bits && dtype.lanes == 1) {
      match = &pair;
    }
  }
  if (match == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "[bind::layout_of] element type with DLPack code " +
                                                 std::to_string(dtype.code) + " and " + std::to_string(dtype.bits) +
                                                 " bits is not float16, float32, float64, int32 or int8");
  }
  std::vector<std::int64_t> shape, element_strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(static_cast<std::int64_t>(array.shape(i)));
    element_strides.push_back(array.stride(i));
  }
  return Layout::strided(match->ours, std::move(shape), std::move(element_strides));
}

template <typename Array, typename Pointer>
nb::object export_numpy(Pointer data, const Layout& layout, const nb::capsule& owner) {
  const std::vector<std::size_t> shape(layout.shape.begin(), layout.shape.end());
  return nb::cast(
      Array(data, shape.size(), shape.data(), owner, layout.element_strides.data(), to_dlpack(layout.dtype)));
}

}  // namespace

Layout layout_of(const ReadOnlyArray& array) { return describe(array); }
Layout layout_of(const WritableArray& array) { return describe(array); }

nb::object numpy_view(const void* data, const Layout& layout, const nb::capsule& owner) {
  return export_numpy<nb::ndarray<nb::numpy, nb::ro, nb::device::cpu>>(data, layout, owner);
}

nb::object numpy_array(void* data, const Layout& layout, const nb::capsule& owner) {
  return export_numpy<nb::ndarray<nb::numpy, nb::device::cpu>>(data, layout, owner);
}

nb::object numpy_owned(OwnedOutput output) {
  auto keep = std::make_unique<std::shared_ptr<void>>(std::move(output.memory));
  void* const data = keep->get();
  const nb::capsule owner(keep.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<void>*>(p); });
  keep.release();
  return numpy_array(data, output.layout, owner);
}

}  // namespace kvbacking::bind
