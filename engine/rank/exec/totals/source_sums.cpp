#include "engine/rank/exec/totals/source_sums.hpp"

#include <algorithm>

#include "base/text/byte_sizes.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/head/head_loss.hpp"

namespace train::engine {
namespace {

std::size_t slot_sequences(const RankOptions& options) {
  return static_cast<std::size_t>(options.batch.micro_batch * options.lane_slots);
}

std::size_t term_bytes(std::int64_t rows) {
  return bytes_of(rows * kernels::HeadLossParams::kTermsPerRow, sizeof(double));
}

}  // namespace

SourceSums::SourceSums(const RankPlan& rank)
    : rank_(&rank),
      sources_(slot_sequences(rank.options())),
      row_terms_(rank.kernels(), term_bytes(rank.lane_tokens()), "row losses") {}

std::span<std::int32_t> SourceSums::sources(std::int32_t slot) const {
  const auto count = static_cast<std::size_t>(rank_->options().batch.micro_batch);
  return std::span(sources_).subspan(static_cast<std::size_t>(slot) * count, count);
}

void SourceSums::add(kernels::Stream& stream, const double* row_terms, const LaneSlot& columns,
                     std::span<MetricSum> sums) const {
  constexpr auto kTerms = static_cast<std::size_t>(kernels::HeadLossParams::kTermsPerRow);
  const std::int64_t rows = rank_->lane_tokens();
  rank_->kernels().copy(stream, {.out = row_terms_.device<double>(),
                                 .in = row_terms,
                                 .size_bytes = static_cast<std::int64_t>(term_bytes(rows))});
  row_terms_.to_host(stream, row_terms_.device<double>(), static_cast<std::size_t>(rows) * kTerms);
  const double* terms = row_terms_.host<double>();
  const auto length = static_cast<std::size_t>(rank_->options().seq_len);
  stream.enqueue([terms, columns, length, sums] {
    std::ranges::fill(sums, MetricSum());
    for (std::size_t row = 0; row < columns.targets.size(); ++row) {
      const std::int32_t source = columns.sources[row / length];
      if (columns.targets[row] < 0 || source < 0) {
        continue;
      }
      MetricSum& sum = sums[static_cast<std::size_t>(source)];
      sum.sum += terms[row * kTerms];
      sum.count += columns.weights.empty() ? 1.0 : static_cast<double>(columns.weights[row]);
    }
  });
}

std::size_t SourceSums::planned_bytes(const RankOptions& options) {
  return options.sources == 0 ? 0
                              : slot_sequences(options) * sizeof(std::int32_t) +
                                    term_bytes(options.batch.micro_batch * options.seq_len);
}

std::size_t SourceSums::allocated_bytes() const {
  return sources_.size() * sizeof(std::int32_t) + row_terms_.size_bytes();
}

}  // namespace train::engine
