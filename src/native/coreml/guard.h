// Every call into a framework goes through guarded(): an autorelease pool, and exceptions of either language as values.
// Threads: any. Ownership: none; what the body returns must already be retained.
// NSException becomes Error(code) with its name and reason; an Error thrown inside is thrown again, both only after the
// pool has drained, so that no autoreleased object is lost on the way out.
#pragma once

#import <Foundation/Foundation.h>

#include <exception>
#include <optional>
#include <type_traits>

#import "coreml/autorelease.h"
#include "coreml/nserror.h"
#include "kvbacking/error.h"

namespace kvbacking {

namespace detail {

// C++ exceptions only. Kept apart from the @try, and never catch (...): on Linux that would swallow an NSException.
template <class Body>
__attribute__((noinline)) void run_guarded(Body& body, std::exception_ptr& error) {
  try {
    body();
  } catch (const std::exception&) {
    error = std::current_exception();
  }
}

}  // namespace detail

template <class Body>
auto guarded(const char* place, ErrorCode code, Body&& body) -> std::invoke_result_t<Body&> {
  using Result = std::invoke_result_t<Body&>;
  using Slot = std::conditional_t<std::is_void_v<Result>, char, Result>;
  std::optional<Slot> result;
  std::exception_ptr error;
  auto step = [&] {
    if constexpr (std::is_void_v<Result>) {
      body();
    } else {
      result.emplace(body());
    }
  };
  const auto attempt = [&] {
    @try {
      detail::run_guarded(step, error);
    } @catch (NSException* exception) {
      error = std::make_exception_ptr(exception_error(code, place, exception));
    }
  };
  if (holds_autorelease_pool()) {
    attempt();
  } else {
    @autoreleasepool {
      attempt();
    }
  }
  if (error) std::rethrow_exception(error);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

}  // namespace kvbacking
