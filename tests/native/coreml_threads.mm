// Many threads on one session, many sessions on one model, steady live counts, and a child after fork().
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "coreml_support.h"

using namespace kvbacking;
using namespace kvbacking::test;

TEST_CASE("eight threads on one session never see each other's bytes") {
  const auto model = load("projection.mlpackage");
  std::vector<std::vector<_Float16>> expected;
  for (int seed = 0; seed < 8; ++seed) expected.push_back(control_values(*model, Features(seed), "cross_k"));
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    CAPTURE(mechanism_name(mechanism));
    SessionOptions options = options_for(mechanism);
    options.depth = 3;
    const auto session = Session::create(model, projection_contract(), options);
    std::atomic<int> wrong{0}, done{0}, other{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const Features features(t);
        for (int i = 0; i < 40;) {
          try {
            const auto prediction = session->predict(features.inputs());
            if (!same_bytes(values_of(*prediction, "cross_k"), expected[static_cast<std::size_t>(t)]))
              wrong.fetch_add(1);
            done.fetch_add(1);
            ++i;
          } catch (const Error& error) {
            if (error.code() != ErrorCode::kBackingInUse) {
              other.fetch_add(1);
              ++i;
            }
            std::this_thread::yield();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(other == 0);
    CHECK(done == 320);
    CHECK(session->stats().predictions == 320);
  }
}

TEST_CASE("sessions on one model wait for each other and do not mix") {
  const auto model = load("projection.mlpackage");
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const Features features(t);
      const auto expected = control_values(*model, features, "cross_v");
      const auto session = Session::create(model, projection_contract(),
                                           options_for(t % 2 == 0 ? Mechanism::kRaw : Mechanism::kSurface));
      for (int i = 0; i < 40; ++i) {
        if (!same_bytes(values_of(*session->predict(features.inputs()), "cross_v"), expected)) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("live counts are steady over many predictions") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : {Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool, Mechanism::kFramework}) {
    CAPTURE(mechanism_name(mechanism));
    const auto session = Session::create(model, projection_contract(), options_for(mechanism, Verify::kLayout));
    const auto run = [&](int count) {
      for (int i = 0; i < count; ++i) session->predict(Features(i % 3).inputs());
    };
    run(50);
    // Deallocators run on another thread: the counts at rest are what must not grow. An input pool keeps a few buffers.
    constexpr std::int64_t kPooled = 10;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto before = live_counts();
    run(300);
    std::string grown;
    const auto is_steady = [&] {
      run(1);
      grown.clear();
      for (const auto& [name, count] : live_counts()) {
        const bool pooled = name == "input" || name == "allocation";
        if (count <= before.at(name) + (pooled ? kPooled : 2)) continue;
        grown += name + " " + std::to_string(before.at(name)) + " -> " + std::to_string(count) + "; ";
      }
      return grown.empty();
    };
    CHECK(eventually(is_steady));
    CAPTURE(grown);
    CHECK(grown == "");
  }
}

TEST_CASE("a child after fork() is refused and can end") {
  const auto model = load("projection.mlpackage");
  auto session = Session::create(model, projection_contract(), options_for(Mechanism::kSurface));
  auto prediction = session->predict(Features(1).inputs());
  auto view = prediction->view("cross_k");
  const pid_t child = fork();
  if (child == 0) {
    bool refused = false;
    try {
      session->predict(Features(1).inputs());
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::kUnsupportedPlatform;
    }
    view.reset();
    prediction.reset();
    session.reset();
    _exit(refused ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  CHECK(eventually([&] { return waitpid(child, &status, WNOHANG) == child; }));
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  view.reset();
  CHECK(session->predict(Features(2).inputs())->path() == Path::kBacking);
}
