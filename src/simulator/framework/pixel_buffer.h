// The simulated CVPixelBuffer: a lock count and attributes over a surface or plain memory.
// Threads: any. Ownership: a buffer shares its surface's memory; the callback of
// foreign bytes runs once, on the release thread.
#pragma once

#include <CoreVideo/CoreVideo.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "framework/lock_count.h"
#include "framework/surface.h"

namespace coremlsim {

// Bytes per pixel of a supported format.
std::optional<std::size_t> pixel_byte_width(OSType format) noexcept;

struct PixelBuffer {
  std::size_t width = 0, height = 0, bytes_per_row = 0;
  OSType format = 0;
  std::shared_ptr<SurfaceMemory> surface;  // null for plain memory
  std::byte* plain = nullptr;
  std::function<void()> release;    // of plain memory, on the release thread
  std::function<void()> give_back;  // to the pool, at once: the next buffer may be asked for in the same breath

  std::byte* bytes() const noexcept { return surface != nullptr ? surface->bytes() : plain; }  // the device's view
  std::size_t byte_count() const noexcept { return bytes_per_row * height; }
  CVReturn lock(bool read_only);
  CVReturn unlock(bool read_only);
  bool is_locked() const noexcept;
  std::uint64_t lock_generation() const noexcept;
  // Called by an array that is made over the buffer: locks after the first such call make the buffer sticky.
  void array_created();
  bool locked_since_first_array() const;

  ~PixelBuffer();

 private:
  LockCount locks_;           // through this buffer; its surface may be locked in other ways too
  mutable std::mutex mutex_;  // guards what follows
  std::optional<std::uint64_t> generation_at_first_array_;
};

// +1; null when the surface's row does not fit the format.
CVPixelBufferRef create_pixel_buffer(std::shared_ptr<SurfaceMemory> surface, std::size_t width, std::size_t height,
                                     OSType format, std::function<void()> give_back);
PixelBuffer& pixel_buffer(CVPixelBufferRef buffer);

}  // namespace coremlsim
