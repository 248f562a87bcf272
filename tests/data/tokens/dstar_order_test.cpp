#include "data/tokens/dstar_order.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "tests/storage/number_list.hpp"

using namespace train;
using namespace train::data;

namespace {

DstarOrder order_of(const std::vector<std::uint64_t>& tokens, const DstarOrder::Options& options) {
  std::vector<DstarOrder::File> files;
  for (const std::uint64_t count : tokens) {
    files.push_back({"train.bin", count});
  }
  auto order = DstarOrder::make(files, options);
  REQUIRE(order);
  return std::move(order).value();
}

}  // namespace

TEST_CASE("dstar_order: rows lie where the reference's readers draw them",
          "[data][dstar_order][ST-10]") {
  const nlohmann::json cases = test::read_fixture("dstar_order.json");
  REQUIRE(cases.size() == 9);
  for (const auto& expected : cases) {
    const auto tokens = expected.at("tokens").get<std::vector<std::uint64_t>>();
    const DstarOrder::Options options{.seed = expected.at("seed"),
                                      .sequence_length = expected.at("length"),
                                      .micro_batch = expected.at("rows")};
    CAPTURE(tokens, options.sequence_length, options.micro_batch);
    const DstarOrder order = order_of(tokens, options);
    CHECK(order.batches() == expected.at("epoch").get<std::uint64_t>());
    const auto batches = expected.at("batches").get<std::uint64_t>();
    REQUIRE(batches > 3 * order.batches());
    std::vector<std::uint64_t> flat;
    for (std::uint64_t batch = 0; batch < batches; ++batch) {
      for (std::uint64_t row = 0; row < options.micro_batch; ++row) {
        const DstarOrder::Place place = order.place(batch, row);
        CHECK(place.token + options.sequence_length < tokens[place.file]);
        flat.push_back(place.file);
        flat.push_back(place.token);
      }
    }
    test::check_numbers(flat, expected.at("places"));
  }
}

TEST_CASE("dstar_order: the published permutation of a thousand sequences",
          "[data][dstar_order][ST-10]") {
  // (N - T - 1) / T - 1 = 1000 sequences of 2048; seed 1337 for epoch 0, 1338 for epoch 1.
  const DstarOrder order =
      order_of({2048 * 1002 + 1}, {.seed = 1337, .sequence_length = 2048, .micro_batch = 8});
  const auto check = [&](std::uint64_t batch, const std::vector<std::uint64_t>& sequences,
                         std::uint64_t offset) {
    for (std::uint64_t row = 0; row < 8; ++row) {
      CHECK(order.place(batch, row).token == sequences[row] * 2048 + offset);
    }
  };
  REQUIRE(order.batches() == 125);
  check(0, {307, 681, 275, 939, 891, 212, 477, 225}, 1040);
  check(125, {485, 480, 386, 911, 380, 239, 524, 851}, 1020);
}

TEST_CASE("dstar_order: does not depend on what was read before", "[data][dstar_order][ST-10]") {
  const std::vector<std::uint64_t> tokens =
      GENERATE(std::vector<std::uint64_t>{700}, std::vector<std::uint64_t>{300, 500});
  const DstarOrder::Options options{.seed = 3, .sequence_length = 9, .micro_batch = 4};
  const DstarOrder order = order_of(tokens, options);
  const std::uint64_t batches = 4 * order.batches();
  std::vector<DstarOrder::Place> forward;
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    forward.push_back(order.place(batch, 1));
  }
  for (std::uint64_t batch = batches; batch-- > 0;) {
    CHECK(order.place(batch, 1) == forward[batch]);
    if (batch % 7 == 0) {
      CHECK(order_of(tokens, options).place(batch, 1) == forward[batch]);
    }
  }
}

TEST_CASE("dstar_order: an epoch reads each sequence at most once", "[data][dstar_order][ST-10]") {
  const DstarOrder order = order_of({3000}, {.seed = 1, .sequence_length = 10, .micro_batch = 8});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::uint64_t> starts;
    std::set<std::uint64_t> offsets;
    for (std::uint64_t batch = 0; batch < order.batches(); ++batch) {
      for (std::uint64_t row = 0; row < 8; ++row) {
        const std::uint64_t token = order.place(epoch * order.batches() + batch, row).token;
        starts.insert(token);
        offsets.insert(token % 10);
      }
    }
    CHECK(starts.size() == 8 * order.batches());
    CHECK(offsets.size() == 1);
  }
}

TEST_CASE("dstar_order: threads share one order", "[data][dstar_order][ST-10]") {
  const DstarOrder order =
      order_of({900, 800}, {.seed = 5, .sequence_length = 8, .micro_batch = 2});
  std::vector<DstarOrder::Place> expected;
  for (std::uint64_t batch = 0; batch < 200; ++batch) {
    expected.push_back(order.place(batch, 0));
  }
  std::vector<std::thread> threads;
  std::vector<std::size_t> wrong(3, 0);
  for (std::size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        const std::uint64_t batch = (i * 37 + 50 * thread) % 200;
        wrong[thread] += order.place(batch, 0) == expected[batch] ? 0U : 1U;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<std::size_t>(3, 0));
}

TEST_CASE("dstar_order: a file with less than a batch is refused", "[data][dstar_order]") {
  const DstarOrder::Options options{.seed = 1, .sequence_length = 16, .micro_batch = 4};
  CHECK(DstarOrder::make({{"a.bin", 97}}, options));
  for (const std::uint64_t tokens : {0U, 1U, 16U, 17U, 33U, 96U}) {
    const auto order = DstarOrder::make({{"a.bin", 970}, {"b.bin", tokens}}, options);
    REQUIRE_FALSE(order);
    CHECK(order.error().exit_code() == 2);
    CHECK(order.error().message.starts_with("b.bin: "));
    CHECK(order.error().message.find("batch.micro_batch (4)") != std::string::npos);
  }
  const DstarOrder order = order_of({97}, options);
  CHECK_THROWS_AS(order.place(0, 4), CheckFailed);
}
