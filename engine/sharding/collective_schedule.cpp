#define XXH_INLINE_ALL
#include "engine/sharding/collective_schedule.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/check.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

namespace {

/// The list under construction: gives each op its index in its channel and its hash.
class OpList {
 public:
  OpList(const ShardPlan& plan, const PassPlan& pass) : plan_digest_(plan.digest()), pass_(pass) {}

  void add(Channel channel, CollectiveKind kind, std::int64_t group = -1, std::int64_t part = -1) {
    CollectiveOp op{.channel = channel,
                    .kind = kind,
                    .index = next_[static_cast<std::size_t>(channel)]++,
                    .group = static_cast<std::int32_t>(group),
                    .part = static_cast<std::int32_t>(part),
                    .pass = pass_};
    const std::array<std::uint64_t, 7> words{
        plan_digest_,
        static_cast<std::uint64_t>(pass_.index),
        static_cast<std::uint64_t>(channel),
        static_cast<std::uint64_t>(kind),
        op.index,
        static_cast<std::uint64_t>(group),
        static_cast<std::uint64_t>(part),
    };
    op.hash = XXH3_64bits(words.data(), sizeof(words));
    ops_.push_back(op);
  }

  [[nodiscard]] std::vector<CollectiveOp> take() { return std::move(ops_); }

 private:
  std::uint64_t plan_digest_;
  PassPlan pass_;
  std::array<std::uint32_t, kChannelCount> next_{};
  std::vector<CollectiveOp> ops_;
};

void add_gathers(const ShardPlan& plan, const PassPlan& pass, OpList& ops) {
  const BufferSchedule schedule(plan, pass);
  for (std::size_t reservation = 0; reservation < schedule.gathers().size(); ++reservation) {
    ops.add(Channel::gather, CollectiveKind::gather,
            static_cast<std::int64_t>(schedule.gathers()[reservation].group),
            static_cast<std::int64_t>(reservation));
  }
}

/// Groups as the backward pass completes them: when it has passed their lowest unit.
std::vector<std::size_t> by_completion(const ShardPlan& plan) {
  std::vector<std::size_t> order(plan.groups().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return plan.groups()[left].first_unit() > plan.groups()[right].first_unit();
  });
  return order;
}

/// `broadcast`: the owners of reduced gradients send them to the replicas.
void add_reductions(const ShardPlan& plan, bool broadcast, OpList& ops) {
  const std::vector<std::size_t> order = by_completion(plan);
  const std::int64_t syncs = plan.train_lanes().syncs();
  for (std::int64_t sync = 0; sync < syncs; ++sync) {
    std::int64_t reduced = -1;
    const auto broadcast_reduced = [&] {
      const bool last = sync + 1 == syncs && reduced >= 0;
      if (broadcast && last && plan.broadcast(static_cast<std::size_t>(reduced))) {
        ops.add(Channel::reduce, CollectiveKind::broadcast, reduced);
      }
    };
    // One reduce later: the sums of a group are added up while the next group's bytes move.
    for (const std::size_t group : order) {
      if (!plan.groups()[group].trained()) {
        continue;
      }
      ops.add(Channel::reduce, CollectiveKind::reduce, static_cast<std::int64_t>(group), sync);
      broadcast_reduced();
      reduced = static_cast<std::int64_t>(group);
    }
    broadcast_reduced();
  }
}

}  // namespace

