#include "framework/surface.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "framework/control.h"
#include "framework/faults.h"

const CFStringRef kIOSurfaceAllocSize = (CFStringRef) @"IOSurfaceAllocSize";
const CFStringRef kIOSurfaceWidth = (CFStringRef) @"IOSurfaceWidth";
const CFStringRef kIOSurfaceHeight = (CFStringRef) @"IOSurfaceHeight";
const CFStringRef kIOSurfaceBytesPerRow = (CFStringRef) @"IOSurfaceBytesPerRow";
const CFStringRef kIOSurfaceBytesPerElement = (CFStringRef) @"IOSurfaceBytesPerElement";
const CFStringRef kIOSurfaceElementWidth = (CFStringRef) @"IOSurfaceElementWidth";
const CFStringRef kIOSurfaceElementHeight = (CFStringRef) @"IOSurfaceElementHeight";
const CFStringRef kIOSurfaceOffset = (CFStringRef) @"IOSurfaceOffset";
const CFStringRef kIOSurfaceCacheMode = (CFStringRef) @"IOSurfaceCacheMode";
const CFStringRef kIOSurfacePixelFormat = (CFStringRef) @"IOSurfacePixelFormat";
const CFStringRef kIOSurfaceName = (CFStringRef) @"IOSurfaceName";
const CFStringRef kIOSurfacePixelSizeCastingAllowed = (CFStringRef) @"IOSurfacePixelSizeCastingAllowed";

@interface CoreMLSimulatorSurface : NSObject {
 @public
  std::shared_ptr<coremlsim::SurfaceMemory> memory_;
}
@end

@implementation CoreMLSimulatorSurface
// Every reference to a surface is another object; they are equal when they name the same surface.
- (BOOL)isEqual:(id)other {
  return [other isKindOfClass:[CoreMLSimulatorSurface class]] &&
         static_cast<CoreMLSimulatorSurface*>(other)->memory_ == memory_;
}
- (NSUInteger)hash {
  return memory_->identifier();
}
@end

namespace coremlsim {
namespace {

constexpr std::size_t kBytesPerRowAlignment = 16;  // a given row size must be a multiple of this
constexpr std::size_t kMaxBytesPerRow = std::size_t{1} << 20;
constexpr std::size_t kMaxAllocSize = std::size_t{4} << 30;
constexpr kern_return_t kBadArgument = static_cast<kern_return_t>(0xE00002C2);  // kIOReturnBadArgument

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

struct Registry {
  std::mutex mutex;
  std::unordered_map<IOSurfaceID, std::weak_ptr<SurfaceMemory>> surfaces;
  IOSurfaceID next = 1;
};
Registry& registry() {
  static auto* shared = new Registry;
  return *shared;
}

std::size_t read_size(CFDictionaryRef properties, CFStringRef key, std::size_t fallback) {
  id value = [reinterpret_cast<NSDictionary*>(const_cast<__CFDictionary*>(properties))
      objectForKey:reinterpret_cast<NSString*>(const_cast<__CFString*>(key))];
  return [value isKindOfClass:[NSNumber class]] ? [static_cast<NSNumber*>(value) unsignedLongLongValue] : fallback;
}

bool same_key(CFStringRef first, CFStringRef second) { return CFEqual(first, second); }

}  // namespace

std::shared_ptr<SurfaceMemory> SurfaceMemory::create(SurfaceShape shape) {
  const Options now = options();
  const std::size_t tight_row = shape.width * shape.bytes_per_element;
  if (shape.bytes_per_row == 0) {
    shape.bytes_per_row = round_up(tight_row, now.row_alignment) + now.row_padding;
  }
  if (shape.width == 0 || shape.height == 0 || shape.bytes_per_element == 0 || shape.width > now.surface_max_extent ||
      shape.height > now.surface_max_extent || shape.bytes_per_row < tight_row ||
      shape.bytes_per_row > kMaxBytesPerRow || allocation_must_fail("surface")) {
    return nullptr;
  }
  const std::size_t payload = shape.bytes_per_row * shape.height;
  shape.alloc_size = round_up(shape.alloc_size == 0 ? payload : shape.alloc_size, page_size());
  if (shape.alloc_size < payload || shape.alloc_size > kMaxAllocSize) {
    return nullptr;
  }
  const std::size_t mapped = shape.alloc_size + page_size();
  void* bytes = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) {
    return nullptr;
  }
  std::shared_ptr<SurfaceMemory> memory(new SurfaceMemory);
  memory->shape_ = shape;
  memory->bytes_ = static_cast<std::byte*>(bytes);
  memory->mapped_byte_count_ = mapped;
  if (now.poison) {
    std::memset(bytes, 0xFF, payload);
  }
  count_live(Live::kSurface, 1);
  Registry& shared = registry();
  const std::lock_guard lock(shared.mutex);
  memory->identifier_ = shared.next++;
  shared.surfaces[memory->identifier_] = memory;
  return memory;
}

