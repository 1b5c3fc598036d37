#import "coreml/autorelease.h"

#import <Foundation/Foundation.h>

namespace kvbacking {
namespace {

thread_local NSAutoreleasePool* held_pool = nil;

}  // namespace

void hold_autorelease_pool(bool hold) {
  if (hold == holds_autorelease_pool()) return;
  if (hold) {
    held_pool = [[NSAutoreleasePool alloc] init];
  } else {
    [held_pool drain];
    held_pool = nil;
  }
}

bool holds_autorelease_pool() noexcept { return held_pool != nil; }

}  // namespace kvbacking
