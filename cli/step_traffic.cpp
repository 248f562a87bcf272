#include "cli/step_traffic.hpp"

#include <numeric>

#include "engine/sharding/buffer_schedule.hpp"

namespace train::cli {
namespace {

using engine::CollectiveKind;
using engine::CollectiveOp;
using engine::GroupLayout;

std::size_t sent_in_gather(const engine::RankLayout& layout, const GroupLayout& group,
                           bool smaller) {
  const GroupLayout::Sources& sources = smaller ? group.kept : group.shards;
  for (std::size_t i = 0; i < sources.ranks.size(); ++i) {
    if (sources.ranks[i] == layout.rank()) {
      return (sources.ranks.size() - 1) * layout.compute_size() *
             static_cast<std::size_t>(sources.parts[i].element_count);
    }
  }
  return 0;
}

std::size_t sent_in_reduce(const engine::RankLayout& layout, const CollectiveOp& op) {
  const engine::StagedOp staged = layout.staged(op, false);
  std::size_t sent = 0;
  for (std::size_t rank = 0; rank < staged.send.size(); ++rank) {
    sent += static_cast<std::int64_t>(rank) == layout.rank() ? 0 : staged.send[rank].size_bytes;
  }
  return sent;
}

}  // namespace

std::size_t StepTraffic::total_bytes() const {
  return std::accumulate(sent_bytes.begin(), sent_bytes.end(), std::size_t{0});
}

StepTraffic step_traffic(const engine::ShardPlan& plan, const engine::RankLayout& layout) {
  const engine::BufferSchedule schedule(plan, engine::CommandKind::train_step);
  const auto others = static_cast<std::size_t>(plan.ranks() - 1);
  StepTraffic traffic;
  for (const CollectiveOp& op : engine::expand(plan, engine::CommandKind::train_step)) {
    const auto index = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
    const GroupLayout& group = layout.group(index);
    const auto reduced = static_cast<std::size_t>(group.reduce.element_count);
    std::size_t& sent = traffic.sent_bytes[static_cast<std::size_t>(op.kind)];
    switch (op.kind) {
      case CollectiveKind::gather:
        sent += sent_in_gather(
            layout, group,
            schedule.gathers()[static_cast<std::size_t>(op.part)].from_smaller_group);
        break;
      case CollectiveKind::all_gather:
        sent += others * reduced * layout.compute_size();
        break;
      case CollectiveKind::reduce:
        sent += sent_in_reduce(layout, op);
        break;
      case CollectiveKind::broadcast:
        sent += (plan.replica_peers(index, layout.rank()).size() - 1) * reduced * sizeof(float);
        break;
      case CollectiveKind::loss_and_norm:
        sent += others * sizeof(double) *
                static_cast<std::size_t>(layout.step_block(layout.rank() + 1) -
                                         layout.step_block(layout.rank()));
        break;
      case CollectiveKind::eval_sums:
      case CollectiveKind::nonfinite:
        break;
    }
  }
  return traffic;
}

}  // namespace train::cli
