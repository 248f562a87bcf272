#pragma once

#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/nodes/control_files.hpp"
#include "actors/cluster/recovery/buddy_link.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "run/prepared_run.hpp"
#include "run/recovery/generations.hpp"

namespace train::actors {

/// Head's end of one generation's control network: the actor system, the listener for workers and
/// launchers of other nodes, and those launchers. Nodes have their original numbers; those that
/// take part are RunNodes::members.
///
/// Threading: the thread that opened it. Ownership: owns the system; everything used by its actors
/// must outlive this object. Borrows the run.
class HeadNetwork {
 public:
  /// Opens the listener of `run`'s generation. Errors: those of make_credentials() and
  /// HeadListener::open().
  [[nodiscard]] static Result<std::unique_ptr<HeadNetwork>> open(run::PreparedRun& run);
  /// Makes launchers that got no other order end with the code of a stopped run.
  ~HeadNetwork();
  HeadNetwork(const HeadNetwork&) = delete;
  HeadNetwork& operator=(const HeadNetwork&) = delete;

  [[nodiscard]] caf::actor_system& system() { return *system_; }
  /// Receiver of messages from the cluster and the launchers.
  [[nodiscard]] caf::scoped_actor& self() { return self_; }
  [[nodiscard]] const caf::actor& cluster() const { return cluster_; }
  [[nodiscard]] const Endpoint& endpoint() const { return listener_->endpoint(); }

  /// Waits for the launchers of all other nodes that take part, at most until `deadline` and until
  /// a signal, and briefly for those of returned nodes; logs at intervals for whom.
  [[nodiscard]] run::Membership meet(std::chrono::steady_clock::time_point deadline);
  /// Gives every other node its position in the run, with room for its snapshots; `memory_step` and
  /// `earlier`: see TakePosition. Blocks, until a node is lost. Errors (failure): a node lacks
  /// room.
  [[nodiscard]] Status give_positions(std::int64_t memory_step, bool earlier);
  /// Called after all have met: returns missing snapshots of `step` to every node from the next
  /// one, its buddy; blocks while bytes move, until a node is lost. Errors (failure): a node that
  /// failed. REQUIRES: for each node, it or its buddy has that step.
  [[nodiscard]] Status restore_memory(std::int64_t step);
  /// Node that takes part and whose launcher is gone; nullopt: none.
  [[nodiscard]] std::optional<std::int64_t> missing() const;
  /// Makes every node start its ranks, from the snapshots that the run resumes from or, if there
  /// are none, as their assignment says. REQUIRES: the cluster is open.
  void start_ranks();
  /// Called for every down_msg: forgets a launcher that has ended or is unreachable. Returns its
  /// node; nullopt: the node does not take part, or the message is about another actor.
  std::optional<std::int64_t> launcher_down(const caf::down_msg& down);
  /// Registers the launcher of a node, whether or not the node takes part.
  void joined(const NodeJoined& node, const caf::strong_actor_ptr& launcher);
  [[nodiscard]] bool takes_part(std::int64_t node) const;
  /// Nodes that do not take part, and whose launchers wait for that, ascending.
  [[nodiscard]] std::vector<std::int64_t> returned() const;
  /// Tells returned nodes to end, as there is no position for them.
  void send_returned_away();
  /// Sends to all launchers, those of returned nodes included. Waits, a few seconds at most, until
  /// launchers that are to end have no running ranks.
  void end(const GenerationOver& over);

 private:
  struct Launcher {
    caf::actor actor;
    NodeJoined said;
  };

  explicit HeadNetwork(run::PreparedRun& run);
  /// Publishes this head's address for the launchers of other nodes.
  Status tell_endpoint();
  /// Waits for MemoryRestored from each of `nodes`. A node that is lost, or does not answer in
  /// time, becomes missing().
  Status await_answers(std::set<std::int64_t> nodes);
  /// Nodes that are there now.
  [[nodiscard]] run::Membership met() const;
  /// Launcher of the node at `position` (after the last one: node 0); null: it is missing.
  [[nodiscard]] const Launcher* launcher_at(std::size_t position) const;
  /// Address at which that node receives snapshots; empty: none.
  [[nodiscard]] std::string snapshots_of(std::size_t position) const;

  run::PreparedRun& run_;
  ControlConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scoped_actor self_;
  caf::actor cluster_;
  std::map<std::int64_t, Launcher> launchers_;  // By node, if present.
  std::unique_ptr<HeadListener> listener_;
  bool endpoint_told_ = false;
  std::unique_ptr<BuddyLink> link_;
};

/// Listening address of the head according to `parallel`. Errors (user): no such interface.
[[nodiscard]] Result<HeadListener::Options> listener_options(
    const configs::ParallelSection& parallel);

}  // namespace train::actors
