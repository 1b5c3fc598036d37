#include "kvbacking/postprocess.h"

#include <dlfcn.h>

#include <string>

#include "kvbacking/copy.h"
#include "kvbacking/error.h"
#include "kvbacking/layout.h"

namespace kvbacking {
namespace {

// vImage's public types and function (Accelerate/vImage: vImage_Types.h, Conversion.h). Found at run time, so that
// nothing but this experiment loads Accelerate.
struct ImageBuffer {
  void* data;
  unsigned long height, width;
  std::size_t row_byte_count;
};
using HalfToFloat = long (*)(const ImageBuffer* source, const ImageBuffer* destination, std::uint32_t flags);

HalfToFloat vimage_half_to_float() noexcept {
  static const auto function = [] {
    void* library = dlopen("/System/Library/Frameworks/Accelerate.framework/Accelerate", RTLD_LAZY | RTLD_LOCAL);
    return library ? reinterpret_cast<HalfToFloat>(dlsym(library, "vImageConvert_Planar16FtoPlanarF")) : nullptr;
  }();
  return function;
}

}  // namespace

const char* half_conversion_engine() noexcept { return vimage_half_to_float() ? "vImage" : "Highway"; }

void convert_half_to_float(const void* source, float* destination, std::size_t rows, std::size_t columns) {
  if (const HalfToFloat convert = vimage_half_to_float()) {
    const ImageBuffer from{const_cast<void*>(source), rows, columns, columns * 2};
    const ImageBuffer to{destination, rows, columns, columns * sizeof(float)};
    if (const long status = convert(&from, &to, 0); status != 0) {
      throw Error(ErrorCode::kInvalidArgument, "[postprocess] vImage refused with status " + std::to_string(status));
    }
    return;
  }
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
  copy_elements(source, Layout::dense(DType::kFloat16, shape), destination, Layout::dense(DType::kFloat32, shape));
}

}  // namespace kvbacking
