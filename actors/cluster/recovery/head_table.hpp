#pragma once

#include "actors/cluster/recovery/recovery_table.hpp"
#include "actors/messages/event_messages.hpp"

// What the head does about a lost rank, launcher or node, a signal, and nodes that come back: one
// pure function of state, event and facts. run_generations(), ProcessRanks, the cluster (for ranks
// that start) and the conductor (for ranks that train) carry out what it says.
namespace train::actors {

struct HeadKind {
  enum class State : std::uint8_t {
    meeting,        ///< Launchers of the other nodes come; no rank runs.
    restoring,      ///< The state to resume from is found and laid where its ranks need it.
    starting,       ///< Ranks start.
    start_doubt,    ///< One that starts has lost another, whose own report may come.
    training,       ///< All ranks train.
    doubt,          ///< A rank has lost another, whose own report may come.
    ending_loss,    ///< A rank is lost: the others are ended.
    ending_back,    ///< The same, for nodes that are back.
    ending_phase,   ///< The same, for the next phase of the objective.
    ending_damage,  ///< The same, for a checkpoint that one of them says is damaged.
    ending_run,     ///< The same, for good.
    over,
    same  ///< In a row alone: the state stays.
  };
  enum class Event : std::uint8_t {
    met,              ///< All nodes that took part have come, and nobody else.
    met_others,       ///< Fewer have come in time, or others are back.
    placed,           ///< Every node has what its ranks resume from, as far as it has room.
    not_placed,       ///< A node could not take its position, or memory was not restored.
    ranks_ready,      ///< All ranks are there.
    rank_lost,        ///< A rank's process was killed from outside.
    rank_failed,      ///< A rank failed by an error of its own.
    rank_mistaken,    ///< The same, by a mistake of the user.
    damage_found,     ///< A rank that starts says that its checkpoint is damaged.
    rank_missed,      ///< A rank cannot reach another one, or cannot be reached.
    rank_stranded,    ///< A rank that starts failed as one does that misses another.
    cause_time_over,  ///< Nobody has told a cause for so long.
    launcher_lost,    ///< A node's launcher has ended or cannot be reached.
    launcher_came,    ///< One of a node that does not take part has come.
    snapshot_sealed,  ///< A newer snapshot is in memory than when nodes came back.
    nodes_wait,       ///< Nodes that are back are to take part now.
    signal,           ///< Asks the run to stop.
    program_over,     ///< The ranks have done all that they were told, and it is saved or not.
    phase_over,       ///< All of a phase of the objective, and it is saved.
    head_failed,      ///< The conductor, the head's network or its disk.
    worker_killed,    ///< The kernel: a worker of this node was killed from outside.
    worker_crashed,   ///< The kernel: a worker of this node ended by a signal of its own making.
    ranks_gone,       ///< No rank runs any more on this node.
  };
  enum class Fact : std::uint8_t {
    first,         ///< No rank of this start has run yet.
    missing,       ///< Nodes that took part have not come.
    room,          ///< The run can be one of all nodes that have come.
    room_without,  ///< It can be one of those without the ones that are back.
    signalled,     ///< A signal has asked the run to stop.
    respawn,       ///< can_respawn(): lost ranks may be started again.
    allowed,       ///< Respawns: once more, without progress; or from an older checkpoint.
    fewer,         ///< There is a smaller number of ranks for the run on this node.
    saved,         ///< worth_another_job(): the job has got a checkpoint further.
    in_memory,     ///< The ranks resume from memory: no checkpoint has that.
    alone,         ///< There is one rank.
    lost,          ///< The first that is in doubt says that it cannot reach another.
    welcome,       ///< There would be a place for one node more.
    waiting,       ///< Nodes that are back wait.
    steps_left,    ///< The program has steps left to do.
  };
  enum class Action : std::uint8_t {
    find_start,       ///< Choose between memory and the newest checkpoint.
    verify,           ///< Before that: the checkpoint in question, all of it; a damaged one goes.
    take_nodes,       ///< The run becomes one of the nodes that have come.
    forget_memory,    ///< No snapshot in memory counts any more, the newest checkpoint does.
    go_without,       ///< Nodes without room keep no snapshots in memory; `placed` follows.
    take_fewer,       ///< The run becomes one of fewer ranks.
    start_ranks,      ///< On all nodes.
    connect,          ///< Head and ranks; the first commands follow.
    wait_for_cause,   ///< For kCauseTime.
    keep_launcher,    ///< It waits for a place.
    refuse_launcher,  ///< Nodes that are back are told to end, with exit code 0.
    ask_for_place,    ///< The conductor is told that nodes wait.
    save,             ///< Finish the commands given out, save, stop.
    end_ranks,        ///< Close the report, and end all ranks.
    tell_again,       ///< Launchers: join the next generation.
    tell_end,         ///< Launchers: end, with the exit code.
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

/// What a rank's failure is for the table.
[[nodiscard]] HeadEvent event_of(const RankFailed& failure);

/// How a generation ended is the state that it left the head in, and the other way round.
[[nodiscard]] HeadState state_of(GenerationEnd end);
/// REQUIRES: an ending state.
[[nodiscard]] GenerationEnd end_of(HeadState state);

}  // namespace train::actors
