// Strong<T>: one counted reference to an Objective-C object, for the simulator's C++ storage.
// Threads: as the object. Ownership: copies retain, the destructor releases; adopt() takes over a +1 reference.
#pragma once

#import <Foundation/Foundation.h>

#include <utility>

namespace coremlsim {

template <class T>
class Strong {
 public:
  Strong() = default;
  Strong(T object) : object_([object retain]) {}  // NOLINT: implicit, as assignment from a borrowed object reads well
  Strong(const Strong& other) : object_([other.object_ retain]) {}
  Strong(Strong&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Strong& operator=(Strong other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Strong() { [object_ release]; }
  static Strong adopt(T object) {
    Strong result;
    result.object_ = object;
    return result;
  }
  T get() const { return object_; }
  T borrow() const { return [[object_ retain] autorelease]; }
  explicit operator bool() const { return object_ != nil; }

 private:
  T object_ = nil;
};

}  // namespace coremlsim
