#include "kernels/device/trace.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/process/steady_time.hpp"

namespace train::kernels::trace_test {
namespace {

/// When a piece of work ran, by its own account.
struct Ran {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// Works until the clock has moved on, and notes when.
Stream::Work work_noted_in(Ran& ran) {
  return [&ran] {
    ran.begin_ns = steady_now_ns();
    do {
      ran.end_ns = steady_now_ns();
    } while (ran.end_ns == ran.begin_ns);
  };
}

bool covers(const TraceRecord& record, const Ran& ran) {
  return record.begin_ns <= ran.begin_ns && ran.end_ns <= record.end_ns;
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
  Ran before;
  stream->mark({.what = "before"});
  stream->enqueue(work_noted_in(before));
  stream->synchronize();
  CHECK(stream->trace().records.empty());  // off until asked for

  const std::int64_t begin = steady_now_ns();
  std::array<Ran, 6> ran;  // Two of each unit.
  stream->start_trace(100);
  for (std::size_t i = 0; i < ran.size(); ++i) {
    stream->mark(
        {.what = "forward", .step = 7, .unit = static_cast<std::int32_t>(i / 2), .lane = 2});
    stream->enqueue(work_noted_in(ran.at(i)));
  }
  stream->synchronize();
  const Trace trace = stream->trace();
  CHECK(trace.dropped == 0);
  std::int64_t last = begin;
  for (const TraceRecord& record : trace.records) {
    CHECK(record.begin_ns >= last);
    CHECK(record.end_ns > record.begin_ns);
    CHECK_FALSE(record.waited);
    CHECK(record.mark.what == std::string("forward"));
    CHECK(record.mark.step == 7);
    CHECK(record.mark.lane == 2);
    last = record.end_ns;
  }
  CHECK(last <= steady_now_ns());
  for (std::size_t i = 0; i < ran.size(); ++i) {
    CHECK(std::count_if(trace.records.begin(), trace.records.end(), [&](const TraceRecord& record) {
            return covers(record, ran.at(i)) &&
                   record.mark.unit == static_cast<std::int32_t>(i / 2);
          }) == 1);
  }
}

TEST_CASE("trace: blocking for another stream is not work", "[kernels][trace]") {
  const auto first = make_thread_stream("first", 1);
  const auto second = make_thread_stream("second", 1);
  second->start_trace(100);
  std::promise<void> release;
  first->enqueue([let = release.get_future().share()] { let.wait(); });
  const Event event = Event::record(*first);
  Ran before;
  Ran after;
  second->mark({.what = "copy"});
  second->enqueue(work_noted_in(before));
  event.wait_on(*second);
  second->enqueue(work_noted_in(after));
  while (!second->waits()) {
    std::this_thread::yield();
  }
  const std::int64_t waiting_ns = steady_now_ns();
  release.set_value();
  second->synchronize();
  const Trace trace = second->trace();
  std::vector<TraceRecord> waits;
  std::vector<TraceRecord> works;
  for (const TraceRecord& record : trace.records) {
    (record.waited ? waits : works).push_back(record);
  }
  REQUIRE(waits.size() == 1);
  CHECK(covers(waits.front(), {waiting_ns, waiting_ns}));
  CHECK(waits.front().begin_ns >= before.end_ns);
  CHECK(waits.front().end_ns <= after.begin_ns);
  for (const Ran& ran : {before, after}) {
    CHECK(std::any_of(works.begin(), works.end(),
                      [&](const TraceRecord& record) { return covers(record, ran); }));
  }
}

}  // namespace
}  // namespace train::kernels::trace_test
