// The subset of the public IOSurface API that this project uses (own declarations).
// Threads: any; a lock brackets CPU access for coherency, it is not mutual exclusion.
// Ownership: Create, Lookup and Copy return +1.
#pragma once

#include <CoreFoundation/CoreFoundation.h>

#ifdef __APPLE__
#include <mach/kern_return.h>
#else
typedef int kern_return_t;
#define KERN_SUCCESS 0
#endif

typedef struct CF_BRIDGED_TYPE(id) __IOSurface* IOSurfaceRef;
typedef uint32_t IOSurfaceID;
typedef uint32_t IOSurfaceLockOptions;
enum : uint32_t { kIOSurfaceLockReadOnly = 1, kIOSurfaceLockAvoidSync = 2 };

#pragma clang assume_nonnull begin
CF_EXPORT const CFStringRef kIOSurfaceAllocSize;
CF_EXPORT const CFStringRef kIOSurfaceWidth;
CF_EXPORT const CFStringRef kIOSurfaceHeight;
CF_EXPORT const CFStringRef kIOSurfaceBytesPerRow;
CF_EXPORT const CFStringRef kIOSurfaceBytesPerElement;
CF_EXPORT const CFStringRef kIOSurfaceElementWidth;
CF_EXPORT const CFStringRef kIOSurfaceElementHeight;
CF_EXPORT const CFStringRef kIOSurfaceOffset;
CF_EXPORT const CFStringRef kIOSurfaceCacheMode;
CF_EXPORT const CFStringRef kIOSurfacePixelFormat;
CF_EXPORT const CFStringRef kIOSurfaceName API_AVAILABLE(macos(11.0));
CF_EXPORT const CFStringRef kIOSurfacePixelSizeCastingAllowed API_AVAILABLE(macos(10.12));

CF_EXPORT CFTypeID IOSurfaceGetTypeID(void);
CF_EXPORT IOSurfaceRef _Nullable IOSurfaceCreate(CFDictionaryRef properties) CF_RETURNS_RETAINED;
CF_EXPORT IOSurfaceRef _Nullable IOSurfaceLookup(IOSurfaceID identifier) CF_RETURNS_RETAINED;
CF_EXPORT IOSurfaceID IOSurfaceGetID(IOSurfaceRef surface);
CF_EXPORT kern_return_t IOSurfaceLock(IOSurfaceRef surface, IOSurfaceLockOptions options, uint32_t* _Nullable seed);
CF_EXPORT kern_return_t IOSurfaceUnlock(IOSurfaceRef surface, IOSurfaceLockOptions options, uint32_t* _Nullable seed);
CF_EXPORT size_t IOSurfaceGetAllocSize(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetWidth(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetHeight(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetBytesPerElement(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetBytesPerRow(IOSurfaceRef surface);
CF_EXPORT void* IOSurfaceGetBaseAddress(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetElementWidth(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetElementHeight(IOSurfaceRef surface);
CF_EXPORT OSType IOSurfaceGetPixelFormat(IOSurfaceRef surface);
CF_EXPORT uint32_t IOSurfaceGetSeed(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetPlaneCount(IOSurfaceRef surface);
CF_EXPORT size_t IOSurfaceGetPropertyMaximum(CFStringRef property);
CF_EXPORT size_t IOSurfaceGetPropertyAlignment(CFStringRef property);
CF_EXPORT size_t IOSurfaceAlignProperty(CFStringRef property, size_t value);
CF_EXPORT void IOSurfaceIncrementUseCount(IOSurfaceRef surface);
CF_EXPORT void IOSurfaceDecrementUseCount(IOSurfaceRef surface);
CF_EXPORT int32_t IOSurfaceGetUseCount(IOSurfaceRef surface);
CF_EXPORT Boolean IOSurfaceIsInUse(IOSurfaceRef surface);
#pragma clang assume_nonnull end
