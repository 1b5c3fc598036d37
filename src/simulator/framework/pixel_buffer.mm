#include "framework/pixel_buffer.h"

#import <CoreML/CoreML.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "framework/control.h"
#include "framework/faults.h"
#include "framework/release_thread.h"
#include "framework/strong.h"

const CFStringRef kCVPixelBufferPixelFormatTypeKey = (CFStringRef) @"PixelFormatType";
const CFStringRef kCVPixelBufferWidthKey = (CFStringRef) @"Width";
const CFStringRef kCVPixelBufferHeightKey = (CFStringRef) @"Height";
const CFStringRef kCVPixelBufferBytesPerRowAlignmentKey = (CFStringRef) @"BytesPerRowAlignment";
const CFStringRef kCVPixelBufferIOSurfacePropertiesKey = (CFStringRef) @"IOSurfaceProperties";
const CFStringRef kCVPixelBufferMetalCompatibilityKey = (CFStringRef) @"MetalCompatibility";

@interface CoreMLSimulatorPixelBuffer : NSObject {
 @public
  coremlsim::PixelBuffer buffer_;
  IOSurfaceRef surface_;       // the object that CVPixelBufferGetIOSurface lends out
  std::atomic<int> releases_;  // see MLMultiArray
}
@end

@implementation CoreMLSimulatorPixelBuffer
- (instancetype)init {
  if ((self = [super init]) != nil) {
    coremlsim::count_live(coremlsim::Live::kPixelBuffer, 1);
  }
  return self;
}
- (oneway void)release {
  releases_.fetch_add(1, std::memory_order_release);
  [super release];
}
- (void)dealloc {
  (void)releases_.load(std::memory_order_acquire);
  if (surface_ != nullptr) {
    CFRelease(surface_);
  }
  coremlsim::count_live(coremlsim::Live::kPixelBuffer, -1);
  [super dealloc];
}
@end

namespace coremlsim {
namespace {

CVPixelBufferRef as_reference(CoreMLSimulatorPixelBuffer* object) { return reinterpret_cast<CVPixelBufferRef>(object); }

CoreMLSimulatorPixelBuffer* object_of(CVPixelBufferRef buffer) {
  return reinterpret_cast<CoreMLSimulatorPixelBuffer*>(buffer);
}

id attribute(CFDictionaryRef attributes, CFStringRef key) {
  return [reinterpret_cast<NSDictionary*>(const_cast<__CFDictionary*>(attributes))
      objectForKey:reinterpret_cast<NSString*>(const_cast<__CFString*>(key))];
}

std::size_t row_byte_count(std::size_t width, std::size_t pixel_bytes, CFDictionaryRef attributes) {
  const Options now = options();
  std::size_t alignment = now.row_alignment;
  if (id asked = attribute(attributes, kCVPixelBufferBytesPerRowAlignmentKey);
      [asked isKindOfClass:[NSNumber class]] && [static_cast<NSNumber*>(asked) unsignedLongLongValue] > 0) {
    alignment = [static_cast<NSNumber*>(asked) unsignedLongLongValue];
  }
  const std::size_t padded = width * pixel_bytes + now.row_padding;
  return (padded + alignment - 1) / alignment * alignment;
}

}  // namespace

std::optional<std::size_t> pixel_byte_width(OSType format) noexcept {
  switch (format) {
    case kCVPixelFormatType_OneComponent8:
      return 1;
    case kCVPixelFormatType_OneComponent16:
    case kCVPixelFormatType_OneComponent16Half:
      return 2;
    case kCVPixelFormatType_OneComponent32Float:
      return 4;
    default:
      return std::nullopt;
  }
}

PixelBuffer::~PixelBuffer() {
  if (release) {
    post_release(std::move(release));
  }
  if (give_back) {
    surface.reset();
    give_back();
  }
}

CVReturn PixelBuffer::lock(bool read_only) {
  locks_.lock(read_only);
  if (surface != nullptr) {
    surface->lock(read_only);
  }
  return kCVReturnSuccess;
}

CVReturn PixelBuffer::unlock(bool read_only) {
  if (!locks_.unlock(read_only)) {
    return kCVReturnInvalidArgument;
  }
  if (surface != nullptr) {
    surface->unlock(read_only);
  }
  return kCVReturnSuccess;
}

bool PixelBuffer::is_locked() const noexcept {
  return locks_.is_locked() || (surface != nullptr && surface->is_locked());
}

std::uint64_t PixelBuffer::lock_generation() const noexcept {
  return surface != nullptr ? surface->lock_generation() : locks_.generation();
}

void PixelBuffer::array_created() {
  const std::uint64_t now = lock_generation();
  const std::lock_guard guard(mutex_);
  if (!generation_at_first_array_) {
    generation_at_first_array_ = now;
  }
}

bool PixelBuffer::locked_since_first_array() const {
  const std::uint64_t now = lock_generation();
  const std::lock_guard guard(mutex_);
  return generation_at_first_array_ && *generation_at_first_array_ != now;
}

CVPixelBufferRef create_pixel_buffer(std::shared_ptr<SurfaceMemory> surface, std::size_t width, std::size_t height,
                                     OSType format, std::function<void()> give_back) {
  const auto pixel_bytes = pixel_byte_width(format);
  if (!pixel_bytes || surface->shape().bytes_per_row < width * *pixel_bytes || surface->shape().height < height) {
    return nullptr;
  }
  CoreMLSimulatorPixelBuffer* object = [[CoreMLSimulatorPixelBuffer alloc] init];
  PixelBuffer& buffer = object->buffer_;
  buffer.width = width;
  buffer.height = height;
  buffer.bytes_per_row = surface->shape().bytes_per_row;
  buffer.format = format;
  object->surface_ = create_surface_object(surface);
  buffer.surface = std::move(surface);
  buffer.give_back = std::move(give_back);
  return as_reference(object);
}

PixelBuffer& pixel_buffer(CVPixelBufferRef buffer) { return object_of(buffer)->buffer_; }

}  // namespace coremlsim

