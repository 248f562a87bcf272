#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/runs/joined_ranks.hpp"

using namespace train;

namespace {

constexpr std::size_t kLength = 16;

/// The tokens 0, 1, ... 1600 modulo 61.
std::shared_ptr<const data::TokenLanes> lanes_of(
    const test::RunSetup& setup, std::shared_ptr<const data::DstarOrder> order = nullptr) {
  const test::TempDirectory data;
  std::string bytes;
  for (int token = 0; token <= 1600; ++token) {
    bytes.push_back(static_cast<char>(token % 61));
    bytes.push_back('\0');
  }
  test::write_bytes(data.path() / "train.bin", bytes);
  test::write_bytes(data.path() / "val.bin", bytes);
  return test::token_lanes(setup, data.path(), std::move(order));
}

struct Row {
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(kLength);
  std::vector<std::int32_t> targets = std::vector<std::int32_t>(kLength);

  Row(const data::TokenLanes& lanes, std::int64_t step, std::int64_t lane, std::uint64_t row) {
    REQUIRE(lanes.read_training_row(step, lane, row, tokens, targets).ok());
  }

  [[nodiscard]] bool begins_at(std::uint64_t position) const {
    for (std::size_t i = 0; i < kLength; ++i) {
      if (tokens[i] != static_cast<std::int32_t>((position + i) % 61) ||
          targets[i] != static_cast<std::int32_t>((position + i + 1) % 61)) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace

TEST_CASE("training row: the micro-batch of step and lane is the reader's next one",
          "[actors][training_row][ST-10]") {
  const test::RunSetup setup;
  auto made = data::DstarOrder::make({{"train.bin", 1601}},
                                     {.seed = 1337, .sequence_length = kLength, .micro_batch = 2});
  REQUIRE(made);
  const auto order = std::make_shared<const data::DstarOrder>(std::move(made).value());
  const auto lanes = lanes_of(setup, order);
  std::uint64_t batch = 0;
  for (std::int64_t step = 0; step < 40; ++step) {  // 98 sequences: more than 3 epochs.
    for (std::int64_t lane = 0; lane < setup.lanes; ++lane, ++batch) {
      for (std::uint64_t row = 0; row < 2; ++row) {
        REQUIRE(Row(*lanes, step, lane, row).begins_at(order->place(batch, row).token));
      }
    }
  }
}

TEST_CASE("training row: without another order it is that of lanes",
          "[actors][training_row][ST-4]") {
  const auto lanes = lanes_of({});
  for (std::int64_t step = 0; step < 5; ++step) {
    const auto sequence = lanes->order().sequence(static_cast<std::uint64_t>(step), 3, 1);
    REQUIRE(Row(*lanes, step, 3, 1).begins_at(sequence * kLength));
  }
}
