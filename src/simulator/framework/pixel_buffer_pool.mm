// The simulated CVPixelBufferPool. A surface is handed out again only when nobody refers to it and nobody uses it.
// Threads: any, under the pool's mutex. Ownership: buffers keep the pool's core alive, so the pool may go first.
#include <CoreVideo/CoreVideo.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/control.h"
#include "framework/faults.h"
#include "framework/pixel_buffer.h"
#include "framework/strong.h"

const CFStringRef kCVPixelBufferPoolMinimumBufferCountKey = (CFStringRef) @"MinimumBufferCount";
const CFStringRef kCVPixelBufferPoolMaximumBufferAgeKey = (CFStringRef) @"MaximumBufferAge";
const CFStringRef kCVPixelBufferPoolAllocationThresholdKey = (CFStringRef) @"BufferPoolAllocationThreshold";

namespace coremlsim {
namespace {

using Clock = std::chrono::steady_clock;

class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  std::size_t width = 0, height = 0, minimum_count = 0;
  OSType format = 0;
  double maximum_age_s = 1.0;  // 0: no ageing
  Strong<NSDictionary*> buffer_attributes;

  CVReturn create(std::size_t threshold, CVPixelBufferRef* out) {
    const std::lock_guard lock(mutex_);
    drop_aged();
    std::shared_ptr<SurfaceMemory> surface = take_free();
    if (surface == nullptr) {
      if (threshold != 0 && lent_ + returned_.size() >= threshold) {
        return kCVReturnWouldExceedAllocationThreshold;
      }
      surface = create_surface();
      if (surface == nullptr) {
        return kCVReturnPoolAllocationFailed;
      }
    }
    // The buffer's own reference has gone when it comes back; `surface` is what the pool lends and takes again.
    auto self = shared_from_this();
    *out = create_pixel_buffer(surface, width, height, format,
                               [self, surface]() mutable { self->take_back(std::move(surface)); });
    if (*out == nullptr) {
      return kCVReturnPoolAllocationFailed;
    }
    ++lent_;
    return kCVReturnSuccess;
  }

  void flush(bool excess) {
    const std::lock_guard lock(mutex_);
    drop_aged();
    if (excess) {
      std::erase_if(returned_, [](const Returned& entry) { return entry.is_free(); });
    }
  }

 private:
  struct Returned {
    std::shared_ptr<SurfaceMemory> surface;
    Clock::time_point since;
    bool is_free() const { return surface.use_count() == 1 && surface->use_count <= 0; }
  };

  std::shared_ptr<SurfaceMemory> create_surface() const {
    CVPixelBufferRef made = nullptr;
    auto* attributes = reinterpret_cast<CFDictionaryRef>(buffer_attributes.get());
    if (CVPixelBufferCreate(nullptr, width, height, format, attributes, &made) != kCVReturnSuccess) {
      return nullptr;
    }
    auto surface = pixel_buffer(made).surface;
    CVPixelBufferRelease(made);
    return surface;
  }

  std::shared_ptr<SurfaceMemory> take_free() {
    for (auto it = returned_.begin(); it != returned_.end(); ++it) {
      if (it->is_free()) {
        auto surface = std::move(it->surface);
        returned_.erase(it);
        return surface;
      }
    }
    return nullptr;
  }

  void take_back(std::shared_ptr<SurfaceMemory> surface) {
    const std::lock_guard lock(mutex_);
    --lent_;
    returned_.push_back({std::move(surface), Clock::now()});
  }

  void drop_aged() {
    if (maximum_age_s <= 0) {
      return;
    }
    const auto limit =
        Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(maximum_age_s));
    for (auto it = returned_.begin(); it != returned_.end() && lent_ + returned_.size() > minimum_count;) {
      it = it->is_free() && it->since < limit ? returned_.erase(it) : it + 1;
    }
  }

  std::mutex mutex_;
  std::size_t lent_ = 0;
  std::deque<Returned> returned_;
};

NSNumber* number_for(NSDictionary* attributes, CFStringRef key) {
  id value = [attributes objectForKey:reinterpret_cast<NSString*>(const_cast<__CFString*>(key))];
  return [value isKindOfClass:[NSNumber class]] ? static_cast<NSNumber*>(value) : nil;
}

NSDictionary* as_dictionary(CFDictionaryRef attributes) {
  return reinterpret_cast<NSDictionary*>(const_cast<__CFDictionary*>(attributes));
}

}  // namespace
}  // namespace coremlsim

@interface CoreMLSimulatorPool : NSObject {
 @public
  std::shared_ptr<coremlsim::PoolCore> core_;
  coremlsim::Strong<NSDictionary*> attributes_;
}
@end

@implementation CoreMLSimulatorPool
- (void)dealloc {
  coremlsim::count_live(coremlsim::Live::kPool, -1);
  [super dealloc];
}
@end

