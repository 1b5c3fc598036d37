// The subset of the public CoreVideo API that this project uses (own declarations).
// Threads: any; locks on one pixel buffer must pair with equal flags.
// Ownership: Create functions hand out +1 through their last argument; Retain and Release accept NULL.
#pragma once

#include <IOSurface/IOSurfaceRef.h>

typedef uint64_t CVOptionFlags;
typedef int32_t CVReturn;
typedef struct CF_BRIDGED_TYPE(id) __CVBuffer* CVBufferRef;
typedef CVBufferRef CVImageBufferRef;
typedef CVImageBufferRef CVPixelBufferRef;
typedef struct CF_BRIDGED_TYPE(id) __CVPixelBufferPool* CVPixelBufferPoolRef;
typedef CVOptionFlags CVPixelBufferLockFlags;
enum : CVOptionFlags { kCVPixelBufferLock_ReadOnly = 1 };
typedef CVOptionFlags CVPixelBufferPoolFlushFlags;
enum : CVOptionFlags { kCVPixelBufferPoolFlushExcessBuffers = 1 };
enum : OSType {
  kCVPixelFormatType_OneComponent8 = 0x4C303038,
  kCVPixelFormatType_OneComponent16 = 0x4C303136,
  kCVPixelFormatType_OneComponent16Half = 0x4C303068,
  kCVPixelFormatType_OneComponent32Float = 0x4C303066,
};
enum : CVReturn {
  kCVReturnSuccess = 0,
  kCVReturnError = -6660,
  kCVReturnInvalidArgument = -6661,
  kCVReturnAllocationFailed = -6662,
  kCVReturnUnsupported = -6663,
  kCVReturnInvalidPixelFormat = -6680,
  kCVReturnInvalidSize = -6681,
  kCVReturnInvalidPixelBufferAttributes = -6682,
  kCVReturnPixelBufferNotMetalCompatible = -6684,
  kCVReturnWouldExceedAllocationThreshold = -6689,
  kCVReturnPoolAllocationFailed = -6690,
  kCVReturnInvalidPoolAttributes = -6691,
  kCVReturnRetry = -6692,
};

#pragma clang assume_nonnull begin
CF_EXPORT const CFStringRef kCVPixelBufferPixelFormatTypeKey;
CF_EXPORT const CFStringRef kCVPixelBufferWidthKey;
CF_EXPORT const CFStringRef kCVPixelBufferHeightKey;
CF_EXPORT const CFStringRef kCVPixelBufferBytesPerRowAlignmentKey;
CF_EXPORT const CFStringRef kCVPixelBufferIOSurfacePropertiesKey;
CF_EXPORT const CFStringRef kCVPixelBufferMetalCompatibilityKey;
CF_EXPORT const CFStringRef kCVPixelBufferPoolMinimumBufferCountKey;
CF_EXPORT const CFStringRef kCVPixelBufferPoolMaximumBufferAgeKey;
CF_EXPORT const CFStringRef kCVPixelBufferPoolAllocationThresholdKey;

typedef void (*CVPixelBufferReleaseBytesCallback)(void* _Nullable context, const void* _Nullable base_address);

CF_EXPORT CFTypeID CVPixelBufferGetTypeID(void);
CF_EXPORT CVPixelBufferRef _Nullable CVPixelBufferRetain(CVPixelBufferRef _Nullable buffer);
CF_EXPORT void CVPixelBufferRelease(CVPixelBufferRef _Nullable buffer);
CF_EXPORT CVReturn CVPixelBufferCreate(CFAllocatorRef _Nullable allocator, size_t width, size_t height, OSType format,
                                       CFDictionaryRef _Nullable attributes, CVPixelBufferRef _Nullable* _Nonnull out);
CF_EXPORT CVReturn CVPixelBufferCreateWithBytes(CFAllocatorRef _Nullable allocator, size_t width, size_t height,
                                                OSType format, void* base_address, size_t bytes_per_row,
                                                CVPixelBufferReleaseBytesCallback _Nullable callback,
                                                void* _Nullable context, CFDictionaryRef _Nullable attributes,
                                                CVPixelBufferRef _Nullable* _Nonnull out);
CF_EXPORT CVReturn CVPixelBufferCreateWithIOSurface(CFAllocatorRef _Nullable allocator, IOSurfaceRef surface,
                                                    CFDictionaryRef _Nullable attributes,
                                                    CVPixelBufferRef _Nullable* _Nonnull out);
CF_EXPORT CVReturn CVPixelBufferLockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags flags);
CF_EXPORT CVReturn CVPixelBufferUnlockBaseAddress(CVPixelBufferRef buffer, CVPixelBufferLockFlags flags);
CF_EXPORT size_t CVPixelBufferGetWidth(CVPixelBufferRef buffer);
CF_EXPORT size_t CVPixelBufferGetHeight(CVPixelBufferRef buffer);
CF_EXPORT OSType CVPixelBufferGetPixelFormatType(CVPixelBufferRef buffer);
CF_EXPORT void* _Nullable CVPixelBufferGetBaseAddress(CVPixelBufferRef buffer);
CF_EXPORT size_t CVPixelBufferGetBytesPerRow(CVPixelBufferRef buffer);
CF_EXPORT size_t CVPixelBufferGetDataSize(CVPixelBufferRef buffer);
CF_EXPORT Boolean CVPixelBufferIsPlanar(CVPixelBufferRef buffer);
CF_EXPORT size_t CVPixelBufferGetPlaneCount(CVPixelBufferRef buffer);
CF_EXPORT IOSurfaceRef _Nullable CVPixelBufferGetIOSurface(CVPixelBufferRef _Nullable buffer);

CF_EXPORT CFTypeID CVPixelBufferPoolGetTypeID(void);
CF_EXPORT CVPixelBufferPoolRef _Nullable CVPixelBufferPoolRetain(CVPixelBufferPoolRef _Nullable pool);
CF_EXPORT void CVPixelBufferPoolRelease(CVPixelBufferPoolRef _Nullable pool);
CF_EXPORT CVReturn CVPixelBufferPoolCreate(CFAllocatorRef _Nullable allocator,
                                           CFDictionaryRef _Nullable pool_attributes,
                                           CFDictionaryRef _Nullable buffer_attributes,
                                           CVPixelBufferPoolRef _Nullable* _Nonnull out);
CF_EXPORT CVReturn CVPixelBufferPoolCreatePixelBuffer(CFAllocatorRef _Nullable allocator, CVPixelBufferPoolRef pool,
                                                      CVPixelBufferRef _Nullable* _Nonnull out);
CF_EXPORT CVReturn CVPixelBufferPoolCreatePixelBufferWithAuxAttributes(CFAllocatorRef _Nullable allocator,
                                                                       CVPixelBufferPoolRef pool,
                                                                       CFDictionaryRef _Nullable aux_attributes,
                                                                       CVPixelBufferRef _Nullable* _Nonnull out);
CF_EXPORT CFDictionaryRef _Nullable CVPixelBufferPoolGetAttributes(CVPixelBufferPoolRef pool);
CF_EXPORT CFDictionaryRef _Nullable CVPixelBufferPoolGetPixelBufferAttributes(CVPixelBufferPoolRef pool);
CF_EXPORT void CVPixelBufferPoolFlush(CVPixelBufferPoolRef pool, CVPixelBufferPoolFlushFlags options);
#pragma clang assume_nonnull end
