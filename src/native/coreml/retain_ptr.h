// Owning pointers to Objective-C and Core Foundation objects: the only place with retain and release (no ARC on Linux).
// Threads: as shared_ptr: one pointer object belongs to one thread at a time, the object behind it to whoever says so.
// Ownership: adopt() takes a +1 result (alloc/init, new, copy, Create), retain() adds one to a borrowed object.
#pragma once

#import <CoreFoundation/CoreFoundation.h>
#import <Foundation/Foundation.h>

#include <utility>

#if __has_feature(objc_arc)
#error "manual retain/release: compile with -fno-objc-arc"
#endif

namespace kvbacking {

template <class T>  // an Objective-C pointer type: MLModel *, id<MLFeatureProvider>
class RetainPtr {
 public:
  RetainPtr() = default;
  static RetainPtr adopt(T object) noexcept { return RetainPtr(object); }
  static RetainPtr retain(T object) { return RetainPtr((T)[(id)object retain]); }
  RetainPtr(const RetainPtr& other) : object_((T)[(id)other.object_ retain]) {}
  RetainPtr(RetainPtr&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  RetainPtr& operator=(RetainPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~RetainPtr() { [(id)object_ release]; }
  T get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nil; }
  T leak() noexcept { return std::exchange(object_, nil); }  // gives the +1 away, for good

 private:
  explicit RetainPtr(T object) noexcept : object_(object) {}
  T object_ = nil;
};

template <class T>
RetainPtr<T> adopt(T object) noexcept {
  return RetainPtr<T>::adopt(object);
}
template <class T>
RetainPtr<T> retain(T object) {
  return RetainPtr<T>::retain(object);
}

template <class T>  // a Core Foundation reference: CVPixelBufferRef, IOSurfaceRef, CVPixelBufferPoolRef
class CfPtr {
 public:
  CfPtr() = default;
  static CfPtr adopt(T object) noexcept { return CfPtr(object); }
  static CfPtr retain(T object) {
    if (object != nullptr) CFRetain(object);
    return CfPtr(object);
  }
  CfPtr(const CfPtr& other) : CfPtr(retain(other.object_)) {}
  CfPtr(CfPtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  CfPtr& operator=(CfPtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~CfPtr() {
    if (object_ != nullptr) CFRelease(object_);
  }
  T get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  explicit CfPtr(T object) noexcept : object_(object) {}
  T object_ = nullptr;
};

}  // namespace kvbacking
