#include "kernels/device/stream.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/thread_sleep.hpp"

namespace train::kernels::stream_test {
namespace {

/// Holds a stream at one place until opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

void wait_until(const std::function<bool()>& condition) { REQUIRE(test::comes_true(condition)); }

TEST_CASE("stream: work runs in order, off the caller's thread", "[kernels][stream]") {
  const auto stream = make_thread_stream("order", 2);
  std::vector<int> seen;
  bool elsewhere = true;
  for (int i = 0; i < 2000; ++i) {
    stream->enqueue([&, i, caller = std::this_thread::get_id()] {
      seen.push_back(i);
      elsewhere = elsewhere && std::this_thread::get_id() != caller;
    });
  }
  stream->synchronize();
  REQUIRE(seen.size() == 2000);
  REQUIRE(std::is_sorted(seen.begin(), seen.end()));
  REQUIRE(elsewhere);
  REQUIRE(stream->threads() == 2);
}

TEST_CASE("stream: many threads may enqueue, each keeps its own order", "[kernels][stream]") {
  const auto stream = make_thread_stream("producers", 1);
  std::vector<std::pair<int, int>> seen;
  std::vector<std::thread> producers;
  for (int who = 0; who < 3; ++who) {
    producers.emplace_back([&, who] {
      for (int i = 0; i < 500; ++i) {
        stream->enqueue([&seen, who, i] { seen.emplace_back(who, i); });
      }
    });
  }
  for (std::thread& producer : producers) {
    producer.join();
  }
  stream->synchronize();
  REQUIRE(seen.size() == 1500);
  for (int who = 0; who < 3; ++who) {
    int next = 0;
    for (const auto& [owner, i] : seen) {
      if (owner == who) {
        REQUIRE(i == next++);
      }
    }
  }
}

/// How often the calling thread has given its core away to wait.
long waits_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// Each time it would take a core from the threads that compute.
TEST_CASE("stream: who waits for the last of many items sleeps through those before",
          "[kernels][stream]") {
  constexpr int items = 200;
  const auto stream = make_thread_stream("sleep", 1);
  Gate gate;
  stream->enqueue([&] { gate.pass(); });
  for (int i = 0; i < items; ++i) {
    // Who has been woken by the item before is to sleep again first: so each wake-up counts.
    stream->enqueue([caller = ::gettid()] { (void)test::falls_asleep(caller); });
  }
  gate.open();
  const long before = waits_of_this_thread();
  stream->synchronize();
  REQUIRE(waits_of_this_thread() - before < items / 10);
}

TEST_CASE("stream: several callers wait, each for what was enqueued before it",
          "[kernels][stream]") {
  const auto stream = make_thread_stream("callers", 1);
  std::vector<std::unique_ptr<Gate>> gates;
  std::vector<std::thread> callers;
  std::atomic<int> passed = 0;
  std::atomic<int> returned = 0;
  for (int i = 0; i < 3; ++i) {
    gates.push_back(std::make_unique<Gate>());
    std::atomic<pid_t> thread = 0;
    stream->enqueue([&passed, gate = gates.back().get()] {
      gate->pass();
      ++passed;
    });
    callers.emplace_back([&] {
      thread = ::gettid();
      stream->synchronize();
      ++returned;
    });
    wait_until([&] { return thread != 0 && (test::sleep_of(thread) || returned > 0); });
  }
  for (int i = 0; i < 3; ++i) {
    REQUIRE(returned <= i);
    gates[static_cast<std::size_t>(i)]->open();
    wait_until([&] { return passed > i; });
  }
  wait_until([&] { return returned == 3; });
  for (std::thread& caller : callers) {
    caller.join();
  }
}

TEST_CASE("stream: the destructor runs what is enqueued", "[kernels][stream]") {
  int ran = 0;
  {
    const auto stream = make_thread_stream("destructor", 1);
    for (int i = 0; i < 100; ++i) {
      stream->enqueue([&ran] { ++ran; });
    }
  }
  REQUIRE(ran == 100);
}

TEST_CASE("stream: its thread carries the name and takes no signals", "[kernels][stream]") {
  const auto stream = make_thread_stream("a-name-longer-than-fifteen", 1);
  char name[32] = {};
  sigset_t blocked;
  sigemptyset(&blocked);
  // The name is set by the creator, just after the thread starts.
  wait_until([&] {
    stream->enqueue([&] { pthread_getname_np(pthread_self(), name, sizeof(name)); });
    stream->synchronize();
    return std::string(name) == "a-name-longer-t";
  });
  stream->enqueue([&] { pthread_sigmask(SIG_BLOCK, nullptr, &blocked); });
  stream->synchronize();
  REQUIRE(sigismember(&blocked, SIGTERM) == 1);
  REQUIRE(sigismember(&blocked, SIGINT) == 1);
  sigset_t mine;
  pthread_sigmask(SIG_BLOCK, nullptr, &mine);
  REQUIRE(sigismember(&mine, SIGTERM) == 0);
}

TEST_CASE("stream: the first failure is kept, reported once, and drops what follows",
          "[kernels][stream]") {
  for (const bool inline_stream : {false, true}) {
    const auto stream = inline_stream ? make_inline_stream(1) : make_thread_stream("failing", 1);
    int reports = 0;
    Mark reported;
    std::string text;
    stream->on_failure([&](const StreamFailure& failure) {
      ++reports;
      reported = failure.mark;
      try {
        std::rethrow_exception(failure.error);
      } catch (const std::exception& error) {
        text = error.what();
      }
    });
    bool ran_later = false;
    stream->mark({.what = "backward", .step = 7, .unit = 3, .lane = 1});
    stream->enqueue([] { throw DeviceError("first"); });
    stream->mark({.what = "update", .step = 7, .unit = 3, .lane = 1});
    stream->enqueue([&] { ran_later = true; });
    stream->enqueue([] { throw DeviceError("second"); });
    REQUIRE_THROWS_WITH(stream->synchronize(), "first");
    REQUIRE_THROWS_WITH(stream->synchronize(), "first");
    REQUIRE_FALSE(ran_later);
    REQUIRE(reports == 1);
    REQUIRE(text == "first");
    REQUIRE(std::string(reported.what) == "backward");
    REQUIRE((reported.step == 7 && reported.unit == 3 && reported.lane == 1));
  }
}

TEST_CASE("stream: a handler that comes late still hears of the failure", "[kernels][stream]") {
  for (const bool inline_stream : {false, true}) {
    const auto stream = inline_stream ? make_inline_stream(1) : make_thread_stream("late", 1);
    stream->enqueue([] { throw DeviceError("early"); });
    REQUIRE_THROWS_AS(stream->synchronize(), DeviceError);
    std::atomic<int> reports = 0;
    stream->on_failure([&](const StreamFailure&) { ++reports; });
    wait_until([&] { return reports == 1; });
  }
}

TEST_CASE("stream: current tells the mark reached and since when", "[kernels][stream]") {
  const auto stream = make_thread_stream("marks", 1);
  std::int64_t since_ns = -1;
  REQUIRE(std::string(stream->current(since_ns).what) == "idle");
  REQUIRE(since_ns == 0);
  Gate first;
  Gate second;
  stream->mark({.what = "forward", .step = 1});
  stream->enqueue([&] { first.pass(); });
  stream->mark({.what = "backward", .step = 1});
  stream->enqueue([&] { second.pass(); });
  wait_until([&] { return std::string(stream->current(since_ns).what) == "forward"; });
  REQUIRE(since_ns > 0);
  const std::int64_t forward_since_ns = since_ns;
  first.open();
  wait_until([&] { return std::string(stream->current(since_ns).what) == "backward"; });
  REQUIRE(since_ns >= forward_since_ns);
  second.open();
  stream->synchronize();
  wait_until([&] {
    stream->current(since_ns);
    return since_ns == 0;
  });
}

TEST_CASE("event: work on another stream waits for it, the caller does not", "[kernels][stream]") {
  const auto compute = make_thread_stream("compute", 1);
  const auto communicate = make_thread_stream("communicate", 1);
  Gate gate;
  std::atomic<int> value = 0;
  int seen = -1;
  compute->enqueue([&] {
    gate.pass();
    value = 42;
  });
  const Event computed = Event::record(*compute);
  const Event copy = computed;
  copy.wait_on(*communicate);
  communicate->enqueue([&] { seen = value; });
  REQUIRE_FALSE(computed.reached());
  gate.open();
  communicate->synchronize();
  REQUIRE(seen == 42);
  REQUIRE(computed.reached());
  REQUIRE(copy.reached());
}

TEST_CASE("event: one that was never recorded counts as reached", "[kernels][stream]") {
  const Event never;
  REQUIRE(never.reached());
  const auto stream = make_thread_stream("never", 1);
  never.wait_on(*stream);
  stream->synchronize();
}

TEST_CASE("event: the failure of a stream reaches the streams that wait for it",
          "[kernels][stream]") {
  const auto failing = make_thread_stream("failing", 1);
  const auto waiting = make_thread_stream("waiting", 1);
  Gate gate;
  bool updated = false;
  failing->enqueue([&] {
    gate.pass();
    throw DeviceError("no memory");
  });
  const Event event = Event::record(*failing);
  event.wait_on(*waiting);
  waiting->enqueue([&] { updated = true; });
  gate.open();
  REQUIRE_THROWS_AS(waiting->synchronize(), DeviceError);
  REQUIRE_THROWS_WITH(failing->synchronize(), "no memory");
  REQUIRE_FALSE(updated);
  REQUIRE_FALSE(event.reached());
}

TEST_CASE("inline stream: work runs inside enqueue, nested work too", "[kernels][stream]") {
  const auto stream = make_inline_stream(3);
  REQUIRE(stream->threads() == 3);
  std::string order;
  stream->enqueue([&] {
    order += "a";
    stream->enqueue([&] { order += "b"; });
    order += "c";
  });
  REQUIRE(order == "abc");
  const Event event = Event::record(*stream);
  REQUIRE(event.reached());
  event.wait_on(*stream);
  stream->synchronize();
}

TEST_CASE("stream: misuse is caught", "[kernels][stream]") {
  REQUIRE_THROWS_AS(make_thread_stream("none", 0), CheckFailed);
  REQUIRE_THROWS_AS(make_inline_stream(0), CheckFailed);
  const auto stream = make_thread_stream("misuse", 1);
  REQUIRE_THROWS_AS(stream->enqueue(nullptr), CheckFailed);
  stream->enqueue([&] { stream->synchronize(); });
  REQUIRE_THROWS_AS(stream->synchronize(), CheckFailed);
}

}  // namespace
}  // namespace train::kernels::stream_test
