// IOSurface, CVPixelBuffer and CVPixelBufferPool: locks, seeds, limits, recycling.
#include <unistd.h>

#include "simulator_support.h"

using namespace kvb_test;

namespace {

NSDictionary* surface_properties(int width, int height) {
  return @{
    (NSString*)kIOSurfaceWidth : [NSNumber numberWithInt:width],
    (NSString*)kIOSurfaceHeight : [NSNumber numberWithInt:height],
    (NSString*)kIOSurfaceBytesPerElement : @2,
    (NSString*)kIOSurfacePixelFormat : [NSNumber numberWithUnsignedInt:kCVPixelFormatType_OneComponent16Half]
  };
}

CVPixelBufferPoolRef make_pool(int minimum, double age) {
  NSDictionary* pool = @{
    (NSString*)kCVPixelBufferPoolMinimumBufferCountKey : [NSNumber numberWithInt:minimum],
    (NSString*)kCVPixelBufferPoolMaximumBufferAgeKey : [NSNumber numberWithDouble:age]
  };
  NSDictionary* buffers = @{
    (NSString*)kCVPixelBufferWidthKey : @8,
    (NSString*)kCVPixelBufferHeightKey : @6,
    (NSString*)kCVPixelBufferPixelFormatTypeKey : [NSNumber numberWithUnsignedInt:kCVPixelFormatType_OneComponent16Half]
  };
  CVPixelBufferPoolRef result = nullptr;
  REQUIRE(CVPixelBufferPoolCreate(nullptr, (CFDictionaryRef)pool, (CFDictionaryRef)buffers, &result) == 0);
  return result;
}

CVPixelBufferRef take(CVPixelBufferPoolRef pool, int threshold, CVReturn wanted = kCVReturnSuccess) {
  NSDictionary* aux = @{(NSString*)kCVPixelBufferPoolAllocationThresholdKey : [NSNumber numberWithInt:threshold]};
  CVPixelBufferRef buffer = nullptr;
  CHECK(CVPixelBufferPoolCreatePixelBufferWithAuxAttributes(nullptr, pool, (CFDictionaryRef)aux, &buffer) == wanted);
  return buffer;
}

IOSurfaceID identifier(CVPixelBufferRef buffer) { return IOSurfaceGetID(CVPixelBufferGetIOSurface(buffer)); }

}  // namespace

TEST_CASE("a surface is page-aligned; its address is there while locked; writable locks change the seed") {
  const CleanSwitches clean;
  @autoreleasepool {
    IOSurfaceRef surface = IOSurfaceCreate((CFDictionaryRef)surface_properties(8, 6));
    REQUIRE(surface != nullptr);
    CHECK(IOSurfaceGetBytesPerRow(surface) == 128);
    CHECK(IOSurfaceGetAllocSize(surface) % static_cast<size_t>(getpagesize()) == 0);
    CHECK(IOSurfaceGetBaseAddress(surface) == nullptr);
    uint32_t seed = 0;
    CHECK(IOSurfaceLock(surface, kIOSurfaceLockReadOnly, &seed) == KERN_SUCCESS);
    CHECK(reinterpret_cast<uintptr_t>(IOSurfaceGetBaseAddress(surface)) % static_cast<size_t>(getpagesize()) == 0);
    CHECK(IOSurfaceUnlock(surface, kIOSurfaceLockReadOnly, nullptr) == KERN_SUCCESS);
    CHECK(IOSurfaceGetSeed(surface) == seed);
    CHECK(IOSurfaceLock(surface, 0, nullptr) == KERN_SUCCESS);
    CHECK(IOSurfaceLock(surface, 0, nullptr) == KERN_SUCCESS);  // not mutual exclusion
    CHECK(IOSurfaceUnlock(surface, 0, nullptr) == KERN_SUCCESS);
    CHECK(IOSurfaceUnlock(surface, 0, nullptr) == KERN_SUCCESS);
    CHECK(IOSurfaceGetSeed(surface) != seed);
    CHECK(IOSurfaceUnlock(surface, 0, nullptr) != KERN_SUCCESS);
    CHECK(coremlsim::violations()["unpaired_lock"] == 1);
    CFRelease(surface);
  }
}

TEST_CASE("lookup gives another reference to the same memory; use counts are kept") {
  const CleanSwitches clean;
  const auto before = coremlsim::live_counts();
  @autoreleasepool {
    IOSurfaceRef first = IOSurfaceCreate((CFDictionaryRef)surface_properties(8, 6));
    IOSurfaceRef second = IOSurfaceLookup(IOSurfaceGetID(first));
    CHECK(first != second);
    CHECK(CFEqual(first, second));
    IOSurfaceIncrementUseCount(first);
    CHECK(IOSurfaceIsInUse(second));
    IOSurfaceDecrementUseCount(second);
    CHECK_FALSE(IOSurfaceIsInUse(first));
    const IOSurfaceID id = IOSurfaceGetID(first);
    CFRelease(first);
    CFRelease(second);
    CHECK(IOSurfaceLookup(id) == nullptr);
  }
  CHECK(coremlsim::live_counts() == before);
}

