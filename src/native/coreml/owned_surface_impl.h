// The Objective-C++ side of an OwnedSurface.
// Threads: immutable; the surface has its own rules. Ownership: one reference to the surface.
#pragma once

#include <memory>

#include "coreml/surface.h"
#include "kvbacking/owned_surface.h"

namespace kvbacking {

struct OwnedSurface::Impl {
  std::shared_ptr<Surface> surface;
};

}  // namespace kvbacking
