// The simulated IOSurface: page-aligned shared memory with locks, a seed and a use count.
// Threads: any; counters are atomic. Ownership: IOSurface objects share one SurfaceMemory per surface, so that a
// surface that was looked up is another object over the same memory.
#pragma once

#import <Foundation/Foundation.h>
#include <IOSurface/IOSurface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "framework/lock_count.h"

namespace coremlsim {

struct SurfaceShape {
  std::size_t width = 0, height = 0, bytes_per_element = 1, bytes_per_row = 0, alloc_size = 0;
  OSType format = 0;
};

class SurfaceMemory {
 public:
  // bytes_per_row 0: the options decide. Null when a property is beyond its maximum or memory cannot be had.
  static std::shared_ptr<SurfaceMemory> create(SurfaceShape shape);
  static std::shared_ptr<SurfaceMemory> lookup(IOSurfaceID identifier);
  ~SurfaceMemory();
  SurfaceMemory(const SurfaceMemory&) = delete;
  SurfaceMemory& operator=(const SurfaceMemory&) = delete;

  const SurfaceShape& shape() const noexcept { return shape_; }
  IOSurfaceID identifier() const noexcept { return identifier_; }
  std::byte* bytes() const noexcept { return bytes_; }                           // the device's view: no lock needed
  std::size_t mapped_byte_count() const noexcept { return mapped_byte_count_; }  // with slack behind the payload

  void lock(bool read_only) noexcept { locks_.lock(read_only); }
  bool unlock(bool read_only) noexcept;  // false: no such lock is held
  bool is_locked() const noexcept { return locks_.is_locked(); }
  std::uint32_t seed() const noexcept { return seed_; }
  void device_wrote() noexcept { ++seed_; }
  std::uint64_t lock_generation() const noexcept { return locks_.generation(); }  // CPU locks taken so far
  std::atomic<std::int32_t> use_count{0};

 private:
  SurfaceMemory() = default;
  SurfaceShape shape_;
  IOSurfaceID identifier_ = 0;
  std::byte* bytes_ = nullptr;
  std::size_t mapped_byte_count_ = 0;
  LockCount locks_;
  std::atomic<std::uint32_t> seed_{1};
};

// +1; a new IOSurface object over this memory.
IOSurfaceRef create_surface_object(std::shared_ptr<SurfaceMemory> memory);
const std::shared_ptr<SurfaceMemory>& surface_memory(IOSurfaceRef surface);

}  // namespace coremlsim
