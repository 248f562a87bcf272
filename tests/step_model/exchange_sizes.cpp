#include "tests/step_model/exchange_sizes.hpp"

#include <numeric>

#include "base/check.hpp"

namespace train::engine {
namespace {

ShardPlan checked_plan(const RankOptions& options) {
  Result<ShardPlan> plan = plan_of(options);
  TRAIN_CHECK(plan.ok(), "{}", plan.error().message);
  return std::move(plan).value();
}

RankOptions of_rank(RankOptions options, std::int64_t rank) {
  options.rank = rank;
  return options;
}

std::vector<std::int64_t> everybody(std::int64_t ranks) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

}  // namespace

ExchangeSizes::ExchangeSizes(const RankOptions& options)
    : plan_(checked_plan(options)),
      schedule_(plan_, kTrainStep),
      layout_(plan_, of_rank(options, 0)) {
  const std::int64_t reshard = plan_.reshard_ranks();
  for (std::size_t group = 0; group < plan_.groups().size(); ++group) {
    std::vector<std::int64_t> reduced, weights, states, kept;
    for (std::int64_t rank = 0; rank < plan_.ranks(); ++rank) {
      reduced.push_back(plan_.reduce_part(group, rank).element_count);
      weights.push_back(plan_.weight_part(group, rank).element_count);
      states.push_back(plan_.state_part(group, rank).element_count);
      kept.push_back(plan_.splits_kept_weights(group)
                         ? plan_.cut(group, reshard, rank % reshard).element_count
                         : 0);
    }
    reduced_.push_back(std::move(reduced));
    weights_.push_back(std::move(weights));
    states_.push_back(std::move(states));
    kept_.push_back(std::move(kept));
  }
  for (std::int64_t sync = 0; sync < plan_.train_lanes().syncs(); ++sync) {
    std::vector<std::int64_t> sums;
    for (std::int64_t rank = 0; rank < plan_.ranks(); ++rank) {
      sums.push_back(static_cast<std::int64_t>(layout_.sums(rank, sync).size()));
    }
    all_sums_.push_back(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}));
    sums_.push_back(std::move(sums));
  }
}

bool ExchangeSizes::smaller_group(const CollectiveOp& op) const {
  return op.kind == CollectiveKind::gather &&
         schedule_.gathers().at(static_cast<std::size_t>(op.part)).from_smaller_group;
}

std::vector<std::int64_t> ExchangeSizes::peers(const CollectiveOp& op, std::int64_t rank) const {
  const auto group = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
  if (op.kind == CollectiveKind::gather) {
    return smaller_group(op) ? plan_.reshard_peers(group, rank) : plan_.weight_peers(group, rank);
  }
  return op.kind == CollectiveKind::broadcast ? plan_.replica_peers(group, rank)
                                              : everybody(plan_.ranks());
}

double ExchangeSizes::packed_bytes(const CollectiveOp& op, std::int64_t rank) const {
  const auto group = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
  const auto at = static_cast<std::size_t>(rank);
  const auto compute = static_cast<double>(layout_.compute_size());
  switch (op.kind) {
    case CollectiveKind::gather:
      return compute *
             static_cast<double>(smaller_group(op) ? kept_[group][at] : weights_[group][at]);
    case CollectiveKind::all_gather:
      return compute * static_cast<double>(reduced_[group][at]);
    case CollectiveKind::broadcast:
      return static_cast<double>(sizeof(float)) * static_cast<double>(reduced_[group][at]);
    case CollectiveKind::loss_and_norm:
      return static_cast<double>(sizeof(double)) *
             static_cast<double>(layout_.step_block(rank + 1) - layout_.step_block(rank));
    case CollectiveKind::reduce:
    case CollectiveKind::eval_sums:
    case CollectiveKind::nonfinite:
    case CollectiveKind::reference:
    case CollectiveKind::block_sums:
      break;
  }
  TRAIN_CHECK(false, "{} is no all-gather of a training step", op.text(plan_));
  return 0.0;
}

ExchangeSizes::Bytes ExchangeSizes::bytes(const CollectiveOp& op, std::int64_t rank) const {
  Bytes bytes;
  if (op.kind == CollectiveKind::reduce) {
    const auto& parts = reduced_[static_cast<std::size_t>(op.group)];
    const auto own = static_cast<double>(parts[static_cast<std::size_t>(rank)]);
    const auto all =
        static_cast<double>(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}));
    const auto size = static_cast<double>(layout_.reduce_size());
    bytes.sent = size * static_cast<double>(sums(rank, op.part)) * (all - own);
    bytes.received = size * static_cast<double>(all_sums(op.part) - sums(rank, op.part)) * own;
    return bytes;
  }
  for (const std::int64_t peer : peers(op, rank)) {
    if (peer != rank) {
      bytes.sent += packed_bytes(op, rank);
      bytes.received += packed_bytes(op, peer);
    }
  }
  return bytes;
}

std::int64_t ExchangeSizes::all_sums(std::int64_t sync) const {
  return all_sums_.at(static_cast<std::size_t>(sync));
}

std::int64_t ExchangeSizes::sums(std::int64_t rank, std::int64_t sync) const {
  return sums_.at(static_cast<std::size_t>(sync)).at(static_cast<std::size_t>(rank));
}

double ExchangeSizes::reduced_bytes(std::size_t group, std::int64_t rank) const {
  return static_cast<double>(sizeof(float)) *
         static_cast<double>(reduced_[group][static_cast<std::size_t>(rank)]);
}

double ExchangeSizes::updated_bytes(std::size_t group, std::int64_t rank) const {
  return static_cast<double>(sizeof(float)) *
         static_cast<double>(states_[group][static_cast<std::size_t>(rank)]);
}

double ExchangeSizes::group_bytes(std::size_t group) const {
  return static_cast<double>(sizeof(float)) *
         static_cast<double>(plan_.groups()[group].element_count);
}

}  // namespace train::engine
