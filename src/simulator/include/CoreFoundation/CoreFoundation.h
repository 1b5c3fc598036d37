// The few Core Foundation names this project uses, spelled as Apple spells them (own declarations).
// Threads: any. Ownership: Create and Copy return +1, Get returns a borrowed reference.
// On Linux every Core Foundation object is an Objective-C object, so that casts between the two worlds are free.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __APPLE__
#include <MacTypes.h>
#include <os/availability.h>
#else
typedef unsigned char Boolean;
typedef uint32_t OSType;
#endif
#ifndef API_AVAILABLE
#define API_AVAILABLE(...)
#define API_DEPRECATED(...)
#endif

#if __has_feature(objc_bridge_id)
#define CF_BRIDGED_TYPE(T) __attribute__((objc_bridge(T)))
#else
#define CF_BRIDGED_TYPE(T)
#endif
#ifndef CF_RETURNS_RETAINED
#define CF_RETURNS_RETAINED __attribute__((cf_returns_retained))
#endif
#ifdef __cplusplus
#define CF_EXPORT extern "C"
#else
#define CF_EXPORT extern
#endif

typedef const void* CFTypeRef;
typedef const struct CF_BRIDGED_TYPE(NSString) __CFString* CFStringRef;
typedef const struct CF_BRIDGED_TYPE(NSDictionary) __CFDictionary* CFDictionaryRef;
typedef const struct CF_BRIDGED_TYPE(id) __CFAllocator* CFAllocatorRef;
typedef long CFIndex;
typedef unsigned long CFTypeID;

#pragma clang assume_nonnull begin
CF_EXPORT const CFAllocatorRef _Nullable kCFAllocatorDefault;
CF_EXPORT CFTypeRef CFRetain(CFTypeRef object);
CF_EXPORT void CFRelease(CFTypeRef object);
CF_EXPORT CFIndex CFGetRetainCount(CFTypeRef object);
CF_EXPORT CFTypeID CFGetTypeID(CFTypeRef object);
CF_EXPORT Boolean CFEqual(CFTypeRef first, CFTypeRef second);
#pragma clang assume_nonnull end