const char* collective_name(CollectiveKind kind) {
  static constexpr std::array kNames = {
      "gather",          "all_gather",        "reduce",    "broadcast", "loss and norm",
      "evaluation sums", "non-finite counts", "reference", "block sums"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string CollectiveOp::text(const ShardPlan& plan) const {
  std::string text = collective_name(kind);
  if (group >= 0) {
    text += fmt::format(" of {}", plan.groups()[static_cast<std::size_t>(group)].name);
  }
  if (part >= 0) {
    text += fmt::format(", {} {}", kind == CollectiveKind::gather ? "reservation" : "sync", part);
  }
  return text;
}

std::optional<CollectiveKind> last_collective(const PassPlan& pass) {
  if (pass.reduces()) {
    return CollectiveKind::loss_and_norm;
  }
  if (pass.searches()) {
    return CollectiveKind::nonfinite;
  }
  switch (pass.loss) {
    case LossUse::summed:
      return CollectiveKind::eval_sums;
    case LossUse::references:
    case LossUse::compared:
      return CollectiveKind::reference;
    case LossUse::block_sums:
      return CollectiveKind::block_sums;
    case LossUse::scores:  // each rank reports its own documents
    case LossUse::tokens:  // and its own texts
      break;
  }
  return std::nullopt;
}

std::vector<CollectiveOp> expand(const ShardPlan& plan, const PassPlan& pass) {
  OpList ops(plan, pass);
  if (plan.ranks() == 1) {
    return {};
  }
  add_gathers(plan, pass, ops);
  for (std::size_t group = 0; pass.updates() && group < plan.groups().size(); ++group) {
    if (plan.all_gathered(group)) {
      ops.add(Channel::gather, CollectiveKind::all_gather, static_cast<std::int64_t>(group));
    }
  }
  if (pass.reduces()) {
    add_reductions(plan, /*broadcast=*/pass.updates(), ops);
  }
  if (const auto last = last_collective(pass)) {
    ops.add(Channel::control, *last);
  }
  return ops.take();
}

Error ChannelOrder::mismatch(const CollectiveIdentity& requested, const Expected* expected,
                             const char* why) const {
  std::string expectation = fmt::format("nothing (last command {})", last_command_);
  if (expected != nullptr) {
    const CollectiveOp& op = expected->op;
    expectation = fmt::format("{} \"{} of group {}\" hash {:016x}", to_string(expected->identity),
                              collective_name(op.kind), op.group, expected->identity.hash);
  }
  return failure(fmt::format("collective {}: expected {}, requested {} hash {:016x}", why,
                             expectation, to_string(requested), requested.hash));
}

Status ChannelOrder::note(const CollectiveIdentity& identity) {
  Queue& expected = queue(identity.channel);
  const auto found = std::find_if(expected.begin(), expected.end(), [&](const Expected& entry) {
    return entry.identity.command == identity.command && entry.identity.index == identity.index;
  });
  if (found == expected.end()) {
    return mismatch(identity, expected.empty() ? nullptr : &expected.front(), "is not due");
  }
  if (found->identity.hash != identity.hash) {
    return mismatch(identity, &*found, "differs");
  }
  if (found->requested) {
    return mismatch(identity, &*found, "was asked for twice");
  }
  found->requested = true;
  return {};
}

ChannelOrder::Due ChannelOrder::take_due(Channel channel) {
  Queue& expected = queue(channel);
  Due due;
  while (!expected.empty() && expected.front().requested) {
    due.push_back(expected.front().identity);
    expected.pop_front();
  }
  return due;
}

Result<ChannelOrder::Due> ChannelOrder::begin_command(std::int64_t command,
                                                      const std::vector<CollectiveOp>& ops) {
  TRAIN_CHECK(command > last_command_, "command {} after {}", command, last_command_);
  last_command_ = command;
  for (const CollectiveOp& op : ops) {
    queue(op.channel).push_back({{generation_, command, op.channel, op.index, op.hash}, op, false});
  }
  std::vector<CollectiveIdentity> still_early;
  for (const CollectiveIdentity& identity : early_) {
    if (identity.command > command) {
      still_early.push_back(identity);
      continue;
    }
    TRAIN_RETURN_IF_ERROR(note(identity));
  }
  early_ = std::move(still_early);
  Due due;
  for (std::size_t i = 0; i < kChannelCount; ++i) {
    const Due of_channel = take_due(static_cast<Channel>(i));
    due.insert(due.end(), of_channel.begin(), of_channel.end());
  }
  return due;
}

Result<ChannelOrder::Due> ChannelOrder::request(const CollectiveIdentity& identity) {
  if (identity.generation < generation_) {
    return Due{};
  }
  if (identity.generation > generation_) {
    const Queue& expected = queue(identity.channel);
    return mismatch(identity, expected.empty() ? nullptr : &expected.front(),
                    "is of a newer generation");
  }
  if (identity.command > last_command_) {
    early_.push_back(identity);
    return Due{};
  }
  TRAIN_RETURN_IF_ERROR(note(identity));
  return take_due(identity.channel);
}

std::optional<CollectiveIdentity> ChannelOrder::expected(Channel channel) const {
  const Queue& entries = queues_[static_cast<std::size_t>(channel)];
  if (entries.empty()) {
    return std::nullopt;
  }
  return entries.front().identity;
}

}  // namespace train::engine
