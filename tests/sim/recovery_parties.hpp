#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/exit_codes.hpp"
#include "run/recovery/generations.hpp"
#include "run/recovery/head_table.hpp"
#include "run/recovery/node_table.hpp"
#include "tests/sim/recovery_world.hpp"
#include "tests/sim/table_entries.hpp"

namespace train::sim {

using run::HeadAction;
using run::HeadEvent;
using run::HeadFact;
using run::HeadFacts;
using run::HeadState;
using run::HeadStep;
using run::NodeEvent;
using run::NodeState;

/// A launcher of a node that is not the head's, and its link to the head.
struct Node {
  NodeState state = NodeState::first_look;
  bool alive = true;     // the launcher's process
  bool linked = true;    // the network to the head
  bool ranks = false;    // some run
  bool in_order = true;  // none has ended in disorder
  bool started = false;  // in this generation
  int connected = -1;    // to the head's network of so many generations
  int told = -1;         // exit code that the head has said
  int waited = 0;        // turns in its state
  int exit_code = -1;
  struct Word {
    NodeEvent event;
    int generation;
    int exit_code;
  };
  std::deque<Word> inbox;
};

/// Node to head.
struct Word {
  enum class Kind : std::uint8_t { joined, ready, rank } kind;
  int node;
  int generation;
  HeadEvent event = HeadEvent::rank_lost;
};

/// One run of a seed: see simulate_recovery().
class RecoveryWorld {
 public:
  RecoveryWorld(std::uint64_t seed, RecoveryOutcome& outcome, bool trace, TakenEntries* taken)
      : random_(seed),
        outcome_(outcome),
        trace_(trace),
        taken_(taken),
        recovery_{.rank_loss = "respawn", .max_respawns = 1 + upto(3)},
        respawns_(recovery_, 0) {
    nodes_.resize(1 + static_cast<std::size_t>(upto(5)));  // nodes_[0] is the head's, unused
    faults_left_ = upto(12);
    steps_ = 20 + upto(150);
    respawn_ = upto(6) != 0;
    in_memory_kept_ = upto(3) != 0 && respawn_;
    node_ranks_ = 1 + upto(3);
    launchers_fail_ = upto(3) == 0;
    phase_end_ = nodes_.size() == 1 ? 1 + upto(40) : -1;
    for (std::size_t count = 1; count <= nodes_.size(); ++count) {
      rooms_.push_back(count == nodes_.size() || upto(4) != 0);
    }
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      members_.insert(static_cast<int>(node));
    }
  }

  void play();

 private:
  int upto(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

  void say(const std::string& text);
  [[nodiscard]] std::string nodes_text() const;
  [[nodiscard]] bool all_over() const;
  void take_turn();

  void hear(HeadEvent event, const std::string& whose = {}, int told = kExitFailure);
  [[nodiscard]] HeadFacts facts_of();
  [[nodiscard]] bool missing() const { return launchers_.size() + 1 < members_.size(); }
  [[nodiscard]] bool alone() const { return members_.size() == 1 && node_ranks_ == 1; }
  [[nodiscard]] bool starts() const {
    return state_ == HeadState::starting || state_ == HeadState::start_doubt;
  }

  void carry_out(const HeadStep& step);
  void send_returned_away();
  void start_ranks();
  void begin_meeting();
  void close_network();
  void end_head();
  /// Says what the launchers need for the state that their ranks resume from.
  void place();
  void tell(int node, NodeEvent event, int exit_code = kExitFailure);
  /// What takes time at the head.
  void head_time();
  void head_works();
  void ranks_train();
  void program_ends();
  void ranks_end();
  void head_hears();
  [[nodiscard]] bool returns_later() const;

  void node_hear(int number, NodeEvent event, int told = kExitFailure);
  /// The head misses the launcher, sooner or later.
  void missed(int node);
  void node_hears(int number);
  void node_works(int number);
  void node_time(int number);

  void fault();
  void count_fault(const std::string& what);
  /// True if ranks of this node run, and the head would hear of them.
  [[nodiscard]] bool runs(int number) const;
  void worker_fails(int number, int kind);
  /// A rank of the head's node dies while it is being ended.
  void dies_at_the_end();
  /// One loses touch with another, which lives.
  void falls_apart(int number);
  /// One that starts says that its checkpoint is damaged; half of them are right.
  void damage_found(int number);
  /// Nobody is told anything; its ranks end with it.
  void kill_head();
  void kill_launcher(int number);
  void cut(int number);
  /// Links work again, and launchers are started anew, sooner or later.
  void mend();

  [[nodiscard]] bool hit(const char* fault) const { return faults_.contains(fault); }

  void judge_end() const;

  std::mt19937_64 random_;
  RecoveryOutcome& outcome_;
  bool trace_;
  TakenEntries* taken_;  // null: nobody counts
  configs::RecoverySection recovery_;
  run::Respawns respawns_;
  std::vector<Node> nodes_;
  std::vector<bool> rooms_;  // the run can be one of 1, 2, ... nodes
  int turn_ = 0, waited_ = 0, faults_left_ = 0, steps_ = 0, done_ = 0, generation_ = 0;
  int awaited_ = 0, found_at_ = -1, placed_at_ = -1, came_ = -1, exit_ = -1, own_killed_ = 0;
  int node_ranks_ = 1;
  int phase_end_ = -1;  // a step after which the objective wants other ranks
  HeadState state_ = HeadState::meeting;
  bool first_ = true, respawn_ = true, in_memory_kept_ = true, signalled_ = false, ranks_ = false;
  bool allowed_ = true, counted_ = true, saved_ = false, from_memory_ = false;
  bool first_lost_ = false, asked_ = false, head_killed_ = false;
  bool doubted_ = false, older_ = false;  // a checkpoint; it was damaged
  bool no_way_ = false, refused_ = false;
  bool launchers_fail_ = false;  // more often than anything else
  bool apart_ = true;            // of the ranks that have failed, none has died: they lost touch
  std::set<int> members_, launchers_, returned_, ready_, killed_, never_ready_, ever_members_,
      restarted_;
  std::vector<Word> words_;
  std::optional<int> recorded_;
  std::string cause_, doubt_;
  std::set<std::string> faults_;
};

}  // namespace train::sim
