#include "kernels/device/trace.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/steady_time.hpp"

namespace train::kernels {
namespace {

using Clock = std::chrono::steady_clock;

void work_a_millisecond() {
  const auto end = Clock::now() + std::chrono::milliseconds(1);
  while (Clock::now() < end) {
  }
}

TEST_CASE("trace: a ring keeps the newest and counts the rest", "[kernels][trace]") {
  TraceRing<int> ring(3);
  CHECK(ring.records().empty());
  for (int i = 0; i < 3; ++i) {
    ring.add(i);
  }
  CHECK(ring.records() == std::vector<int>{0, 1, 2});
  CHECK(ring.dropped() == 0);
  for (int i = 3; i < 10; ++i) {
    ring.add(i);
  }
  CHECK(ring.records() == std::vector<int>{7, 8, 9});
  CHECK(ring.dropped() == 7);
}

TEST_CASE("trace: work under one mark without a pause is one stretch", "[kernels][trace]") {
  StreamTracer tracer(8);
  tracer.begin({.what = "a", .step = 1}, 10);
  tracer.end(20);
  tracer.begin({.what = "a", .step = 1}, 21);
  tracer.end(30);
  tracer.pause();
  tracer.begin({.what = "b", .step = 1}, 40);
  CHECK(tracer.trace(45).records.back().end_ns == 45);  // under way
  tracer.end(50);
  const Trace trace = tracer.trace(99);
  REQUIRE(trace.records.size() == 2);
  CHECK(trace.records[0].mark.what == std::string("a"));
  CHECK(trace.records[0].begin_ns == 10);
  CHECK(trace.records[0].end_ns == 30);
  CHECK(trace.records[1].begin_ns == 40);
  CHECK(trace.records[1].end_ns == 50);
}

TEST_CASE("trace: streams keep what they ran, in order and apart", "[kernels][trace]") {
  const bool threads = GENERATE(true, false);
  const auto stream = threads ? make_thread_stream("traced", 1) : make_inline_stream(1);
  stream->mark({.what = "before"});
  stream->enqueue(work_a_millisecond);
  stream->synchronize();
  CHECK(stream->trace().records.empty());  // off until asked for

  const std::int64_t begin = steady_now_ns();
  stream->start_trace(100);
  for (std::int32_t unit = 0; unit < 3; ++unit) {
    stream->mark({.what = "forward", .step = 7, .unit = unit, .lane = 2});
    stream->enqueue(work_a_millisecond);
    stream->enqueue(work_a_millisecond);
  }
  stream->synchronize();
  const Trace trace = stream->trace();
  CHECK(trace.dropped == 0);
  std::int64_t last = begin;
  std::vector<std::int64_t> by_unit(3, 0);
  for (const TraceRecord& record : trace.records) {
    CHECK(record.begin_ns >= last);
    CHECK(record.end_ns > record.begin_ns);
    CHECK_FALSE(record.waited);
    CHECK(record.mark.what == std::string("forward"));
    CHECK(record.mark.step == 7);
    CHECK(record.mark.lane == 2);
    by_unit.at(static_cast<std::size_t>(record.mark.unit)) += record.end_ns - record.begin_ns;
    last = record.end_ns;
  }
  CHECK(last <= steady_now_ns());
  for (const std::int64_t ns : by_unit) {
    CHECK(ns >= 2'000'000);
  }
}

TEST_CASE("trace: blocking for another stream is not work", "[kernels][trace]") {
  const auto first = make_thread_stream("first", 1);
  const auto second = make_thread_stream("second", 1);
  second->start_trace(100);
  std::promise<void> worked_once;
  std::promise<void> release;
  first->enqueue([let = release.get_future().share()] { let.wait(); });
  const Event event = Event::record(*first);
  second->mark({.what = "copy"});
  second->enqueue([&] {
    work_a_millisecond();
    worked_once.set_value();
  });
  event.wait_on(*second);
  second->enqueue(work_a_millisecond);
  const auto waits = [](const TraceRecord& record) { return record.waited; };
  worked_once.get_future().wait();  // from here on it waits
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  release.set_value();
  second->synchronize();
  const Trace trace = second->trace();
  std::int64_t worked = 0;
  std::int64_t waited = 0;
  for (const TraceRecord& record : trace.records) {
    (record.waited ? waited : worked) += record.end_ns - record.begin_ns;
  }
  CHECK(worked >= 2'000'000);
  CHECK(waited > 0);
  CHECK(std::count_if(trace.records.begin(), trace.records.end(), waits) == 1);
}

}  // namespace
}  // namespace train::kernels
