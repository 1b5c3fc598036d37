#include "bind/reaper.h"

#include <atomic>

namespace nb = nanobind;

namespace kvbacking::bind {
namespace {

struct Node {
  PyObject* object;
  Node* next;
};

std::atomic<Node*> head{nullptr};
std::atomic<std::int64_t> pending{0};

// Allocated while the GIL is held, so that letting go needs no memory and cannot fail.
void push(Node* node) noexcept {
  node->next = head.load(std::memory_order_relaxed);
  while (!head.compare_exchange_weak(node->next, node, std::memory_order_release, std::memory_order_relaxed)) {
  }
  pending.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

std::shared_ptr<void> own(nb::object object) {
  auto node = std::make_unique<Node>(Node{object.ptr(), nullptr});
  std::shared_ptr<void> owner(node.get(), [](void* p) noexcept { push(static_cast<Node*>(p)); });
  object.release();
  node.release();
  return owner;
}

void drain_reaper() {
  // Taking the whole list at once leaves no node for another thread to free under us (no ABA).
  Node* node = head.exchange(nullptr, std::memory_order_acquire);
  while (node != nullptr) {
    Node* next = node->next;
    Py_DECREF(node->object);
    delete node;
    pending.fetch_sub(1, std::memory_order_relaxed);
    node = next;
  }
}

std::int64_t reaper_pending_count() noexcept { return pending.load(std::memory_order_relaxed); }

}  // namespace kvbacking::bind
