#import "coreml/surface.h"

#include <limits>
#include <utility>

#include "core/checks.h"
#import "coreml/multi_array.h"
#import "coreml/nserror.h"

namespace kvbacking {
namespace {

constexpr IOSurfaceLockOptions kReadWrite = static_cast<IOSurfaceLockOptions>(0);

NSString* key(CFStringRef name) { return (NSString*)name; }

OSType pixel_format(DType dtype) {
  return dtype == DType::kInt8 ? OSType{kCVPixelFormatType_OneComponent8}
                               : OSType{kCVPixelFormatType_OneComponent16Half};
}

std::string describe_spec(const SurfaceSpec& spec) {
  return std::to_string(spec.width()) + " x " + std::to_string(spec.height()) + " " + dtype_name(spec.dtype);
}

std::string too_large(const char* what, std::size_t value, std::size_t limit) {
  return std::string("a surface for it would need a ") + what + " of " + std::to_string(value) +
         ", this system allows at most " + std::to_string(limit);
}

// Asked for once, before an array over the surface exists.
std::uintptr_t mapped_address(IOSurfaceRef io_surface) {
  if (IOSurfaceLock(io_surface, kIOSurfaceLockReadOnly, nullptr) != KERN_SUCCESS) return 0;
  const auto address = reinterpret_cast<std::uintptr_t>(IOSurfaceGetBaseAddress(io_surface));
  IOSurfaceUnlock(io_surface, kIOSurfaceLockReadOnly, nullptr);
  return address;
}

}  // namespace

SurfaceLimits surface_limits() {
  return {IOSurfaceGetPropertyMaximum(kIOSurfaceWidth), IOSurfaceGetPropertyMaximum(kIOSurfaceHeight),
          IOSurfaceGetPropertyMaximum(kIOSurfaceBytesPerRow), IOSurfaceGetPropertyMaximum(kIOSurfaceAllocSize)};
}

std::size_t SurfaceSpec::width() const { return static_cast<std::size_t>(Layout::dense(dtype, shape).row_length()); }

std::size_t SurfaceSpec::height() const { return static_cast<std::size_t>(Layout::dense(dtype, shape).row_count()); }

std::optional<std::string> surface_refusal(const SurfaceSpec& spec) {
  if (spec.dtype != DType::kFloat16 && spec.dtype != DType::kInt8) {
    return std::string("a surface holds float16 or int8, not ") + dtype_name(spec.dtype);
  }
  if (spec.dtype == DType::kInt8 && !supports_int8_arrays()) {
    return "int8 arrays need macOS 26 or later";
  }
  if (!check_enabled(Check::kSurfaceLimits)) return std::nullopt;
  if (spec.width() == 0 || spec.height() == 0) return "a surface cannot be empty";
  const SurfaceLimits limits = surface_limits();
  const auto over = [](std::size_t value, std::size_t limit) { return limit != 0 && value > limit; };
  if (over(spec.width(), limits.width)) return too_large("width (last dimension)", spec.width(), limits.width);
  if (over(spec.height(), limits.height)) {
    return too_large("height (product of the other dimensions)", spec.height(), limits.height);
  }
  const std::size_t row = IOSurfaceAlignProperty(kIOSurfaceBytesPerRow, spec.width() * element_size(spec.dtype));
  if (over(row, limits.bytes_per_row)) return too_large("row byte count", row, limits.bytes_per_row);
  if (limits.byte_count != 0 && row > limits.byte_count / spec.height()) {
    return too_large("byte count", row * spec.height(), limits.byte_count);
  }
  return std::nullopt;
}

std::shared_ptr<Surface> Surface::create(const SurfaceSpec& spec) {
  NSDictionary* attributes = @{key(kCVPixelBufferIOSurfacePropertiesKey) : @{}};
  CVPixelBufferRef pixel_buffer = nullptr;
  const CVReturn status = CVPixelBufferCreate(kCFAllocatorDefault, spec.width(), spec.height(),
                                              pixel_format(spec.dtype), (CFDictionaryRef)attributes, &pixel_buffer);
  if (status != kCVReturnSuccess || pixel_buffer == nullptr) {
    throw Error(ErrorCode::kAllocation,
                "[surface.create] no IOSurface-backed pixel buffer of " + describe_spec(spec) + ": CVReturn " +
                    std::to_string(status),
                {{"code", std::int64_t{status}}});
  }
  return adopt(spec, CfPtr<CVPixelBufferRef>::adopt(pixel_buffer));
}

std::shared_ptr<Surface> Surface::adopt(const SurfaceSpec& spec, CfPtr<CVPixelBufferRef> pixel_buffer) {
  IOSurfaceRef io_surface = CVPixelBufferGetIOSurface(pixel_buffer.get());
  if (io_surface == nullptr) {
    throw Error(ErrorCode::kAllocation, "[surface.adopt] the pixel buffer has no IOSurface behind it");
  }
  std::shared_ptr<Surface> surface(new Surface());
  surface->id_ = IOSurfaceGetID(io_surface);
  surface->address_ = mapped_address(io_surface);
  surface->bytes_per_row_ = CVPixelBufferGetBytesPerRow(pixel_buffer.get());
  surface->row_count_ = spec.height();
  const std::size_t size = element_size(spec.dtype);
  if (surface->bytes_per_row_ % size != 0 || surface->bytes_per_row_ < spec.width() * size) {
    throw Error(ErrorCode::kAllocation, "[surface.adopt] rows of " + describe_spec(spec) + " are " +
                                            std::to_string(surface->bytes_per_row_) +
                                            " bytes apart, which holds no whole row");
  }
  surface->layout_ =
      Layout::padded_rows(spec.dtype, spec.shape, static_cast<std::int64_t>(surface->bytes_per_row_ / size));
  surface->pixel_buffer_ = std::move(pixel_buffer);
  return surface;
}

MemoryRange Surface::range(const std::string& name) const {
  return {name, address_, address_ == 0 ? 0 : address_ + byte_count(), id_};
}

SurfacePool::SurfacePool(const SurfaceSpec& spec, std::size_t threshold) : spec_(spec), threshold_(threshold) {
  NSDictionary* attributes = @{
    key(kCVPixelBufferIOSurfacePropertiesKey) : @{},
    key(kCVPixelBufferWidthKey) : @(static_cast<unsigned long>(spec.width())),
    key(kCVPixelBufferHeightKey) : @(static_cast<unsigned long>(spec.height())),
    key(kCVPixelBufferPixelFormatTypeKey) : @(static_cast<unsigned long>(pixel_format(spec.dtype))),
  };
  CVPixelBufferPoolRef pool = nullptr;
  const CVReturn status = CVPixelBufferPoolCreate(kCFAllocatorDefault, nullptr, (CFDictionaryRef)attributes, &pool);
  if (status != kCVReturnSuccess || pool == nullptr) {
    throw Error(ErrorCode::kAllocation,
                "[surface.pool] no pool of " + describe_spec(spec) + ": CVReturn " + std::to_string(status),
                {{"code", std::int64_t{status}}});
  }
  pool_ = CfPtr<CVPixelBufferPoolRef>::adopt(pool);
  aux_attributes_ = retain(static_cast<NSDictionary*>(
      @{key(kCVPixelBufferPoolAllocationThresholdKey) : @(static_cast<unsigned long>(threshold))}));
}

std::shared_ptr<Surface> SurfacePool::create() const {
  CVPixelBufferRef pixel_buffer = nullptr;
  const CVReturn status = CVPixelBufferPoolCreatePixelBufferWithAuxAttributes(
      kCFAllocatorDefault, pool_.get(), (CFDictionaryRef)aux_attributes_.get(), &pixel_buffer);
  if (status == kCVReturnWouldExceedAllocationThreshold) {
    throw Error(ErrorCode::kBackingInUse,
                "[surface.pool] all " + std::to_string(threshold_) +
                    " buffers of the pool are in use: drop views and " +
                    "release() predictions, or use a larger depth; the framework may also hold one a little longer",
                {{"threshold", static_cast<std::int64_t>(threshold_)}, {"code", std::int64_t{status}}});
  }
  if (status != kCVReturnSuccess || pixel_buffer == nullptr) {
    throw Error(ErrorCode::kAllocation,
                "[surface.pool] no pixel buffer of " + describe_spec(spec_) + ": CVReturn " + std::to_string(status),
                {{"code", std::int64_t{status}}});
  }
  return Surface::adopt(spec_, CfPtr<CVPixelBufferRef>::adopt(pixel_buffer));
}

PixelReadLock::PixelReadLock(CfPtr<CVPixelBufferRef> pixel_buffer) : pixel_buffer_(std::move(pixel_buffer)) {
  const CVReturn status = CVPixelBufferLockBaseAddress(pixel_buffer_.get(), kCVPixelBufferLock_ReadOnly);
  if (status != kCVReturnSuccess) {
    throw Error(ErrorCode::kPrediction,
                "[surface.lock] a pixel buffer cannot be locked for reading: CVReturn " + std::to_string(status),
                {{"code", std::int64_t{status}}});
  }
  data_ = CVPixelBufferGetBaseAddress(pixel_buffer_.get());
  byte_count_ = CVPixelBufferGetBytesPerRow(pixel_buffer_.get()) * CVPixelBufferGetHeight(pixel_buffer_.get());
  if (data_ == nullptr) {
    CVPixelBufferUnlockBaseAddress(pixel_buffer_.get(), kCVPixelBufferLock_ReadOnly);
    throw Error(ErrorCode::kPrediction, "[surface.lock] a locked pixel buffer has no base address");
  }
}

PixelReadLock::~PixelReadLock() { CVPixelBufferUnlockBaseAddress(pixel_buffer_.get(), kCVPixelBufferLock_ReadOnly); }

SurfaceLock::SurfaceLock(const Surface& surface, bool writable)
    : surface_(surface.io_surface()), options_(writable ? kReadWrite : kIOSurfaceLockReadOnly) {
  const char* const purpose = writable ? "writing" : "reading";
  if (const kern_return_t status = IOSurfaceLock(surface_, options_, nullptr); status != KERN_SUCCESS) {
    throw Error(ErrorCode::kAllocation,
                std::string("[surface.lock] a surface cannot be locked for ") + purpose + ": " + std::to_string(status),
                {{"code", std::int64_t{status}}});
  }
  data_ = IOSurfaceGetBaseAddress(surface_);
  if (data_ == nullptr) {
    IOSurfaceUnlock(surface_, options_, nullptr);
    throw Error(ErrorCode::kAllocation, "[surface.lock] a locked surface has no base address");
  }
}

SurfaceLock::SurfaceLock(SurfaceLock&& other) noexcept
    : surface_(std::exchange(other.surface_, nullptr)), options_(other.options_), data_(other.data_) {}

SurfaceLock::~SurfaceLock() {
  if (surface_ != nullptr) IOSurfaceUnlock(surface_, options_, nullptr);
}

void Surface::note_input(const std::string& name) {
  const std::lock_guard<std::mutex> lock(note_mutex_);
  input_name_ = name;
}

std::string Surface::input_name() const {
  const std::lock_guard<std::mutex> lock(note_mutex_);
  return input_name_;
}

namespace {

constexpr std::int32_t kOneOutput = std::numeric_limits<std::int32_t>::min();

// Positive: mappings; negative: predictions that read it; kOneOutput: one that writes it.
std::optional<std::int32_t> joined(std::int32_t uses, SurfaceRole role) {
  switch (role) {
    case SurfaceRole::kMapped:
      if (uses >= 0) return uses + 1;
      break;
    case SurfaceRole::kInput:
      if (uses <= 0 && uses != kOneOutput) return uses - 1;
      break;
    case SurfaceRole::kOutput:
      if (uses == 0) return kOneOutput;
      break;
  }
  return std::nullopt;
}

const char* describe_uses(std::int32_t uses) {
  if (uses > 0) return "is mapped or seen through a view: drop every array over it";
  return uses == kOneOutput ? "is the backing of a running prediction: wait for it"
                            : "is the input of a running prediction: wait for it";
}

}  // namespace

SurfaceUse::SurfaceUse(std::shared_ptr<Surface> surface, SurfaceRole role, const std::string& what)
    : surface_(std::move(surface)), role_(role) {
  std::int32_t uses = surface_->uses_.load(std::memory_order_relaxed);
  for (;;) {
    const auto next = joined(uses, role);
    if (!next) {
      throw Error(ErrorCode::kBackingInUse,
                  what + " (id " + std::to_string(surface_->id()) + ") " + describe_uses(uses));
    }
    if (surface_->uses_.compare_exchange_weak(uses, *next, std::memory_order_acquire, std::memory_order_relaxed)) {
      return;
    }
  }
}

SurfaceUse::~SurfaceUse() {
  if (!surface_) return;
  switch (role_) {
    case SurfaceRole::kMapped:
      surface_->uses_.fetch_sub(1, std::memory_order_release);
      break;
    case SurfaceRole::kInput:
      surface_->uses_.fetch_add(1, std::memory_order_release);
      break;
    case SurfaceRole::kOutput:
      surface_->uses_.store(0, std::memory_order_release);
  }
}

}  // namespace kvbacking
