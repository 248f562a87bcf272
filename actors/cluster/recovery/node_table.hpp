#pragma once

#include "actors/cluster/recovery/recovery_table.hpp"

// What the launcher of a node does that is not the head's: one pure function of state, event and
// facts. run_node() carries out what it says.
namespace train::actors {

struct NodeKind {
  enum class State : std::uint8_t {
    first_look,    ///< For the head, which it has not met yet.
    looking,       ///< For the head of a later generation.
    joined,        ///< The head knows it; no rank runs here.
    running,       ///< Its ranks run.
    leaving,       ///< They end: the run is over.
    unclear,       ///< They have ended in disorder, and the head has not said what follows.
    ending_again,  ///< They are ended: others follow.
    ending_lost,   ///< The same: the head is gone.
    over,
    same  ///< In a row alone: the state stays.
  };
  enum class Event : std::uint8_t {
    head_found,      ///< And connected with.
    head_not_found,  ///< Not within the time.
    start,           ///< StartRanks
    position,        ///< TakePosition
    restore,         ///< RestoreMemory
    again,           ///< GenerationOver: join the next generation.
    end,             ///< GenerationOver: the run is over.
    without,         ///< GenerationOver: it goes on without this node.
    head_lost,       ///< It has ended or cannot be reached.
    ranks_ended,     ///< The last rank here has ended by itself.
    word_time_over,  ///< The head has not said what follows.
    ranks_gone,      ///< No rank runs here any more.
  };
  enum class Fact : std::uint8_t {
    respawn,    ///< can_respawn(): lost ranks may be started again.
    in_order,   ///< All ranks here have started, and ended by themselves with exit code 0.
    recorded,   ///< The head has left an exit record.
    signalled,  ///< A signal has asked the run to stop.
    alive,      ///< The run's status has changed while nobody answered: its head goes on.
  };
  enum class Action : std::uint8_t {
    introduce,      ///< NodeJoined, with what is in memory here.
    start_ranks,    ///< From what the order says.
    take_position,  ///< And lay memory out for it.
    restore,        ///< Snapshots, from the buddy or to it.
    end_ranks,      ///< Those that still run.
    idle,           ///< NodeIdle: no rank runs here any more.
    look_again,     ///< For the same time once more.
  };
  friend NodeKind kind_of(State);
  friend NodeKind kind_of(Event);
  friend NodeKind kind_of(Fact);
  friend NodeKind kind_of(Action);
};

using NodeState = NodeKind::State;
using NodeEvent = NodeKind::Event;
using NodeFact = NodeKind::Fact;
using NodeAction = NodeKind::Action;
using NodeFacts = SetOf<NodeFact>;
using NodeRow = TableRow<NodeKind>;
using NodeStep = TableStep<NodeKind>;

template <>
std::span<const NodeRow> rows_of<NodeKind>();

}  // namespace train::actors
