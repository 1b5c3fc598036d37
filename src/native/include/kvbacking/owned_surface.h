// A surface that its user owns: filled under a lock, passed as a model's input without a copy, proposed as a backing,
// or the memory of a cache.
// Threads: any. Mappings, predictions that read it and a prediction that writes it exclude one another: what comes
// second throws Error(kBackingInUse), nothing waits. Ownership: shared_ptr; mappings and the framework's arrays keep
// the memory on their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvbacking/layout.h"

namespace kvbacking {

class OwnedSurface {
 public:
  // Width is the last dimension, height the product of the others. `zeroed`: every byte, else they are undefined.
  // Throws Error(kContract) with the reason when this system allows no such surface, Error(kAllocation).
  static std::shared_ptr<OwnedSurface> create(DType dtype, const std::vector<std::int64_t>& shape, bool zeroed);
  ~OwnedSurface();
  OwnedSurface(const OwnedSurface&) = delete;
  OwnedSurface& operator=(const OwnedSurface&) = delete;

  const Layout& layout() const noexcept;  // rows as far apart as the system made them
  std::uint32_t id() const noexcept;
  std::size_t bytes_per_row() const noexcept;
  std::size_t byte_count() const noexcept;  // gaps between rows included
  // The input that it last was in a prediction: such a surface is not proposed as a backing unless the session allows
  // it. Empty: never.
  std::string input_name() const;

  // Locked for the processor for as long as the mapping lives; no prediction can use the surface meanwhile.
  class Mapping {
   public:
    ~Mapping();
    void* data() const noexcept;
    struct Impl;
    explicit Mapping(std::unique_ptr<Impl> impl);

   private:
    std::unique_ptr<Impl> impl_;
  };
  std::unique_ptr<Mapping> map(bool writable) const;

  struct Impl;  // Objective-C++ side, coreml/owned_surface.mm
  const Impl& impl() const noexcept { return *impl_; }

 private:
  explicit OwnedSurface(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Why this system allows no surface for such an array, or empty.
std::optional<std::string> surface_refusal(DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace kvbacking