TEST_CASE("surfaces have limits") {
  const CleanSwitches clean;
  @autoreleasepool {
    CHECK(IOSurfaceGetPropertyMaximum(kIOSurfaceWidth) == 16384);
    CHECK(IOSurfaceCreate((CFDictionaryRef)surface_properties(8, 16385)) == nullptr);
    CHECK(IOSurfaceCreate((CFDictionaryRef)surface_properties(0, 6)) == nullptr);
    NSMutableDictionary* odd = [NSMutableDictionary dictionaryWithDictionary:surface_properties(8, 6)];
    [odd setObject:@17 forKey:(NSString*)kIOSurfaceBytesPerRow];
    CHECK(IOSurfaceCreate((CFDictionaryRef)odd) == nullptr);
    CVPixelBufferRef buffer = nullptr;
    CHECK(CVPixelBufferCreate(nullptr, 16385, 1, kCVPixelFormatType_OneComponent16Half, nullptr, &buffer) ==
          kCVReturnInvalidSize);
    CHECK(CVPixelBufferCreate(nullptr, 8, 1, 'BGRA', nullptr, &buffer) == kCVReturnInvalidPixelFormat);
    coremlsim::configure(R"({"row_alignment": 16, "row_padding": 0})");
    IOSurfaceRef tight = IOSurfaceCreate((CFDictionaryRef)surface_properties(8, 6));
    CHECK(IOSurfaceGetBytesPerRow(tight) == 16);
    CFRelease(tight);
  }
}

TEST_CASE("pixel buffer locks pair by flags; the address is there while locked") {
  const CleanSwitches clean;
  @autoreleasepool {
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    CHECK(CVPixelBufferGetBaseAddress(buffer) == nullptr);
    CHECK(CVPixelBufferLockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly) == kCVReturnSuccess);
    CHECK(CVPixelBufferGetBaseAddress(buffer) != nullptr);
    CHECK(CVPixelBufferUnlockBaseAddress(buffer, 0) != kCVReturnSuccess);
    CHECK(coremlsim::violations()["unpaired_lock"] == 1);
    CHECK(CVPixelBufferUnlockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly) == kCVReturnSuccess);
    CHECK(CVPixelBufferGetBaseAddress(buffer) == nullptr);
    CHECK(CVPixelBufferGetPlaneCount(buffer) == 0);
    CVPixelBufferRef again = nullptr;
    CHECK(CVPixelBufferCreateWithIOSurface(nullptr, CVPixelBufferGetIOSurface(buffer), nullptr, &again) == 0);
    CHECK(identifier(again) == identifier(buffer));
    CVPixelBufferRelease(buffer);
    CHECK(CVPixelBufferGetWidth(again) == 8);  // the surface lives on
    CVPixelBufferRelease(again);
  }
}

TEST_CASE("a pool recycles what nobody holds or uses, and stops at its threshold") {
  const CleanSwitches clean;
  const auto before = coremlsim::live_counts();
  @autoreleasepool {
    CVPixelBufferPoolRef pool = make_pool(1, 0);
    CVPixelBufferRef first = take(pool, 2);
    CVPixelBufferRef second = take(pool, 2);
    CHECK(take(pool, 2, kCVReturnWouldExceedAllocationThreshold) == nullptr);
    const IOSurfaceID id = identifier(first);
    CVPixelBufferRelease(first);
    CVPixelBufferRef third = take(pool, 2);
    CHECK(identifier(third) == id);
    // A surface that somebody else still holds, or uses, does not come back.
    IOSurfaceRef held = IOSurfaceLookup(id);
    CVPixelBufferRelease(third);
    CHECK(take(pool, 2, kCVReturnWouldExceedAllocationThreshold) == nullptr);
    IOSurfaceIncrementUseCount(held);
    CFRelease(held);
    CHECK(take(pool, 2, kCVReturnWouldExceedAllocationThreshold) == nullptr);
    held = IOSurfaceLookup(id);
    IOSurfaceDecrementUseCount(held);
    CFRelease(held);
    CVPixelBufferRef fourth = take(pool, 2);
    CHECK(identifier(fourth) == id);
    CVPixelBufferPoolRelease(pool);
    CVPixelBufferRelease(second);
    CVPixelBufferRelease(fourth);
  }
  coremlsim::drain_releases(5000);
  CHECK(coremlsim::live_counts() == before);
}

TEST_CASE("a pool drops free buffers by age, and all of them when flushed") {
  const CleanSwitches clean;
  @autoreleasepool {
    CVPixelBufferPoolRef pool = make_pool(0, 0.01);
    CVPixelBufferRelease(take(pool, 0));
    const auto with_one = coremlsim::live_counts()["surface"];
    usleep(30000);
    CVPixelBufferPoolFlush(pool, 0);
    CHECK(coremlsim::live_counts()["surface"] == with_one - 1);
    CVPixelBufferRelease(take(pool, 0));
    CVPixelBufferPoolFlush(pool, kCVPixelBufferPoolFlushExcessBuffers);
    CHECK(coremlsim::live_counts()["surface"] == with_one - 1);
    CVPixelBufferPoolRelease(pool);
  }
}
