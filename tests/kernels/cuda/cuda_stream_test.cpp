// Streams, events, memory and faults of a CUDA device; what they share with the CPU's stays true.
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/process/steady_time.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/device/trace.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/kernels/cuda_fixture.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::kernels::testing::cuda_stream_test {
namespace {

constexpr std::int64_t count = 1 << 16;

TEST_CASE("cuda stream: host work follows what was launched before it", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto stream = make_cuda_stream("cuda");
  const Buffer pinned(count * sizeof(float), "pinned", MemoryKind::pinned);
  auto* values = pinned.as<float>();
  for (int round = 1; round <= 5; ++round) {
    cuda_backend()->fill(
        *stream, {.out = values, .value = 1.0F * static_cast<float>(round), .count = count});
    bool seen = false;
    stream->enqueue([&] { seen = values[count - 1] == static_cast<float>(round); });
    cuda_backend()->fill(*stream, {.out = values, .value = -1.0F, .count = count});
    stream->synchronize();
    CHECK(seen);
    CHECK(values[count - 1] == -1.0F);
  }
}

TEST_CASE("cuda stream: an event orders streams of either device", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto first = make_cuda_stream("first");
  const auto second = make_cuda_stream("second");
  const auto host = make_thread_stream("host", 1);
  const Buffer device(count * sizeof(float), "device", MemoryKind::device);
  const Buffer pinned(count * sizeof(float), "pinned", MemoryKind::pinned);
  const CopyParams copy{.out = pinned.data(), .in = device.data(), .size_bytes = count * 4};
  for (int round = 1; round <= 5; ++round) {
    const auto value = static_cast<float>(round);
    cuda_backend()->fill(*first, {.out = device.as<float>(), .value = value, .count = count});
    const Event filled = Event::record(*first);
    filled.wait_on(*second);
    cuda_backend()->copy(*second, copy);
    const Event copied = Event::record(*second);
    copied.wait_on(*host);
    float seen = 0.0F;
    host->enqueue([&] { seen = pinned.as<float>()[count - 1]; });
    const Event read = Event::record(*host);
    read.wait_on(*first);  // The next round overwrites.
    host->synchronize();
    CHECK(seen == value);
    CHECK(filled.reached());
    CHECK(copied.reached());
  }
  first->synchronize();
}

TEST_CASE("cuda stream: a failure drops what follows and reaches who waits",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto stream = make_cuda_stream("cuda");
  const auto other = make_thread_stream("other", 1);
  const Buffer pinned(sizeof(float), "pinned", MemoryKind::pinned);
  std::atomic<int> reports = 0;
  stream->on_failure([&](const StreamFailure& failure) {
    reports += std::string(failure.mark.what) == "broken" ? 1 : 100;
  });
  stream->mark({.what = "broken"});
  stream->enqueue([] { throw DeviceError("as asked"); });
  cuda_backend()->fill(*stream, {.out = pinned.as<float>(), .value = 1.0F, .count = 1});
  const Event never = Event::record(*stream);
  never.wait_on(*other);
  CHECK_THROWS_WITH(stream->synchronize(), "as asked");
  CHECK_THROWS_AS(other->synchronize(), DeviceError);
  CHECK_FALSE(never.reached());
  CHECK(pinned.as<float>()[0] == 0.0F);
  CHECK(reports == 1);
}

TEST_CASE("cuda stream: a notice holds nothing up, and host work comes after it",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto stream = make_cuda_stream("cuda");
  const Buffer pinned(count * sizeof(float), "pinned", MemoryKind::pinned);
  auto* values = pinned.as<float>();
  const auto fill = [&](float value) {
    cuda_backend()->fill(*stream, {.out = values, .value = value, .count = count});
  };
  std::promise<void> release;
  float noticed = 0.0F;
  std::vector<std::string> order;
  fill(1.0F);
  stream->notify([&, let = release.get_future().share()] {
    noticed = values[count - 1];
    let.wait();
    order.emplace_back("notice");
  });
  const Event launched = Event::record(*stream);
  REQUIRE(test::comes_true(
      [&] { return launched.reached(); }));  // Behind the notice, which has not ended.
  stream->enqueue([&] { order.emplace_back("host work"); });
  stream->notify([&] { order.emplace_back("second notice"); });
  release.set_value();
  stream->synchronize();
  CHECK(noticed == 1.0F);
  CHECK(order == std::vector<std::string>{"notice", "host work", "second notice"});
}

TEST_CASE("cuda stream: what a notice throws or finds fails the stream, under its mark",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto stream = make_cuda_stream("cuda");
  std::promise<std::string> failed;
  stream->on_failure([&](const StreamFailure& failure) { failed.set_value(failure.mark.what); });
  stream->mark({.what = "broken"});
  stream->notify([] { throw DeviceError("as asked"); });
  stream->mark({.what = "later"});
  CHECK(failed.get_future().get() == "broken");
  CHECK_THROWS_WITH(stream->synchronize(), "as asked");
  bool ran = false;
  stream->notify([&] { ran = true; });
  CHECK_THROWS_WITH(stream->synchronize(), "as asked");
  CHECK_FALSE(ran);

  Side side = cuda_side();
  const auto* tokens = side.put(std::vector<std::int32_t>{9});
  const float* weight = side.put(random_values(9 * 4, 1));
  const Buffer out(4 * sizeof(float), "out", MemoryKind::pinned);
  side.kernels.embedding_forward(
      side.stream(),
      {.tokens = tokens, .weight = weight, .out = out.data(), .rows = 1, .cols = 4, .vocab = 9});
  side.stream().notify([&] { ran = true; });
  CHECK_THROWS_WITH(side.stream().synchronize(), Catch::Contains("id 9 at position 0"));
  CHECK_FALSE(ran);
}

TEST_CASE("cuda stream: a trace has the device's times, and the host's work apart",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  constexpr std::int64_t slack_ns = 200'000;  // Between the two clocks.
  const auto clock_moves_on = [](std::int64_t by_ns) {
    return [end_ns = steady_now_ns() + by_ns] { return steady_now_ns() >= end_ns; };
  };
  const auto stream = make_cuda_stream("cuda");
  const auto other = make_cuda_stream("other");
  const Buffer device(count * sizeof(float), "device", MemoryKind::device);
  const auto fill = [&](Stream& on) {
    cuda_backend()->fill(on, {.out = device.as<float>(), .value = 1.0F, .count = count});
  };
  stream->start_trace(100);
  const std::int64_t begin_ns = steady_now_ns();
  stream->mark({.what = "first"});
  fill(*stream);
  stream->mark({.what = "second"});
  fill(*stream);
  stream->enqueue([&] { (void)test::comes_true(clock_moves_on(3'000'000)); });
  fill(*other);
  std::promise<void> release;
  other->enqueue([let = release.get_future().share()] { let.wait(); });
  stream->mark({.what = "third"});
  Event::record(*other).wait_on(*stream);
  fill(*stream);
  CHECK(test::comes_true([&] { return stream->waits(); }));
  CHECK(test::comes_true(clock_moves_on(1'000'000 + 2 * slack_ns)));
  release.set_value();
  stream->synchronize();
  const std::int64_t end_ns = steady_now_ns();
  std::int64_t last_ns = begin_ns - slack_ns;
  std::map<std::string, std::int64_t> total_ns;
  for (const TraceRecord& record : stream->trace().records) {
    CHECK(record.begin_ns >= last_ns);
    CHECK(record.end_ns >= record.begin_ns);
    last_ns = record.end_ns - slack_ns;
    const char* kind = record.waited ? " waits" : (record.host ? " on the host" : "");
    total_ns[record.mark.what + std::string(kind)] += record.end_ns - record.begin_ns;
  }
  CHECK(last_ns <= end_ns);
  CHECK(total_ns.at("first") > 0);
  CHECK(total_ns.at("second") > 0);
  CHECK(total_ns.at("third") > 0);
  CHECK(total_ns.at("second on the host") >= 3'000'000);
  CHECK(total_ns.at("third waits") >= 1'000'000);
}

TEST_CASE("cuda stream: kernels of the CUDA table refuse a stream of the CPU",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto host = make_inline_stream(1);
  float value = 0.0F;
  CHECK_THROWS_WITH(cuda_backend()->fill(*host, {.out = &value, .value = 1.0F, .count = 1}),
                    Catch::Contains("needs a stream of a CUDA device"));
  AttentionForwardParams wide;
  wide.seq_len = wide.heads = 1;
  wide.head_dim = 257;
  CHECK_THROWS_WITH(cuda_backend()->attention_forward(*host, wide),
                    Catch::Contains("head_dim=257 value_dim=257, at most 256"));
}

TEST_CASE("cuda stream: an id outside the vocabulary fails the stream, and the result is nonfinite",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const std::int32_t bad : {-2, 9}) {
    Side side = cuda_side();
    const auto* tokens = side.put(std::vector<std::int32_t>{1, bad, 2});
    const float* weight = side.put(random_values(9 * 4, 1));
    const Buffer out(3 * 4 * sizeof(float), "out", MemoryKind::pinned);
    side.kernels.embedding_forward(
        side.stream(),
        {.tokens = tokens, .weight = weight, .out = out.data(), .rows = 3, .cols = 4, .vocab = 9});
    CHECK_THROWS_WITH(side.stream().synchronize(),
                      Catch::Contains(fmt::format("embedding_forward: id {} at position 1 is "
                                                  "outside the vocabulary of 9",
                                                  bad)));
    CHECK(std::isnan(out.as<float>()[4]));
    CHECK(std::isfinite(out.as<float>()[8]));
  }
  Side side = cuda_side();
  HeadLossParams params{.rows = 2, .cols = 4, .vocab = 9, .chunk_rows = 2};
  const Buffer sums(sizeof(LossSums), "sums", MemoryKind::pinned);
  params.x = side.put(random_values(8, 1));
  params.weight = side.put(random_values(36, 2));
  params.targets = side.put(std::vector<std::int32_t>{3, 9});
  params.sums = sums.as<LossSums>();
  params.logits = side.put(zeros(18));
  params.row_terms = side.put(Exact(8));
  side.kernels.head_loss(side.stream(), params);
  CHECK_THROWS_WITH(side.stream().synchronize(), Catch::Contains("head_loss: id 9 at position 1"));
  CHECK(std::isnan(sums.as<LossSums>()->cross_entropy));
}

TEST_CASE("cuda stream: NaN and Inf come through to the loss", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Side side = cuda_side();
    Values x = random_values(2 * 4, 1);
    x[5] = bad;
    HeadLossParams params{.rows = 2, .cols = 4, .vocab = 300, .chunk_rows = 2};
    const Buffer sums(sizeof(LossSums), "sums", MemoryKind::pinned);
    params.x = side.put(x);
    params.weight = side.put(random_values(4 * 300, 2));
    params.targets = side.put(std::vector<std::int32_t>{3, 4});
    params.sums = sums.as<LossSums>();
    params.logits = side.put(zeros(2 * 300));
    params.row_terms = side.put(Exact(8));
    side.kernels.head_loss(side.stream(), params);
    side.stream().synchronize();
    CHECK_FALSE(std::isfinite(sums.as<LossSums>()->cross_entropy));
  }
}

TEST_CASE("cuda stream: memory is zero-filled, and too much of it is an error",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const auto stream = make_cuda_stream("cuda");
  const Buffer device(count * sizeof(float), "device", MemoryKind::device);
  Values read = untouched_values(count);
  cuda_backend()->copy(*stream, {.out = read.data(), .in = device.data(), .size_bytes = count * 4});
  stream->synchronize();
  CHECK(read == zeros(count));
  CHECK_THROWS_WITH(Buffer(std::size_t{1} << 50U, "huge", MemoryKind::device),
                    Catch::Contains("buffer 'huge': no memory for"));
}

}  // namespace
}  // namespace train::kernels::testing::cuda_stream_test
