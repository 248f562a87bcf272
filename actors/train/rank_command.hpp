#pragma once

#include <cstdint>
#include <variant>

#include "actors/messages/command_messages.hpp"
#include "engine/collective/collective_schedule.hpp"

// A command of any kind as a value.
namespace train::actors {

using Command = std::variant<TrainStep, Evaluate, TakeSnapshot, FindNonfinite, StopRank>;

/// Handlers of all kinds as one callable, for std::visit.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

/// Its number in the conductor's stream.
inline std::uint64_t sequence_of(const Command& command) {
  return std::visit([](const auto& one) { return one.sequence; }, command);
}

inline engine::CommandKind kind_of(const Command& command) {
  return std::visit(
      Overloaded{[](const TrainStep&) { return engine::CommandKind::train_step; },
                 [](const Evaluate&) { return engine::CommandKind::evaluate; },
                 [](const TakeSnapshot&) { return engine::CommandKind::snapshot; },
                 [](const FindNonfinite&) { return engine::CommandKind::find_nonfinite; },
                 [](const StopRank&) { return engine::CommandKind::stop; }},
      command);
}

/// The index of the step that the command is of, or comes after; -1: of none.
inline std::int64_t step_of(const Command& command) {
  return std::visit(Overloaded{[](const TrainStep& one) { return one.step; },
                               [](const Evaluate& one) { return one.step - 1; },
                               [](const TakeSnapshot& one) { return one.step - 1; },
                               [](const FindNonfinite& one) { return one.step; },
                               [](const StopRank&) { return std::int64_t{-1}; }},
                    command);
}

}  // namespace train::actors
