#pragma once

#include "run/recovery/recovery_table.hpp"

// Reaction of a launcher on a node other than the head's: one pure function of state, event and
// facts. run_node() carries it out.
namespace train::run {

struct NodeKind {
  enum class State : std::uint8_t {
    first_look,    ///< Looking for the head for the first time.
    looking,       ///< Looking for the head of a later generation.
    joined,        ///< Registered with the head; no rank runs here.
    running,       ///< The node's ranks run.
    leaving,       ///< The ranks are ending: the run is over.
    unclear,       ///< The ranks ended in disorder, and the head has not decided yet.
    ending_again,  ///< The ranks are being ended; others follow.
    ending_lost,   ///< The ranks are being ended: the head is gone.
    over,
    same  ///< Only in a row: the state stays.
  };
  enum class Event : std::uint8_t {
    head_found,      ///< The head was found and connected to.
    head_not_found,  ///< The head was not found in time.
    start,           ///< StartRanks.
    position,        ///< TakePosition.
    restore,         ///< RestoreMemory.
    again,           ///< GenerationOver: join the next generation.
    end,             ///< GenerationOver: the run is over.
    without,         ///< GenerationOver: the run continues without this node.
    head_lost,       ///< The head has ended or is unreachable.
    ranks_ended,     ///< The last rank here has ended by itself.
    word_time_over,  ///< The head has not decided in time.
    ranks_gone,      ///< No rank is left here.
  };
  enum class Fact : std::uint8_t {
    respawn,    ///< can_respawn(): lost ranks may be restarted.
    in_order,   ///< All ranks here have started, and ended by themselves with exit code 0.
    recorded,   ///< The head has left an exit record.
    signalled,  ///< A signal has requested a stop.
    alive,      ///< The run's status has changed during the wait: its head is alive.
  };
  enum class Action : std::uint8_t {
    introduce,      ///< Send NodeJoined, with the snapshots held here.
    start_ranks,    ///< From the state given in the order.
    take_position,  ///< Take the position, and lay out memory for it.
    restore,        ///< Snapshots, from or to the buddy.
    end_ranks,      ///< Ranks still running.
    idle,           ///< Send NodeIdle: no rank runs here any more.
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

}  // namespace train::run
