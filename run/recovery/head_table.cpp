#include "run/recovery/head_table.hpp"

#include <algorithm>
#include <array>

#include "base/exit_codes.hpp"

namespace train::run {
namespace {

using enum HeadKind::State;
using enum HeadKind::Event;
using enum HeadKind::Fact;
using enum HeadKind::Action;

using States = SetOf<HeadState>;

constexpr States kStart = {starting, start_doubt};
constexpr States kTrain = {training, doubt};
constexpr States kRanks = kStart | kTrain;
constexpr States kEnding = {ending_loss, ending_back, ending_phase, ending_damage, ending_run};
constexpr States kNoRanks = {meeting, restoring};
constexpr States kAll = kNoRanks | kRanks | kEnding | States{over};

constexpr std::string_view kRankFailed = "rank {rank} failed: {text}";
constexpr std::string_view kTold = "{text}";
constexpr std::string_view kProcessEnded = "rank {rank} failed: its process ended: {text}";
constexpr std::string_view kLauncherGone =
    "the launcher of node {node} has ended or cannot be reached";
constexpr std::string_view kBack = "nodes that are back wait to take part";
constexpr std::string_view kBeforeFirst = "stopped by signal {signal} before the first step";
constexpr std::string_view kStoppedAs =
    "stopped by signal {signal} as {text}; what was committed stands; run it again, without "
    "--fresh, to go on";
constexpr std::string_view kNeverMet =
    "{nodes} did not come within {seconds} s (recovery.start_wait_s); nothing was begun: run it "
    "again";
constexpr std::string_view kNoWayOn =
    "{nodes} did not come back within {seconds} s of the loss (recovery.node_wait_s), and the run "
    "cannot go on without: {text}; run it again to resume from the newest checkpoint";

/// By GenerationEnd.
constexpr std::array kStateOf = {ending_run, ending_loss, ending_back, ending_phase, ending_damage};

// Columns: in, events, with, without, next, actions, exit code, line.
// clang-format off
constexpr auto kRows = std::to_array<HeadRow>({
    {{meeting}, {met}, {first}, {}, starting, {start_ranks}},
    {{meeting}, {met}, {}, {first}, restoring, {find_start}},
    {{meeting}, {met_others}, {first, signalled}, {}, over, {tell_end}, Exit::stopped,
     kBeforeFirst},
    {{meeting}, {met_others}, {first}, {signalled}, over, {tell_end}, Exit::stopped, kNeverMet},
    {{meeting}, {met_others}, {missing, signalled}, {first}, over, {tell_end},
     Exit::stopped, kStoppedAs},
    {{meeting}, {met_others}, {missing, room}, {first, signalled}, restoring, {take_nodes,
     find_start}},
    {{meeting}, {met_others}, {missing, room_without}, {first, signalled, room}, restoring,
     {refuse_launcher, take_nodes, find_start}},
    {{meeting}, {met_others}, {missing}, {first, signalled, room, room_without}, over, {tell_end},
     Exit::stopped, kNoWayOn},
    {{meeting}, {met_others}, {room}, {first, missing}, restoring, {take_nodes, find_start}},
    {{meeting}, {met_others}, {}, {first, missing, room}, restoring,
     {refuse_launcher, find_start}},
    {kAll - States{meeting}, {met, met_others}, {}, {}, same},
    // The state to resume from is in place; starts without progress are counted.
    {{restoring}, {placed}, {allowed}, {}, starting, {start_ranks}},
    {{restoring}, {placed}, {fewer}, {allowed}, starting, {take_fewer, start_ranks}},
    {{restoring}, {placed}, {saved}, {allowed, fewer}, over, {tell_end}, Exit::stopped, kTold},
    {{restoring}, {placed}, {}, {allowed, fewer, saved}, over, {tell_end}, Exit::failure, kTold},
    {{restoring}, {not_placed}, {in_memory}, {}, same, {forget_memory, find_start}},
    {{restoring}, {not_placed}, {}, {in_memory}, same, {go_without}},
    {kAll - States{restoring}, {placed, not_placed}, {}, {}, same},
    // Ranks start.
    {kStart, {ranks_ready}, {}, {signalled}, training, {connect}},
    {kStart, {ranks_ready}, {signalled}, {}, training, {connect, save}},
    {kAll - kStart, {ranks_ready}, {}, {}, same},
    {kStart, {rank_lost}, {}, {}, ending_loss, {end_ranks}, Exit::failure, kTold},
    {kStart, {rank_failed}, {}, {}, ending_run, {end_ranks}, Exit::from_event, kTold},
    {kStart, {rank_mistaken}, {}, {}, ending_run, {end_ranks}, Exit::mistake, kTold},
    {kStart, {damage_found}, {}, {}, ending_damage, {end_ranks}, Exit::failure, kTold},
    {kAll - kStart, {damage_found}, {}, {}, same},
    {{starting}, {rank_missed, rank_stranded}, {}, {}, start_doubt, {wait_for_cause}},
    {{start_doubt}, {cause_time_over}, {lost}, {}, ending_loss, {end_ranks}, Exit::failure, kTold},
    {{start_doubt}, {cause_time_over}, {}, {lost}, ending_run, {end_ranks},
     Exit::failure, kTold},
    {kStart, {signal}, {in_memory}, {}, same},
    {kStart, {signal}, {}, {in_memory}, ending_run, {end_ranks}, Exit::stopped, kBeforeFirst},
    {kStart, {program_over, phase_over}, {}, {}, same},
    // All ranks train.
    {kTrain, {rank_lost}, {}, {}, ending_loss, {end_ranks}, Exit::failure, kRankFailed},
    {kTrain, {rank_failed}, {}, {}, ending_run, {end_ranks}, Exit::from_event, kRankFailed},
    {kTrain, {rank_mistaken}, {}, {}, ending_run, {end_ranks}, Exit::mistake, kRankFailed},
    {{training}, {rank_missed, rank_stranded}, {alone}, {}, ending_loss, {end_ranks},
     Exit::failure, kRankFailed},
    {{training}, {rank_missed, rank_stranded}, {}, {alone}, doubt, {wait_for_cause}},
    {{start_doubt, doubt}, {rank_missed, rank_stranded}, {}, {}, same},
    {{doubt}, {cause_time_over}, {}, {}, ending_loss, {end_ranks}, Exit::failure, kRankFailed},
    {kTrain, {signal}, {}, {}, same, {save}},
    {kTrain, {program_over}, {}, {}, ending_run, {end_ranks}, Exit::from_event, kTold},
    {kTrain, {phase_over}, {}, {}, ending_phase, {end_ranks}, Exit::stopped, kTold},
    {{training}, {nodes_wait}, {steps_left}, {}, ending_back, {end_ranks}, Exit::failure, kBack},
    {{training}, {nodes_wait}, {}, {steps_left}, same},
    {{training}, {snapshot_sealed}, {waiting}, {}, same, {ask_for_place}},
    {{training}, {snapshot_sealed}, {}, {waiting}, same},
    {kAll - States{training}, {snapshot_sealed, nodes_wait}, {}, {}, same},
    // The ranks are being ended. The kernel's report of the first killed worker takes precedence
    // over other causes.
    {{ending_loss, ending_back}, {worker_killed}, {}, {}, ending_loss, {},
     Exit::failure, kProcessEnded},
    {{ending_loss, ending_back}, {worker_crashed}, {}, {}, ending_run, {},
     Exit::failure, kProcessEnded},
    {kAll - States{ending_loss, ending_back}, {worker_killed, worker_crashed}, {}, {}, same},
    {{ending_loss, ending_back}, {ranks_gone}, {signalled}, {}, over, {tell_end},
     Exit::stopped, kStoppedAs},
    {{ending_loss, ending_back}, {ranks_gone}, {respawn}, {signalled}, meeting, {tell_again}},
    {{ending_loss, ending_back}, {ranks_gone}, {}, {respawn, signalled}, over, {tell_end},
     Exit::failure, kTold},
    {{ending_phase}, {ranks_gone}, {signalled}, {}, over, {tell_end}, Exit::stopped, kTold},
    {{ending_phase}, {ranks_gone}, {}, {signalled}, restoring, {find_start}},
    {{ending_damage}, {ranks_gone}, {signalled}, {}, over, {tell_end}, Exit::stopped, kStoppedAs},
    {{ending_damage}, {ranks_gone}, {}, {signalled}, meeting, {tell_again, verify}},
    {{ending_run}, {ranks_gone}, {}, {}, over, {tell_end}, Exit::from_event, kTold},
    {kAll - kEnding, {ranks_gone}, {}, {}, same},
    // Launchers come and go at any time.
    {kNoRanks | kEnding, {launcher_came}, {}, {}, same, {keep_launcher}},
    {kRanks, {launcher_came}, {welcome}, {}, same, {keep_launcher}},
    {kRanks, {launcher_came}, {}, {welcome}, same, {refuse_launcher}},
    {{over}, {launcher_came}, {}, {}, same},
    {kRanks, {launcher_lost}, {}, {}, ending_loss, {end_ranks}, Exit::failure, kLauncherGone},
    // Ignored before ranks start, and when the end is already decided.
    {kAll - kRanks, {launcher_lost, rank_lost, rank_failed, rank_mistaken, rank_missed,
     rank_stranded, signal, program_over, phase_over}, {}, {}, same},
    {kAll - States{start_doubt, doubt}, {cause_time_over}, {}, {}, same},
    {kNoRanks, {head_failed}, {}, {}, over, {tell_end}, Exit::from_event, kTold},
    {kRanks, {head_failed}, {}, {}, ending_run, {end_ranks}, Exit::from_event, kTold},
    {kEnding | States{over}, {head_failed}, {}, {}, same},
});
// clang-format on

}  // namespace

template <>
std::span<const HeadRow> rows_of<HeadKind>() {
  return kRows;
}

HeadEvent event_of(const RankFailed& failure) {
  if (failure.damaged) {
    return damage_found;
  }
  if (failure.consequence) {
    return failure.lost ? rank_missed : rank_stranded;
  }
  if (failure.lost) {
    return rank_lost;
  }
  return failure.exit_code == kExitUserError ? rank_mistaken : rank_failed;
}

HeadState state_of(GenerationEnd end) { return kStateOf.at(static_cast<std::size_t>(end)); }

GenerationEnd end_of(HeadState state) {
  const auto* const found = std::find(kStateOf.begin(), kStateOf.end(), state);
  return found == kStateOf.end() ? GenerationEnd::run_over
                                 : static_cast<GenerationEnd>(found - kStateOf.begin());
}

}  // namespace train::run
