#pragma once

#include "run/events/outcome.hpp"
#include "run/recovery/recovery_table.hpp"

// Reaction of the head to a lost rank, launcher or node, a signal, and returned nodes: one pure
// function of state, event and facts. Carried out by run_generations(), ProcessRanks, the cluster
// (while ranks start) and the conductor (while ranks train).
namespace train::run {

struct HeadKind {
  enum class State : std::uint8_t {
    meeting,        ///< Waiting for the launchers of the other nodes; no rank runs.
    restoring,      ///< Finding the state to resume from, and moving it to its ranks.
    starting,       ///< Ranks are starting.
    start_doubt,    ///< A starting rank has lost another, whose own report may follow.
    training,       ///< All ranks train.
    doubt,          ///< A rank has lost another, whose own report may follow.
    ending_loss,    ///< A rank is lost; ending the others.
    ending_back,    ///< Ending all ranks to include returned nodes.
    ending_phase,   ///< Ending all ranks for the next phase of the objective.
    ending_damage,  ///< Ending all ranks because one reported a damaged checkpoint.
    ending_run,     ///< Ending all ranks, and the run.
    over,
    same  ///< Only in a row: the state stays.
  };
  enum class Event : std::uint8_t {
    met,              ///< Exactly the nodes that took part have come.
    met_others,       ///< Fewer have come in time, or others have returned.
    placed,           ///< Every node has the state its ranks resume from, as far as it has room.
    not_placed,       ///< A node could not take its position, or snapshots were not restored.
    ranks_ready,      ///< All ranks are there.
    rank_lost,        ///< A rank's process was killed from outside.
    rank_failed,      ///< A rank failed with an error of its own.
    rank_mistaken,    ///< A rank failed with a user error.
    damage_found,     ///< A starting rank reports that its checkpoint is damaged.
    rank_missed,      ///< A rank is unreachable, or a starting one cannot reach another.
    rank_stranded,    ///< A rank failed because another is missing.
    cause_time_over,  ///< No cause was reported in time.
    launcher_lost,    ///< A node's launcher has ended or is unreachable.
    launcher_came,    ///< The launcher of a node that does not take part has come.
    snapshot_sealed,  ///< A snapshot newer than the nodes' return was sealed.
    nodes_wait,       ///< Returned nodes are to take part now.
    signal,           ///< A stop signal.
    program_over,     ///< The ranks have executed all commands; their state is saved or not.
    phase_over,       ///< The ranks have finished a phase of the objective, and it is saved.
    head_failed,      ///< The conductor, the head's network or its disk failed.
    worker_killed,    ///< Kernel report: a worker of this node was killed externally.
    worker_crashed,   ///< Kernel report: a worker of this node ended by a signal it raised itself.
    ranks_gone,       ///< No rank is left on this node.
  };
  enum class Fact : std::uint8_t {
    first,         ///< No rank of this start has run yet.
    missing,       ///< Nodes that took part are missing.
    room,          ///< The run supports all nodes that have come.
    room_without,  ///< The run supports the nodes without the returned ones.
    signalled,     ///< A signal has requested a stop.
    respawn,       ///< can_respawn(): lost ranks may be restarted.
    allowed,       ///< Respawns allows another start, without progress or from an older checkpoint.
    fewer,         ///< This node can continue with fewer ranks.
    saved,         ///< worth_another_job(): the job has saved a newer checkpoint.
    in_memory,     ///< The ranks resume from memory, ahead of any checkpoint.
    alone,         ///< There is only one rank.
    lost,          ///< The first rank in doubt reports that it cannot reach another.
    welcome,       ///< One more node would have a place.
    waiting,       ///< Returned nodes wait.
    steps_left,    ///< The program has steps left.
  };
  enum class Action : std::uint8_t {
    find_start,       ///< Choose between memory and the newest checkpoint.
    verify,           ///< Before that: verify the reported checkpoint; set it aside if damaged.
    take_nodes,       ///< Set the run up for the nodes that have come.
    forget_memory,    ///< Discard all snapshots; resume from the newest checkpoint.
    go_without,       ///< Nodes without room keep no snapshots; `placed` follows.
    take_fewer,       ///< Set the run up for fewer ranks.
    start_ranks,      ///< On all nodes.
    connect,          ///< Connect head and ranks; the first commands follow.
    wait_for_cause,   ///< For Verdict::cause_time().
    keep_launcher,    ///< Let it wait for a place.
    refuse_launcher,  ///< Tell returned nodes to end, with exit code 0.
    ask_for_place,    ///< Tell the conductor that nodes wait.
    save,             ///< Finish issued commands, save, stop.
    end_ranks,        ///< Close the report, and end all ranks.
    tell_again,       ///< Tell launchers to join the next generation.
    tell_end,         ///< Tell launchers to end, with the exit code.
  };
  friend HeadKind kind_of(State);
  friend HeadKind kind_of(Event);
  friend HeadKind kind_of(Fact);
  friend HeadKind kind_of(Action);
};

using HeadState = HeadKind::State;
using HeadEvent = HeadKind::Event;
using HeadFact = HeadKind::Fact;
using HeadAction = HeadKind::Action;
using HeadFacts = SetOf<HeadFact>;
using HeadRow = TableRow<HeadKind>;
using HeadStep = TableStep<HeadKind>;

template <>
std::span<const HeadRow> rows_of<HeadKind>();

/// Event for a rank's failure.
[[nodiscard]] HeadEvent event_of(const RankFailed& failure);

/// State in which a generation's end leaves the head, and vice versa.
[[nodiscard]] HeadState state_of(GenerationEnd end);
/// REQUIRES: an ending state.
[[nodiscard]] GenerationEnd end_of(HeadState state);

}  // namespace train::run