namespace {
CoreMLSimulatorPool* pool_of(CVPixelBufferPoolRef pool) { return reinterpret_cast<CoreMLSimulatorPool*>(pool); }
}  // namespace

CFTypeID CVPixelBufferPoolGetTypeID() { return reinterpret_cast<CFTypeID>([CoreMLSimulatorPool class]); }
CVPixelBufferPoolRef CVPixelBufferPoolRetain(CVPixelBufferPoolRef pool) {
  return reinterpret_cast<CVPixelBufferPoolRef>([pool_of(pool) retain]);
}
void CVPixelBufferPoolRelease(CVPixelBufferPoolRef pool) { [pool_of(pool) release]; }

CVReturn CVPixelBufferPoolCreate(CFAllocatorRef, CFDictionaryRef pool_attributes, CFDictionaryRef buffer_attributes,
                                 CVPixelBufferPoolRef* out) {
  *out = nullptr;
  NSDictionary* buffers = coremlsim::as_dictionary(buffer_attributes);
  NSNumber* width = coremlsim::number_for(buffers, kCVPixelBufferWidthKey);
  NSNumber* height = coremlsim::number_for(buffers, kCVPixelBufferHeightKey);
  NSNumber* format = coremlsim::number_for(buffers, kCVPixelBufferPixelFormatTypeKey);
  if (width == nil || height == nil || format == nil || !coremlsim::pixel_byte_width([format unsignedIntValue])) {
    return kCVReturnInvalidPixelBufferAttributes;
  }
  if (coremlsim::allocation_must_fail("pool")) {
    return kCVReturnPoolAllocationFailed;
  }
  auto core = std::make_shared<coremlsim::PoolCore>();
  core->width = [width unsignedLongLongValue];
  core->height = [height unsignedLongLongValue];
  core->format = [format unsignedIntValue];
  NSDictionary* pool_options = coremlsim::as_dictionary(pool_attributes);
  if (NSNumber* count = coremlsim::number_for(pool_options, kCVPixelBufferPoolMinimumBufferCountKey)) {
    core->minimum_count = [count unsignedLongLongValue];
  }
  if (NSNumber* age = coremlsim::number_for(pool_options, kCVPixelBufferPoolMaximumBufferAgeKey)) {
    core->maximum_age_s = [age doubleValue];
  }
  // Buffers of a pool always have surfaces here: recycling is about surfaces.
  NSMutableDictionary* complete = [NSMutableDictionary dictionaryWithDictionary:buffers];
  NSString* surface_key = reinterpret_cast<NSString*>(const_cast<__CFString*>(kCVPixelBufferIOSurfacePropertiesKey));
  if ([complete objectForKey:surface_key] == nil) {
    [complete setObject:@{} forKey:surface_key];
  }
  core->buffer_attributes = complete;
  CoreMLSimulatorPool* pool = [[CoreMLSimulatorPool alloc] init];
  pool->core_ = std::move(core);
  pool->attributes_ = pool_options;
  coremlsim::count_live(coremlsim::Live::kPool, 1);
  *out = reinterpret_cast<CVPixelBufferPoolRef>(pool);
  return kCVReturnSuccess;
}

CVReturn CVPixelBufferPoolCreatePixelBuffer(CFAllocatorRef allocator, CVPixelBufferPoolRef pool,
                                            CVPixelBufferRef* out) {
  return CVPixelBufferPoolCreatePixelBufferWithAuxAttributes(allocator, pool, nullptr, out);
}

CVReturn CVPixelBufferPoolCreatePixelBufferWithAuxAttributes(CFAllocatorRef, CVPixelBufferPoolRef pool,
                                                             CFDictionaryRef aux_attributes, CVPixelBufferRef* out) {
  *out = nullptr;
  NSNumber* threshold =
      coremlsim::number_for(coremlsim::as_dictionary(aux_attributes), kCVPixelBufferPoolAllocationThresholdKey);
  return pool_of(pool)->core_->create([threshold unsignedLongLongValue], out);
}

CFDictionaryRef CVPixelBufferPoolGetAttributes(CVPixelBufferPoolRef pool) {
  return reinterpret_cast<CFDictionaryRef>(pool_of(pool)->attributes_.get());
}
CFDictionaryRef CVPixelBufferPoolGetPixelBufferAttributes(CVPixelBufferPoolRef pool) {
  return reinterpret_cast<CFDictionaryRef>(pool_of(pool)->core_->buffer_attributes.get());
}
void CVPixelBufferPoolFlush(CVPixelBufferPoolRef pool, CVPixelBufferPoolFlushFlags flags) {
  pool_of(pool)->core_->flush((flags & kCVPixelBufferPoolFlushExcessBuffers) != 0);
}
