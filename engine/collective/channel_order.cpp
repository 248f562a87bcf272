#include "engine/collective/channel_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

std::string to_string(const CollectiveIdentity& identity) {
  return fmt::format("generation {} command {} {} {}", identity.generation, identity.command,
                     channel_name(identity.channel), identity.index);
}

Error ChannelOrder::mismatch(const CollectiveIdentity& requested, const Expected* expected,
                             const char* why) const {
  std::string expectation = fmt::format("nothing (last command {})", last_command_);
  if (expected != nullptr) {
    const CollectiveOp& op = expected->op;
    const std::string what =
        plan_ != nullptr ? op.text(*plan_)
                         : fmt::format("{} of group {}", collective_name(op.kind), op.group);
    expectation = fmt::format("{} \"{}\" hash {:016x}", to_string(expected->identity), what,
                              expected->identity.hash);
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

std::vector<CollectiveIdentity> ChannelOrder::parked() const {
  std::vector<CollectiveIdentity> waiting;
  for (const Queue& expected : queues_) {
    for (const Expected& entry : expected) {
      if (entry.requested) {
        waiting.push_back(entry.identity);
      }
    }
  }
  waiting.insert(waiting.end(), early_.begin(), early_.end());
  return waiting;
}

std::optional<CollectiveIdentity> ChannelOrder::expected(Channel channel) const {
  const Queue& entries = queues_[static_cast<std::size_t>(channel)];
  if (entries.empty()) {
    return std::nullopt;
  }
  return entries.front().identity;
}

}  // namespace train::engine
