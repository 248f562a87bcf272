#include "data/lanes/mixture_order.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "data/tokens/lane_order.hpp"

namespace train::data {
namespace {

// Keys of permutations: apart from each other, and from the order of a run of one directory.
constexpr std::uint64_t kOfBlocks = 0x6a09e667f3bcc909U;
constexpr std::uint64_t kOfSources = 0xbb67ae8584caa73bU;

/// Sum over i < count of floor((a i + b) / m), modulo 2^64. REQUIRES: count and m below 2^32, and
/// a, b below 2^32. The areas below the line are folded as in Euclid's algorithm.
std::uint64_t floor_sum(std::uint64_t count, std::uint64_t m, std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  while (count > 0) {
    // One of two neighbours is even.
    sum += (count % 2 == 0 ? count / 2 * (count - 1) : (count - 1) / 2 * count) * (a / m);
    sum += count * (b / m);
    a %= m;
    b %= m;
    const std::uint64_t end = a * count + b;
    if (end < m) {
      break;
    }
    count = end / m;
    b = end % m;
    std::swap(m, a);
  }
  return sum;
}

/// Near W times the golden ratio, whose multiples leave no long gap, and coprime to W.
std::uint64_t stride_of(std::uint64_t parts) {
  constexpr std::uint64_t kGolden = 618033989;
  constexpr std::uint64_t kWhole = 1000000000;
  std::uint64_t stride = std::max<std::uint64_t>(1, parts * kGolden / kWhole);
  while (std::gcd(stride, parts) != 1) {
    ++stride;
  }
  return stride;
}

}  // namespace

MixtureOrder::MixtureOrder(const Options& options)
    : seed_(options.seed),
      lanes_(options.lanes),
      micro_batch_(options.micro_batch),
      block_(options.lanes * options.micro_batch),
      rows_(options.rows) {
  TRAIN_CHECK(!options.stages.empty() && options.stages.front().from_step == 0 && block_ > 0);
  for (const configs::SourceStage& each : options.stages) {
    Stage stage{
        .from_step = static_cast<std::uint64_t>(each.from_step),
        .parts = std::accumulate(each.weights.begin(), each.weights.end(), std::uint64_t{0}),
        .shares = {}};
    stage.stride = stride_of(stage.parts);
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < each.sources.size(); ++i) {
      const std::uint64_t share = block_ * each.weights[i];
      TRAIN_CHECK(rows_.at(each.sources[i]) > 0, "a source without rows");
      stage.shares.push_back({.source = each.sources[i],
                              .whole = share / stage.parts,
                              .extra = share % stage.parts,
                              .first = first});
      first = (first + share % stage.parts) % stage.parts;
    }
    stages_.push_back(std::move(stage));
  }
}

// The extras of a stage lie one after the other on circles of W parts, and block b takes from each
// circle the source at place b * stride: as many in every block, each source at most once.
std::uint64_t MixtureOrder::rows_in(const Stage& stage, const Share& share, std::uint64_t block) {
  const std::uint64_t at = block % stage.parts * stage.stride % stage.parts;
  return share.whole + ((at + stage.parts - share.first) % stage.parts < share.extra ? 1 : 0);
}

// x mod W < f exactly if floor(x / W) - floor((x - f) / W) is 1.
std::uint64_t MixtureOrder::rows_before(const Stage& stage, const Share& share,
                                        std::uint64_t blocks) {
  const std::uint64_t parts = stage.parts;
  const std::uint64_t periods = blocks / parts;
  const std::uint64_t rest = blocks % parts;
  const std::uint64_t extra =
      floor_sum(rest, parts, stage.stride, parts - share.first) -
      floor_sum(rest, parts, stage.stride, 2 * parts - share.first - share.extra) + rest;
  return blocks * share.whole + periods * share.extra + extra;
}

const MixtureOrder::Stage& MixtureOrder::stage_of(std::uint64_t step) const {
  const auto after = std::ranges::upper_bound(stages_, step, {}, &Stage::from_step);
  return *std::prev(after);
}

std::uint64_t MixtureOrder::drawn(std::size_t source, std::uint64_t steps) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < stages_.size() && stages_[i].from_step < steps; ++i) {
    const Stage& stage = stages_[i];
    const std::uint64_t end =
        i + 1 < stages_.size() ? std::min(steps, stages_[i + 1].from_step) : steps;
    const auto share = std::ranges::find(stage.shares, source, &Share::source);
    if (share != stage.shares.end()) {
      sum += rows_before(stage, *share, end - stage.from_step);
    }
  }
  return sum;
}

std::uint64_t MixtureOrder::row_of(std::size_t source, std::uint64_t number) const {
  const std::uint64_t rows = rows_.at(source);
  return shuffled_index(seed_ + kOfSources * (source + 1), number / rows, number % rows, rows);
}

MixtureOrder::Draw MixtureOrder::draw(std::uint64_t step, std::uint64_t lane,
                                      std::uint64_t row) const {
  TRAIN_CHECK(lane < lanes_ && row < micro_batch_);
  const Stage& stage = stage_of(step);
  std::uint64_t place = shuffled_index(seed_ ^ kOfBlocks, step, lane * micro_batch_ + row, block_);
  for (const Share& share : stage.shares) {
    const std::uint64_t count = rows_in(stage, share, step - stage.from_step);
    if (place < count) {
      const std::uint64_t number = drawn(share.source, step) + place;
      return {.source = share.source, .number = number, .row = row_of(share.source, number)};
    }
    place -= count;
  }
  TRAIN_CHECK(false, "shares of a block that do not fill it");
}

}  // namespace train::data
