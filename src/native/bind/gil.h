// Lets other Python threads run while native code works. Instead of nanobind's: a daemon thread that comes back after
// the interpreter ended is stopped by CPython with a forced unwind (before 3.14), which ends the whole process at the
// first noexcept frame. Such a thread sleeps for ever here instead, as CPython 3.14 makes it do. Threads: constructed
// and destroyed on the thread that held the GIL. Ownership: none.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace kvbacking::bind {

class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;
  ~GilReleased() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) ::pause();
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace kvbacking::bind