std::shared_ptr<SurfaceMemory> SurfaceMemory::lookup(IOSurfaceID identifier) {
  Registry& shared = registry();
  const std::lock_guard lock(shared.mutex);
  const auto found = shared.surfaces.find(identifier);
  return found == shared.surfaces.end() ? nullptr : found->second.lock();
}

SurfaceMemory::~SurfaceMemory() {
  {
    Registry& shared = registry();
    const std::lock_guard lock(shared.mutex);
    shared.surfaces.erase(identifier_);
  }
  munmap(bytes_, mapped_byte_count_);
  count_live(Live::kSurface, -1);
}

bool SurfaceMemory::unlock(bool read_only) noexcept {
  if (!locks_.unlock(read_only)) {
    return false;
  }
  if (!read_only) {
    ++seed_;
  }
  return true;
}

IOSurfaceRef create_surface_object(std::shared_ptr<SurfaceMemory> memory) {
  CoreMLSimulatorSurface* surface = [[CoreMLSimulatorSurface alloc] init];
  surface->memory_ = std::move(memory);
  return reinterpret_cast<IOSurfaceRef>(surface);
}

const std::shared_ptr<SurfaceMemory>& surface_memory(IOSurfaceRef surface) {
  return reinterpret_cast<CoreMLSimulatorSurface*>(surface)->memory_;
}

}  // namespace coremlsim

using coremlsim::surface_memory;

CFTypeID IOSurfaceGetTypeID() { return reinterpret_cast<CFTypeID>([CoreMLSimulatorSurface class]); }

IOSurfaceRef IOSurfaceCreate(CFDictionaryRef properties) {
  coremlsim::SurfaceShape shape;
  shape.width = coremlsim::read_size(properties, kIOSurfaceWidth, 0);
  shape.height = coremlsim::read_size(properties, kIOSurfaceHeight, 0);
  shape.bytes_per_element = coremlsim::read_size(properties, kIOSurfaceBytesPerElement, 1);
  shape.bytes_per_row = coremlsim::read_size(properties, kIOSurfaceBytesPerRow, 0);
  shape.alloc_size = coremlsim::read_size(properties, kIOSurfaceAllocSize, 0);
  shape.format = static_cast<OSType>(coremlsim::read_size(properties, kIOSurfacePixelFormat, 0));
  if (shape.bytes_per_row % coremlsim::kBytesPerRowAlignment != 0) {
    return nullptr;
  }
  auto memory = coremlsim::SurfaceMemory::create(shape);
  return memory == nullptr ? nullptr : coremlsim::create_surface_object(std::move(memory));
}

IOSurfaceRef IOSurfaceLookup(IOSurfaceID identifier) {
  auto memory = coremlsim::SurfaceMemory::lookup(identifier);
  return memory == nullptr ? nullptr : coremlsim::create_surface_object(std::move(memory));
}

