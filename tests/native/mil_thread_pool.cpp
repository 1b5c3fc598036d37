// The engine's thread pool: every index once, exceptions come back, concurrent callers, and a forked child.
// Threads: as each case says.
// Ownership: test-local pools.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mil/program/thread_pool.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVB_THREAD_SANITIZER 1
#endif
#endif

namespace {

using coremlsim::mil::ThreadPool;

// How often each index of [0, count) was visited.
std::vector<int> visits(ThreadPool& pool, std::int64_t count, std::int64_t grain) {
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
  pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)].fetch_add(1);
  });
  return {seen.begin(), seen.end()};
}

}  // namespace

TEST_CASE("every index is visited once") {
  ThreadPool pool(3);
  for (const std::int64_t count : {0, 1, 7, 1000}) {
    for (const std::int64_t grain : {0, 1, 3, 5000}) {
      CHECK(visits(pool, count, grain) == std::vector<int>(static_cast<std::size_t>(count), 1));
    }
  }
}

TEST_CASE("an exception reaches the caller, and the pool works on") {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    CHECK_THROWS_AS(pool.parallel_for(100, 1,
                                      [](std::int64_t begin, std::int64_t) {
                                        if (begin == 50) throw std::runtime_error("fifty");
                                      }),
                    std::runtime_error);
  }
  CHECK(visits(pool, 100, 1) == std::vector<int>(100, 1));
}

TEST_CASE("several callers at once") {
  ThreadPool pool(2);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) wrong += visits(pool, 64, 4) != std::vector<int>(64, 1);
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

#ifndef KVB_THREAD_SANITIZER  // which does not follow a fork of a process with threads
TEST_CASE("a forked child has no workers and still finishes") {
  auto* const pool = new ThreadPool(2);
  CHECK(visits(*pool, 100, 1) == std::vector<int>(100, 1));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang is a failure
    const bool good = visits(*pool, 100, 1) == std::vector<int>(100, 1);
    delete pool;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  delete pool;
}
#endif