using coremlsim::pixel_buffer;

CFTypeID CVPixelBufferGetTypeID() { return reinterpret_cast<CFTypeID>([CoreMLSimulatorPixelBuffer class]); }
CVPixelBufferRef CVPixelBufferRetain(CVPixelBufferRef buffer) {
  return coremlsim::as_reference([coremlsim::object_of(buffer) retain]);
}
void CVPixelBufferRelease(CVPixelBufferRef buffer) { [coremlsim::object_of(buffer) release]; }

CVReturn CVPixelBufferCreate(CFAllocatorRef, size_t width, size_t height, OSType format, CFDictionaryRef attributes,
                             CVPixelBufferRef* out) {
  *out = nullptr;
  const auto pixel_bytes = coremlsim::pixel_byte_width(format);
  if (!pixel_bytes) {
    return kCVReturnInvalidPixelFormat;
  }
  const std::size_t max_extent = coremlsim::options().surface_max_extent;
  if (width == 0 || height == 0 || width > max_extent || height > max_extent) {
    return kCVReturnInvalidSize;
  }
  if (coremlsim::allocation_must_fail("pixel_buffer")) {
    return kCVReturnAllocationFailed;
  }
  const std::size_t row = coremlsim::row_byte_count(width, *pixel_bytes, attributes);
  if (coremlsim::attribute(attributes, kCVPixelBufferIOSurfacePropertiesKey) != nil) {
    auto surface = coremlsim::SurfaceMemory::create({width, height, *pixel_bytes, row, 0, format});
    if (surface == nullptr) {
      return kCVReturnAllocationFailed;
    }
    *out = coremlsim::create_pixel_buffer(std::move(surface), width, height, format, nullptr);
    return kCVReturnSuccess;
  }
  void* bytes = nullptr;
  if (posix_memalign(&bytes, 64, row * height) != 0) {
    return kCVReturnAllocationFailed;
  }
  if (coremlsim::options().poison) {
    std::memset(bytes, 0xFF, row * height);
  }
  return CVPixelBufferCreateWithBytes(
      nullptr, width, height, format, bytes, row, [](void* context, const void*) { std::free(context); }, bytes,
      attributes, out);
}

