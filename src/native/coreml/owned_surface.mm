#import "coreml/owned_surface_impl.h"

#include <cstring>
#include <utility>

#import "coreml/fork.h"
#import "coreml/guard.h"
#import "coreml/inputs.h"
#include "kvbacking/host.h"

namespace kvbacking {

// Members die in reverse: unlocked before another use may begin.
struct OwnedSurface::Mapping::Impl {
  SurfaceUse use;
  SurfaceLock lock;
};

OwnedSurface::Mapping::Mapping(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OwnedSurface::Mapping::~Mapping() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  @autoreleasepool {
    impl_.reset();
  }
}

void* OwnedSurface::Mapping::data() const noexcept { return impl_->lock.data(); }

OwnedSurface::OwnedSurface(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OwnedSurface::~OwnedSurface() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  @autoreleasepool {
    impl_.reset();
  }
}

std::shared_ptr<OwnedSurface> OwnedSurface::create(DType dtype, const std::vector<std::int64_t>& shape, bool zeroed) {
  require_same_process();
  return guarded("surface.create", ErrorCode::kAllocation, [&] {
    const SurfaceSpec spec{dtype, shape};
    if (auto reason = surface_refusal(spec)) {
      throw failures_error(ErrorCode::kContract, "[surface.create] no such surface",
                           {{"surface", "surface_limits", "an array that fits a surface", *reason}});
    }
    auto impl = std::make_unique<Impl>();
    impl->surface = Surface::create(spec);
    if (zeroed) {
      const SurfaceLock lock(*impl->surface, true);
      std::memset(lock.data(), 0, impl->surface->byte_count());
    }
    return std::shared_ptr<OwnedSurface>(new OwnedSurface(std::move(impl)));
  });
}

const Layout& OwnedSurface::layout() const noexcept { return impl_->surface->layout(); }
std::uint32_t OwnedSurface::id() const noexcept { return impl_->surface->id(); }
std::size_t OwnedSurface::bytes_per_row() const noexcept { return impl_->surface->bytes_per_row(); }
std::size_t OwnedSurface::byte_count() const noexcept { return impl_->surface->byte_count(); }
std::string OwnedSurface::input_name() const { return impl_->surface->input_name(); }

std::unique_ptr<OwnedSurface::Mapping> OwnedSurface::map(bool writable) const {
  require_same_process();
  return guarded("surface.map", ErrorCode::kAllocation, [&] {
    SurfaceUse use(impl_->surface, SurfaceRole::kMapped, "[surface.map] the surface");
    auto impl =
        std::unique_ptr<Mapping::Impl>(new Mapping::Impl{std::move(use), SurfaceLock(*impl_->surface, writable)});
    return std::make_unique<Mapping>(std::move(impl));
  });
}

std::optional<std::string> surface_refusal(DType dtype, const std::vector<std::int64_t>& shape) {
  require_same_process();
  return guarded("surface.refusal", ErrorCode::kContract, [&] { return surface_refusal(SurfaceSpec{dtype, shape}); });
}

}  // namespace kvbacking
