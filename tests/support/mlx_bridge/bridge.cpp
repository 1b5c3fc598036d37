// Real mlx.core arrays over foreign memory on MLX's CPU backend, whose own allocator never adopts any.
// Threads: the functions with the GIL; a deleter runs on whichever thread drops the last array, with or without it.
// Ownership: an array's deleter owns the memory (or the imported view) through a native handle.
#include <mlx/allocator.h>
#include <mlx/array.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mx = mlx::core;
namespace nb = nanobind;
using namespace nb::literals;

namespace {

constexpr std::size_t kPage = 16384;

struct Ledger {
  std::atomic<std::int64_t> adoptions{0}, deletions{0}, deletions_with_gil{0};
  std::atomic<std::thread::id> last_deleter{};
};

struct Storage {
  explicit Storage(std::size_t byte_count) : base(std::aligned_alloc(kPage, kPage + rounded(byte_count))) {
    if (base == nullptr) throw std::bad_alloc();
    std::memset(base, 0, kPage + rounded(byte_count));
    // Where MLX's CPU allocator keeps the size of what it allocated itself.
    std::memcpy(data() - sizeof(byte_count), &byte_count, sizeof(byte_count));
  }
  ~Storage() { std::free(base); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  static std::size_t rounded(std::size_t n) { return (n + kPage - 1) / kPage * kPage; }
  std::byte* data() const { return static_cast<std::byte*>(base) + kPage; }

  void* base;
};

// A CPU buffer of MLX is the address of a size that stands right before the elements.
mx::array over(void* data, mx::Shape shape, mx::Dtype dtype, std::shared_ptr<void> owner,
               std::shared_ptr<Ledger> ledger) {
  ledger->adoptions.fetch_add(1);
  mx::allocator::Buffer buffer(static_cast<std::size_t*>(data) - 1);
  auto deleter = [owner = std::move(owner), ledger = std::move(ledger)](mx::allocator::Buffer) mutable {
    if (PyGILState_Check() == 1) ledger->deletions_with_gil.fetch_add(1);
    ledger->last_deleter.store(std::this_thread::get_id());
    owner.reset();
    ledger->deletions.fetch_add(1);
  };
  return mx::array(mx::allocator::Data(buffer, std::move(deleter)), std::move(shape), dtype);
}

class Memory {
 public:
  explicit Memory(std::size_t byte_count)
      : byte_count_(byte_count), storage_(std::make_shared<Storage>(byte_count)), watched_(storage_) {}

  mx::array adopt(const std::vector<int>& shape, mx::Dtype dtype, std::size_t offset) const {
    const auto storage = held();
    std::size_t needed = mx::size_of(dtype);
    for (const int extent : shape) needed *= static_cast<std::size_t>(extent);
    if (offset + needed > byte_count_) throw std::invalid_argument("[Memory.adopt] the array does not fit");
    return over(storage->data() + offset, mx::Shape(shape.begin(), shape.end()), dtype, storage, ledger);
  }

  nb::object bytes() const {
    auto keep = std::make_unique<std::shared_ptr<Storage>>(held());
    std::byte* const data = (*keep)->data();
    const nb::capsule owner(keep.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<Storage>*>(p); });
    keep.release();
    return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(data, {byte_count_}, owner));
  }

  void release() { storage_.reset(); }
  bool alive() const { return !watched_.expired(); }

  // With the GIL held, so that a deleter that wanted it could not run.
  bool wait_for_deletions(std::int64_t count, double timeout_s) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
    while (ledger->deletions.load() < count) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  const std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();

 private:
  std::shared_ptr<Storage> held() const {
    if (storage_ == nullptr) throw std::invalid_argument("[Memory] released");
    return storage_;
  }

  std::size_t byte_count_;
  std::shared_ptr<Storage> storage_;
  std::weak_ptr<Storage> watched_;
};

mx::Dtype dtype_of(nb::dlpack::dtype given) {
  for (const auto& [known, dtype] :
       {std::pair{nb::dlpack::dtype{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1}, mx::float16},
        std::pair{nb::dtype<float>(), mx::float32}, std::pair{nb::dtype<std::int32_t>(), mx::int32},
        std::pair{nb::dtype<std::int8_t>(), mx::int8}}) {
    if (given == known) return dtype;
  }
  throw std::invalid_argument("[adopt] element type is not float16, float32, int32 or int8");
}

const std::shared_ptr<Ledger> views = std::make_shared<Ledger>();

using View = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// As mlx.core.asarray(view, copy=False) does on Metal: the deleter owns nanobind's handle, which takes the GIL itself
// to let go of the exporter.
mx::array adopt(const View& view) {
  mx::Shape shape;
  for (std::size_t i = 0; i < view.ndim(); ++i) shape.push_back(static_cast<mx::ShapeElem>(view.shape(i)));
  return over(const_cast<void*>(view.data()), std::move(shape), dtype_of(view.dtype()), std::make_shared<View>(view),
              views);
}

}  // namespace

NB_MODULE(_mlx_bridge, m) {
  nb::module_::import_("mlx.core");
  nb::class_<Memory>(m, "Memory")
      .def(nb::init<std::size_t>(), "byte_count"_a)
      .def("adopt", &Memory::adopt, "shape"_a, "dtype"_a, "offset"_a = 0)
      .def("bytes", &Memory::bytes)
      .def("release", &Memory::release)
      .def_prop_ro("alive", &Memory::alive)
      .def_prop_ro("deletions", [](const Memory& self) { return self.ledger->deletions.load(); })
      .def_prop_ro("deletions_with_gil", [](const Memory& self) { return self.ledger->deletions_with_gil.load(); })
      .def_prop_ro("deleted_on_this_thread",
                   [](const Memory& self) { return self.ledger->last_deleter.load() == std::this_thread::get_id(); })
      .def("wait_for_deletions", &Memory::wait_for_deletions, "count"_a, "timeout_s"_a);
  m.def("adopt", &adopt, "view"_a);
  m.def("adopted_views", [] { return views->adoptions.load() - views->deletions.load(); });
}
