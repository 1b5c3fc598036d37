// IOSurface-backed CVPixelBuffers whose rows are an output's last dimension, their pool, and their locks.
// Threads: a surface belongs to one set, which one prediction holds at a time; read locks may be taken from any thread.
// Ownership: shared_ptr to Surface; the MLMultiArray over it retains the pixel buffer for itself.
// Locks are objects whose destructors unlock; none is ever held during a prediction.
#pragma once

#import <CoreVideo/CoreVideo.h>
#import <IOSurface/IOSurface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coreml/counters.h"
#include "coreml/memory_range.h"
#include "coreml/retain_ptr.h"
#include "kvbacking/layout.h"

namespace kvbacking {

struct SurfaceLimits {  // 0: the system names no limit
  std::size_t width = 0, height = 0, bytes_per_row = 0, byte_count = 0;
};
SurfaceLimits surface_limits();

struct SurfaceSpec {
  DType dtype = DType::kFloat16;
  std::vector<std::int64_t> shape;
  std::size_t width() const;   // the last dimension
  std::size_t height() const;  // the product of the others
};
// Why an output cannot live in a surface on this system, or empty.
std::optional<std::string> surface_refusal(const SurfaceSpec& spec);

class Surface {
 public:
  // Throws Error(kAllocation) with the size and the CVReturn.
  static std::shared_ptr<Surface> create(const SurfaceSpec& spec);
  static std::shared_ptr<Surface> adopt(const SurfaceSpec& spec, CfPtr<CVPixelBufferRef> pixel_buffer);

  CVPixelBufferRef pixel_buffer() const noexcept { return pixel_buffer_.get(); }
  IOSurfaceRef io_surface() const noexcept { return CVPixelBufferGetIOSurface(pixel_buffer_.get()); }
  IOSurfaceID id() const noexcept { return id_; }
  const Layout& layout() const noexcept { return layout_; }  // rows as far apart as the system made them
  std::size_t bytes_per_row() const noexcept { return bytes_per_row_; }
  std::size_t byte_count() const noexcept { return bytes_per_row_ * row_count_; }
  // Where it is mapped: to compare addresses, never to read without a lock.
  MemoryRange range(const std::string& name) const;
  // It was passed as this input: whether such a surface may be an output afterwards is disputed, so it is remembered.
  void note_input(const std::string& name);
  std::string input_name() const;  // empty: never

 private:
  friend class SurfaceUse;
  Surface() = default;
  CfPtr<CVPixelBufferRef> pixel_buffer_;
  IOSurfaceID id_ = 0;
  std::uintptr_t address_ = 0;
  Layout layout_;
  std::size_t bytes_per_row_ = 0, row_count_ = 0;
  std::atomic<std::int32_t> uses_{0};  // SurfaceUse
  mutable std::mutex note_mutex_;
  std::string input_name_;
  Counted<Counter::kSurface> counted_;
};

// What a surface is used for right now. Mappings go with mappings, inputs with inputs, an output is alone.
enum class SurfaceRole { kMapped, kInput, kOutput };
class SurfaceUse {
 public:
  // Throws Error(kBackingInUse), its message beginning with `what`, when another role holds the surface.
  SurfaceUse(std::shared_ptr<Surface> surface, SurfaceRole role, const std::string& what);
  ~SurfaceUse();
  SurfaceUse(SurfaceUse&&) noexcept = default;
  SurfaceUse& operator=(SurfaceUse&&) = delete;

 private:
  std::shared_ptr<Surface> surface_;
  SurfaceRole role_;
};

// At most `threshold` buffers exist at a time; beyond it create() throws Error(kBackingInUse).
class SurfacePool {
 public:
  SurfacePool(const SurfaceSpec& spec, std::size_t threshold);
  std::shared_ptr<Surface> create() const;

 private:
  SurfaceSpec spec_;
  std::size_t threshold_;
  CfPtr<CVPixelBufferPoolRef> pool_;
  RetainPtr<NSDictionary*> aux_attributes_;
  Counted<Counter::kPool> counted_;
};

// Read access through the pixel buffer. Throws Error(kPrediction) when the lock is refused.
class PixelReadLock {
 public:
  explicit PixelReadLock(CfPtr<CVPixelBufferRef> pixel_buffer);
  ~PixelReadLock();
  PixelReadLock(const PixelReadLock&) = delete;
  PixelReadLock& operator=(const PixelReadLock&) = delete;
  const void* data() const noexcept { return data_; }
  std::size_t byte_count() const noexcept { return byte_count_; }

 private:
  CfPtr<CVPixelBufferRef> pixel_buffer_;
  const void* data_ = nullptr;
  std::size_t byte_count_ = 0;
};

// Access through the IOSurface and not the pixel buffer, whose lock could stick to an array that is made over it.
class SurfaceLock {
 public:
  SurfaceLock(const Surface& surface, bool writable);
  ~SurfaceLock();
  SurfaceLock(SurfaceLock&& other) noexcept;
  SurfaceLock& operator=(SurfaceLock&&) = delete;
  void* data() const noexcept { return data_; }

 private:
  IOSurfaceRef surface_;  // null once moved from
  IOSurfaceLockOptions options_;
  void* data_ = nullptr;
};

}  // namespace kvbacking