CVReturn CVPixelBufferCreateWithBytes(CFAllocatorRef, size_t width, size_t height, OSType format, void* base_address,
                                      size_t bytes_per_row, CVPixelBufferReleaseBytesCallback callback, void* context,
                                      CFDictionaryRef, CVPixelBufferRef* out) {
  *out = nullptr;
  const auto pixel_bytes = coremlsim::pixel_byte_width(format);
  if (!pixel_bytes) {
    return kCVReturnInvalidPixelFormat;
  }
  if (width == 0 || height == 0 || bytes_per_row < width * *pixel_bytes) {
    return kCVReturnInvalidSize;
  }
  CoreMLSimulatorPixelBuffer* object = [[CoreMLSimulatorPixelBuffer alloc] init];
  coremlsim::PixelBuffer& buffer = object->buffer_;
  buffer.width = width;
  buffer.height = height;
  buffer.bytes_per_row = bytes_per_row;
  buffer.format = format;
  buffer.plain = static_cast<std::byte*>(base_address);
  if (callback != nullptr) {
    buffer.release = [callback, context, base_address] { callback(context, base_address); };
  }
  *out = coremlsim::as_reference(object);
  return kCVReturnSuccess;
}

CVReturn CVPixelBufferCreateWithIOSurface(CFAllocatorRef, IOSurfaceRef surface, CFDictionaryRef attributes,
                                          CVPixelBufferRef* out) {
  const auto& memory = coremlsim::surface_memory(surface);
  OSType format = memory->shape().format;
  if (id asked = coremlsim::attribute(attributes, kCVPixelBufferPixelFormatTypeKey);
      [asked isKindOfClass:[NSNumber class]]) {
    format = [static_cast<NSNumber*>(asked) unsignedIntValue];
  }
  const auto pixel_bytes = coremlsim::pixel_byte_width(format);
  *out = nullptr;
  if (!pixel_bytes || *pixel_bytes != memory->shape().bytes_per_element) {
    return kCVReturnInvalidPixelFormat;
  }
  *out = coremlsim::create_pixel_buffer(memory, memory->shape().width, memory->shape().height, format, nullptr);
  return *out != nullptr ? kCVReturnSuccess : kCVReturnInvalidSize;
}

CVReturn CVPixelBufferLockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags flags) {
  return pixel_buffer(buffer).lock((flags & kCVPixelBufferLock_ReadOnly) != 0);
}
CVReturn CVPixelBufferUnlockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags flags) {
  return pixel_buffer(buffer).unlock((flags & kCVPixelBufferLock_ReadOnly) != 0);
}
size_t CVPixelBufferGetWidth(CVPixelBufferRef buffer) { return pixel_buffer(buffer).width; }
size_t CVPixelBufferGetHeight(CVPixelBufferRef buffer) { return pixel_buffer(buffer).height; }
OSType CVPixelBufferGetPixelFormatType(CVPixelBufferRef buffer) { return pixel_buffer(buffer).format; }
// Stricter than the documentation: the address is only there while the buffer is locked.
void* CVPixelBufferGetBaseAddress(CVPixelBufferRef buffer) {
  const coremlsim::PixelBuffer& memory = pixel_buffer(buffer);
  return memory.is_locked() ? memory.bytes() : nullptr;
}
size_t CVPixelBufferGetBytesPerRow(CVPixelBufferRef buffer) { return pixel_buffer(buffer).bytes_per_row; }
size_t CVPixelBufferGetDataSize(CVPixelBufferRef buffer) { return pixel_buffer(buffer).byte_count(); }
Boolean CVPixelBufferIsPlanar(CVPixelBufferRef) { return NO; }
size_t CVPixelBufferGetPlaneCount(CVPixelBufferRef) { return 0; }
IOSurfaceRef CVPixelBufferGetIOSurface(CVPixelBufferRef buffer) {
  return buffer != nullptr ? coremlsim::object_of(buffer)->surface_ : nullptr;
}
