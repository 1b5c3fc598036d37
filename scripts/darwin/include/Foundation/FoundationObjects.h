// Macros, base protocols and typedefs (NSObject itself comes with the Objective-C runtime's own headers).
// Threads and ownership: none of their own.
#pragma once

#include <Availability.h>
#include <TargetConditionals.h>
#include <objc/NSObject.h>
#include <objc/objc.h>
#include <objc/runtime.h>
#include <os/availability.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef NS_ASSUME_NONNULL_BEGIN
#define NS_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define NS_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")
#endif
#ifndef NS_ENUM
#define NS_ENUM(_type, _name)                                         \
  enum __attribute__((enum_extensibility(open))) _name : _type _name; \
  enum _name : _type
#endif
#ifndef NS_OPTIONS
#define NS_OPTIONS(_type, _name)                                                 \
  enum __attribute__((flag_enum, enum_extensibility(open))) _name : _type _name; \
  enum _name : _type
#endif
#ifndef NS_NOESCAPE
#define NS_NOESCAPE __attribute__((noescape))
#endif
#ifndef NS_UNAVAILABLE
#define NS_UNAVAILABLE __attribute__((unavailable))
#endif
#ifndef NS_RETURNS_INNER_POINTER
#define NS_RETURNS_INNER_POINTER __attribute__((objc_returns_inner_pointer))
#endif
#ifndef NS_DESIGNATED_INITIALIZER
#define NS_DESIGNATED_INITIALIZER __attribute__((objc_designated_initializer))
#endif
#ifndef NS_REFINED_FOR_SWIFT
#define NS_REFINED_FOR_SWIFT __attribute__((swift_private))
#endif
#ifndef NS_SWIFT_NAME
#define NS_SWIFT_NAME(_name) __attribute__((swift_name(#_name)))
#endif
#ifdef __cplusplus
#define FOUNDATION_EXPORT extern "C"
#else
#define FOUNDATION_EXPORT extern
#endif

#define NSIntegerMax INTPTR_MAX
#define NSUIntegerMax UINTPTR_MAX

NS_ASSUME_NONNULL_BEGIN
@class NSArray<ObjectType>, NSCoder, NSData, NSDictionary<KeyType, ObjectType>, NSError, NSString, NSURL;

static const NSInteger NSNotFound = NSIntegerMax;

typedef struct _NSRange {
  NSUInteger location;
  NSUInteger length;
} NSRange;

typedef NS_ENUM(NSInteger, NSComparisonResult) { NSOrderedAscending = -1L, NSOrderedSame, NSOrderedDescending };

typedef double NSTimeInterval;
typedef NSString* NSErrorDomain;
typedef NSString* NSErrorUserInfoKey;
typedef NSString* NSExceptionName;

typedef struct {
  unsigned long state;
  id __unsafe_unretained _Nullable* _Nullable itemsPtr;
  unsigned long* _Nullable mutationsPtr;
  unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained _Nullable[_Nonnull])buffer
                                    count:(NSUInteger)len;
@end

@protocol NSCopying
- (id)copyWithZone:(nullable struct _NSZone*)zone;
@end

@protocol NSMutableCopying
- (id)mutableCopyWithZone:(nullable struct _NSZone*)zone;
@end

@protocol NSCoding
- (void)encodeWithCoder:(NSCoder*)coder;
- (nullable instancetype)initWithCoder:(NSCoder*)coder;
@end

@protocol NSSecureCoding <NSCoding>
@property(class, readonly) BOOL supportsSecureCoding;
@end

FOUNDATION_EXPORT Class _Nullable NSClassFromString(NSString* aClassName);
FOUNDATION_EXPORT NSString* NSStringFromClass(Class aClass);
NS_ASSUME_NONNULL_END
