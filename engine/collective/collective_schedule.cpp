#define XXH_INLINE_ALL
#include "engine/collective/collective_schedule.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <string>

#include "engine/base/check.hpp"

namespace train::engine {
namespace {

CollectiveOp make_op(CommandKind kind, Channel channel, std::uint32_t index, std::int32_t unit,
                     const char* what) {
  const std::string text =
      fmt::format("{}/{}/{}/{}/{}", command_name(kind), channel_name(channel), index, unit, what);
  return {channel, index, unit, what, XXH3_64bits(text.data(), text.size())};
}

std::vector<CollectiveOp> expand_train_step(const CommandShape& command) {
  TRAIN_CHECK(command.units > 0, "{} units", command.units);
  std::vector<CollectiveOp> ops;
  for (std::int32_t unit = command.units - 1; unit >= 0; --unit) {
    const auto index = static_cast<std::uint32_t>(ops.size());
    ops.push_back(make_op(command.kind, Channel::reduce, index, unit, "unit gradient"));
  }
  ops.push_back(make_op(command.kind, Channel::control, 0, -1, "loss and norm"));
  return ops;
}

}  // namespace

const char* channel_name(Channel channel) {
  switch (channel) {
    case Channel::gather:
      return "gather";
    case Channel::reduce:
      return "reduce";
    case Channel::control:
      return "control";
  }
  return "unknown";
}

const char* command_name(CommandKind kind) {
  switch (kind) {
    case CommandKind::train_step:
      return "train_step";
    case CommandKind::evaluate:
      return "evaluate";
    case CommandKind::snapshot:
      return "snapshot";
    case CommandKind::diagnose:
      return "diagnose";
    case CommandKind::stop:
      return "stop";
  }
  return "unknown";
}

std::vector<CollectiveOp> expand(const CommandShape& command) {
  switch (command.kind) {
    case CommandKind::train_step:
      return expand_train_step(command);
    case CommandKind::evaluate:
      return {make_op(command.kind, Channel::control, 0, -1, "eval loss")};
    case CommandKind::snapshot:
      return {make_op(command.kind, Channel::control, 0, -1, "snapshot digest")};
    case CommandKind::diagnose:
      return {make_op(command.kind, Channel::control, 0, -1, "nonfinite")};
    case CommandKind::stop:
      return {};
  }
  TRAIN_CHECK(false, "command kind {}", static_cast<int>(command.kind));
  return {};
}

}  // namespace train::engine
