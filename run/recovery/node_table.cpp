#include "run/recovery/node_table.hpp"

namespace train::run {
namespace {

using enum NodeKind::State;
using enum NodeKind::Event;
using enum NodeKind::Fact;
using Action = NodeAction;

using States = SetOf<NodeState>;

constexpr States kLook = {first_look, looking};
constexpr States kEnding = {ending_again, ending_lost};
constexpr States kWithHead = {joined, running, leaving, unclear};
constexpr States kAll = kLook | kWithHead | kEnding | States{over};

constexpr std::string_view kRecord = "node {node}: the head has ended with exit code {text}";
constexpr std::string_view kSignal = "node {node}: stopped by signal {signal} without the head";
constexpr std::string_view kNotBack =
    "node {node}: the head is gone, and has not come back within {seconds} s "
    "(recovery.node_wait_s); run it again to resume from the newest checkpoint";
constexpr std::string_view kGone = "node {node}: the head is gone";
constexpr std::string_view kLate = "node {node}: comes too late, the run goes on without it";

// Columns: in, events, with, without, next, actions, exit code, line.
// clang-format off
constexpr auto kRows = std::to_array<NodeRow>({
    // It looks for the head.
    {kLook, {head_found}, {}, {}, joined, {Action::introduce}},
    {kLook, {head_not_found}, {recorded}, {}, over, {}, Exit::from_event, kRecord},
    {{first_look}, {head_not_found}, {}, {recorded}, over, {}, Exit::from_event, "{text}"},
    {{looking}, {head_not_found}, {signalled}, {recorded}, over, {}, Exit::stopped, kSignal},
    {{looking}, {head_not_found}, {alive}, {recorded, signalled}, same, {Action::look_again}},
    {{looking}, {head_not_found}, {}, {recorded, signalled, alive}, over, {},
     Exit::stopped, kNotBack},
    {kAll - kLook, {head_found, head_not_found}, {}, {}, same},
    // It takes the head's orders.
    {{joined}, {start}, {}, {}, running, {Action::start_ranks}},
    {{joined}, {position}, {}, {}, same, {Action::take_position}},
    {{joined}, {restore}, {}, {}, same, {Action::restore}},
    {kAll - States{joined}, {start, position, restore}, {}, {}, same},
    // The head says that the generation is over, or it is gone.
    {{joined, unclear}, {again}, {}, {}, looking},
    {{running, leaving}, {again}, {}, {}, ending_again, {Action::end_ranks}},
    {{joined, unclear}, {end}, {}, {}, over, {Action::idle}, Exit::from_event},
    {{running}, {end}, {}, {}, leaving, {}, Exit::from_event},
    {{joined, running, unclear}, {without}, {}, {}, over, {Action::end_ranks, Action::idle},
     Exit::finished, kLate},
    {{leaving}, {end, without}, {}, {}, same},
    {{joined, unclear}, {head_lost}, {respawn}, {}, looking},
    {{joined, unclear}, {head_lost}, {}, {respawn}, over, {}, Exit::failure, kGone},
    {{running}, {head_lost}, {}, {}, ending_lost, {Action::end_ranks}},
    {{leaving}, {head_lost, ranks_ended}, {}, {}, same, {Action::end_ranks}},
    {kAll - kWithHead, {again, end, without, head_lost}, {}, {}, same},
    // The ranks end.
    {{running}, {ranks_ended}, {in_order}, {}, over, {}, Exit::finished},
    {{running}, {ranks_ended}, {}, {in_order}, unclear},
    {kAll - States{running, leaving}, {ranks_ended}, {}, {}, same},
    {{unclear}, {word_time_over}, {}, {}, over, {}, Exit::failure, kGone},
    {kAll - States{unclear}, {word_time_over}, {}, {}, same},
    {{leaving}, {ranks_gone}, {in_order}, {}, over, {Action::idle}, Exit::finished},
    {{leaving}, {ranks_gone}, {}, {in_order}, over, {Action::idle}, Exit::from_event},
    {{ending_again}, {ranks_gone}, {}, {}, looking},
    {{ending_lost}, {ranks_gone}, {in_order}, {}, over, {}, Exit::finished},
    {{ending_lost}, {ranks_gone}, {respawn}, {in_order}, looking},
    {{ending_lost}, {ranks_gone}, {}, {in_order, respawn}, over, {}, Exit::failure, kGone},
    {kAll - kEnding - States{leaving}, {ranks_gone}, {}, {}, same},
});
// clang-format on

}  // namespace

template <>
std::span<const NodeRow> rows_of<NodeKind>() {
  return kRows;
}

}  // namespace train::run
