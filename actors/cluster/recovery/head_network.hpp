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
#include "actors/cluster/recovery/generations.hpp"
#include "actors/head/prepared_run.hpp"
#include "actors/messages/cluster_messages.hpp"

namespace train::actors {

/// The head's end of one generation's control network: the actor system, the listener that workers
/// and launchers of other nodes come through, and those launchers. Nodes are called as they were
/// first numbered; those that take part are PreparedRun::members.
///
/// Threading: the thread that opened it. Ownership: of the system; whatever its actors use has to
/// outlive this. Borrows the run.
class HeadNetwork {
 public:
  /// Opens the listener of `run`'s generation. Errors: those of make_credentials() and
  /// HeadListener::open().
  [[nodiscard]] static Result<std::unique_ptr<HeadNetwork>> open(PreparedRun& run);
  /// Launchers that nothing was said to end with the code of a stopped run.
  ~HeadNetwork();
  HeadNetwork(const HeadNetwork&) = delete;
  HeadNetwork& operator=(const HeadNetwork&) = delete;

  [[nodiscard]] caf::actor_system& system() { return system_; }
  /// Whom the cluster and the launchers talk to.
  [[nodiscard]] caf::scoped_actor& self() { return self_; }
  [[nodiscard]] const caf::actor& cluster() const { return cluster_; }
  [[nodiscard]] const Endpoint& endpoint() const { return listener_->endpoint(); }

  /// Waits until the launchers of all other nodes that take part are there, at most until
  /// `deadline` and until a signal, and a little for those of nodes that are back; now and then
  /// says for whom.
  [[nodiscard]] Membership meet(std::chrono::steady_clock::time_point deadline);
  /// Every other node takes its position in the run, with room for its snapshots; `memory_step` and
  /// `earlier`: see TakePosition. Blocks, until a node is lost. Errors (failure): one has no room.
  [[nodiscard]] Status give_positions(std::int64_t memory_step, bool earlier);
  /// After meet() of all: every node gets what it lacks of its ranks' snapshots of `step` back from
  /// the next one, its buddy; blocks while bytes move, until a node is lost. Errors (failure): a
  /// node that could not. REQUIRES: of each node, it or its buddy has that step.
  [[nodiscard]] Status restore_memory(std::int64_t step);
  /// A node that takes part and whose launcher is not there any more; none: all are.
  [[nodiscard]] std::optional<std::int64_t> missing() const;
  /// Every node starts its ranks, from the snapshots in memory that the run starts from or, if
  /// there are none, as their assignment says. REQUIRES: the cluster is open.
  void start_ranks();
  /// For every down_msg: a launcher that has ended or cannot be reached is known no more. Its node;
  /// none: that node does not take part, or it was somebody else.
  std::optional<std::int64_t> launcher_down(const caf::down_msg& down);
  /// From here on the launcher of a node is known, whether or not the node takes part.
  void joined(const NodeJoined& node, const caf::strong_actor_ptr& launcher);
  [[nodiscard]] bool takes_part(std::int64_t node) const;
  /// Nodes that do not take part, and whose launchers wait for it, ascending.
  [[nodiscard]] std::vector<std::int64_t> returned() const;
  /// There is no position for them: they are told to end.
  void send_returned_away();
  /// Told to all launchers, also those of nodes that are back. Those that are to end are waited for
  /// until none of their ranks runs, a few seconds at most.
  void end(const GenerationOver& over);

 private:
  struct Launcher {
    caf::actor actor;
    NodeJoined said;
  };

  explicit HeadNetwork(PreparedRun& run);
  /// Writes where this head listens, for the launchers of other nodes.
  Status tell_endpoint();
  /// Waits for MemoryRestored from each of `nodes`. A node that is lost meanwhile, or says nothing
  /// for too long, is missing() then.
  Status await_answers(std::set<std::int64_t> nodes);
  /// Who is there now.
  [[nodiscard]] Membership met() const;
  /// Of the node at `position` (of the last one's next: node 0); none: it is not there.
  [[nodiscard]] const Launcher* launcher_at(std::size_t position) const;
  /// Where that node takes snapshots; empty: nowhere.
  [[nodiscard]] std::string snapshots_of(std::size_t position) const;

  PreparedRun& run_;
  ControlConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  caf::actor cluster_;
  std::map<std::int64_t, Launcher> launchers_;  // by node, as far as they are there
  std::unique_ptr<HeadListener> listener_;
  bool endpoint_told_ = false;
  std::unique_ptr<BuddyLink> link_;
};

/// Where the head listens by `parallel`. Errors (user): no such interface.
[[nodiscard]] Result<HeadListener::Options> listener_options(
    const configs::ParallelSection& parallel);

}  // namespace train::actors