IOSurfaceID IOSurfaceGetID(IOSurfaceRef surface) { return surface_memory(surface)->identifier(); }

kern_return_t IOSurfaceLock(IOSurfaceRef surface, IOSurfaceLockOptions options, uint32_t* seed) {
  const auto& memory = surface_memory(surface);
  memory->lock((options & kIOSurfaceLockReadOnly) != 0);
  if (seed != nullptr) {
    *seed = memory->seed();
  }
  return KERN_SUCCESS;
}

kern_return_t IOSurfaceUnlock(IOSurfaceRef surface, IOSurfaceLockOptions options, uint32_t* seed) {
  const auto& memory = surface_memory(surface);
  if (!memory->unlock((options & kIOSurfaceLockReadOnly) != 0)) {
    return coremlsim::kBadArgument;
  }
  if (seed != nullptr) {
    *seed = memory->seed();
  }
  return KERN_SUCCESS;
}

size_t IOSurfaceGetAllocSize(IOSurfaceRef surface) { return surface_memory(surface)->shape().alloc_size; }
size_t IOSurfaceGetWidth(IOSurfaceRef surface) { return surface_memory(surface)->shape().width; }
size_t IOSurfaceGetHeight(IOSurfaceRef surface) { return surface_memory(surface)->shape().height; }
size_t IOSurfaceGetBytesPerElement(IOSurfaceRef surface) { return surface_memory(surface)->shape().bytes_per_element; }
size_t IOSurfaceGetBytesPerRow(IOSurfaceRef surface) { return surface_memory(surface)->shape().bytes_per_row; }
size_t IOSurfaceGetElementWidth(IOSurfaceRef) { return 1; }
size_t IOSurfaceGetElementHeight(IOSurfaceRef) { return 1; }
OSType IOSurfaceGetPixelFormat(IOSurfaceRef surface) { return surface_memory(surface)->shape().format; }
uint32_t IOSurfaceGetSeed(IOSurfaceRef surface) { return surface_memory(surface)->seed(); }
size_t IOSurfaceGetPlaneCount(IOSurfaceRef) { return 0; }

// Stricter than the documentation: the address is only there while the surface is locked.
void* IOSurfaceGetBaseAddress(IOSurfaceRef surface) {
  const auto& memory = surface_memory(surface);
  return memory->is_locked() ? memory->bytes() : nullptr;
}

size_t IOSurfaceGetPropertyMaximum(CFStringRef property) {
  if (coremlsim::same_key(property, kIOSurfaceWidth) || coremlsim::same_key(property, kIOSurfaceHeight)) {
    return coremlsim::options().surface_max_extent;
  }
  if (coremlsim::same_key(property, kIOSurfaceBytesPerRow)) {
    return coremlsim::kMaxBytesPerRow;
  }
  return coremlsim::same_key(property, kIOSurfaceAllocSize) ? coremlsim::kMaxAllocSize : 0;
}

size_t IOSurfaceGetPropertyAlignment(CFStringRef property) {
  if (coremlsim::same_key(property, kIOSurfaceBytesPerRow)) {
    return coremlsim::kBytesPerRowAlignment;
  }
  return coremlsim::same_key(property, kIOSurfaceAllocSize) ? coremlsim::page_size() : 1;
}

size_t IOSurfaceAlignProperty(CFStringRef property, size_t value) {
  return coremlsim::round_up(value, IOSurfaceGetPropertyAlignment(property));
}

void IOSurfaceIncrementUseCount(IOSurfaceRef surface) { ++surface_memory(surface)->use_count; }
void IOSurfaceDecrementUseCount(IOSurfaceRef surface) { --surface_memory(surface)->use_count; }
int32_t IOSurfaceGetUseCount(IOSurfaceRef surface) { return surface_memory(surface)->use_count; }
Boolean IOSurfaceIsInUse(IOSurfaceRef surface) { return surface_memory(surface)->use_count > 0; }
