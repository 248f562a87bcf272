#include "tests/sim/recovery_parties.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/checks.hpp"

namespace train::sim {
namespace {

using run::Exit;
using run::NodeAction;
using run::NodeFact;
using run::NodeFacts;
using run::NodeStep;

}  // namespace

void RecoveryWorld::node_hear(int number, NodeEvent event, int told) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  NodeFacts facts;
  facts.set(NodeFact::respawn, respawn_);
  facts.set(NodeFact::in_order, node.started && node.in_order);
  facts.set(NodeFact::recorded, recorded_.has_value());
  facts.set(NodeFact::signalled, signalled_);
  facts.set(NodeFact::alive, state_ != HeadState::over);
  const NodeState before = node.state;
  const NodeStep step = decide(before, event, facts);
  if (taken_ != nullptr) {
    taken_->node.take(before, event, facts);
  }
  if (step.next != before || !step.actions.empty()) {
    say(fmt::format("node {} {}: {} -> {}", number, name_of(before), name_of(event),
                    name_of(step.next)));
  }
  if (before == NodeState::looking && step.next == NodeState::over && state_ != HeadState::over &&
      !signalled_) {
    throw Violation(fmt::format("node {} gives up, and the run goes on", number));
  }
  node.state = step.next;
  node.waited = node.state == before ? node.waited : 0;
  if (step.exit != Exit::none) {
    told = step.exit == Exit::from_event && event == NodeEvent::ranks_gone ? node.told : told;
    node.exit_code = exit_code_of(step.exit, told);
    node.told = node.exit_code;
  }
  if (step.has(NodeAction::introduce)) {
    words_.push_back({Word::Kind::joined, number, generation_});
  }
  if (step.has(NodeAction::start_ranks)) {
    if (node.ranks) {
      throw Violation(fmt::format("node {} starts ranks beside older ones", number));
    }
    node.ranks = node.started = node.in_order = true;
    words_.push_back({Word::Kind::ready, number, generation_});
  }
  if (step.has(NodeAction::end_ranks)) {
    // Those of a run that has finished may have ended by themselves just before.
    const bool ended = state_ == HeadState::over && exit_ == kExitFinished && upto(2) == 0;
    node.in_order = node.in_order && (!node.ranks || ended);
    node.ranks = false;
    node_hear(number, NodeEvent::ranks_gone);
  }
  if (node.state == NodeState::looking || node.state == NodeState::over) {
    if (node.ranks) {
      throw Violation(fmt::format("node {} has left ranks that run", number));
    }
    if (node.connected == generation_) {
      missed(number);
    }
    node.connected = -1;
    node.inbox.clear();
    node.started = false;
  }
}

void RecoveryWorld::missed(int node) {
  returned_.erase(node);
  if (launchers_.erase(node) > 0) {
    hear(HeadEvent::launcher_lost, fmt::format("node {}", node));
  }
}

void RecoveryWorld::node_hears(int number) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (node.inbox.empty() || !node.alive || !node.linked) {
    return;
  }
  const Node::Word word = node.inbox.front();
  node.inbox.pop_front();
  if (word.generation == node.connected) {
    node_hear(number, word.event, word.exit_code);
  }
}

void RecoveryWorld::node_works(int number) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (!node.alive) {
    return;
  }
  const bool looks = node.state == NodeState::first_look || node.state == NodeState::looking;
  if (looks && node.linked && state_ != HeadState::over) {
    node.connected = generation_;
    node.inbox.clear();
    return node_hear(number, NodeEvent::head_found);
  }
  if (node.ranks && state_ == HeadState::over && node.in_order && exit_ == kExitFinished) {
    node.ranks = false;  // told to go, in order
    return node_hear(number, NodeEvent::ranks_ended);
  }
}

void RecoveryWorld::node_time(int number) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (!node.alive || node.waited < 60) {
    return;
  }
  switch (node.state) {
    case NodeState::first_look:
    case NodeState::looking:
      if (node.waited > 400 || recorded_) {
        node.waited = 0;
        node_hear(number, NodeEvent::head_not_found, recorded_.value_or(kExitFailure));
      }
      return;
    case NodeState::unclear:
      if (faults_left_ > 0 && upto(20) == 0) {
        count_fault("a slow head");
        node_hear(number, NodeEvent::word_time_over);
      } else if (node.waited > 1000) {  // long after the head has heard of it
        node_hear(number, NodeEvent::word_time_over);
      }
      return;
    case NodeState::leaving:
      node.in_order = node.in_order && exit_ == kExitFinished;
      node.ranks = false;
      return node_hear(number, NodeEvent::ranks_ended);
    default:
      return;
  }
}

void RecoveryWorld::fault() {
  mend();
  const int node = upto(static_cast<int>(nodes_.size()));
  if (faults_left_ == 0 || upto(8) != 0 || state_ == HeadState::over) {
    return;
  }
  if (state_ == HeadState::ending_back && node == 0) {
    return dies_at_the_end();
  }
  const int kind = launchers_fail_ && upto(2) == 0 ? 4 + upto(2) : upto(9);
  if (kind == 8) {
    return falls_apart(node);
  }
  if (kind == 7) {
    count_fault("a signal");
    signalled_ = true;
    return hear(HeadEvent::signal, "a signal", kExitStopped);
  }
  if (kind == 6 && node == 0 && upto(6) == 0) {
    return kill_head();
  }
  // Where ranks are ended already, it is settled how.
  if (kind == 5 && node == 0 && state_ <= HeadState::doubt && (starts() || upto(3) == 0)) {
    count_fault("a part of the head failed");
    return hear(HeadEvent::head_failed, "the head");
  }
  if (kind >= 4 && node > 0) {
    return kind == 4 ? kill_launcher(node) : cut(node);
  }
  if (kind == 3 && !from_memory_) {
    return damage_found(node);
  }
  worker_fails(node, kind);
}

void RecoveryWorld::count_fault(const std::string& what) {
  --faults_left_;
  ++outcome_.faults;
  faults_.insert(what);
  say("fault: " + what);
}

bool RecoveryWorld::runs(int number) const {
  const Node& node = nodes_[static_cast<std::size_t>(number)];
  return number == 0 ? ranks_
                     : node.ranks && node.alive && node.linked && node.connected == generation_;
}

void RecoveryWorld::worker_fails(int number, int kind) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (!runs(number) || state_ > HeadState::doubt || killed_.contains(number)) {
    return;
  }
  killed_.insert(number);
  apart_ = false;
  if (upto(2) == 0) {
    never_ready_.insert(number);
  }
  const HeadEvent event = kind == 1                                 ? HeadEvent::rank_failed
                          : kind == 2 && (starts() || upto(4) == 0) ? HeadEvent::rank_mistaken
                                                                    : HeadEvent::rank_lost;
  const bool crashed = number == 0 && event == HeadEvent::rank_lost && upto(4) == 0;
  count_fault(crashed ? "rank_crashed" : std::string(name_of(event)));
  if (number == 0 && event == HeadEvent::rank_lost) {
    own_killed_ = crashed ? 2 : 1;
  }
  for (const int other : members_) {  // the others miss it, before or after it is told
    if (other != number && upto(2) == 0) {
      words_.push_back(
          {Word::Kind::rank, other, generation_,
           starts() && upto(2) == 0 ? HeadEvent::rank_stranded : HeadEvent::rank_missed});
    }
  }
  words_.push_back({Word::Kind::rank, number, generation_, event});
  if (number > 0) {
    node.in_order = false;
    if (upto(2) == 0) {  // the others of the node end with it
      node.ranks = false;
      node_hear(number, NodeEvent::ranks_ended);
    }
  }
}

void RecoveryWorld::dies_at_the_end() {
  if (own_killed_ == 0) {
    own_killed_ = 1 + upto(2);
    count_fault(own_killed_ == 2 ? "rank_crashed" : "rank_lost");
  }
}

void RecoveryWorld::falls_apart(int number) {
  if (!runs(number) || state_ > HeadState::doubt || killed_.contains(number)) {
    return;
  }
  killed_.insert(number);
  if (upto(2) == 0) {
    never_ready_.insert(number);
  }
  const HeadEvent event =
      starts() && !alone() && upto(2) == 0 ? HeadEvent::rank_stranded : HeadEvent::rank_missed;
  count_fault(std::string(name_of(event)));
  words_.push_back({Word::Kind::rank, number, generation_, event});
  nodes_[static_cast<std::size_t>(number)].in_order = false;
}

void RecoveryWorld::damage_found(int number) {
  if (!starts() || !runs(number) || killed_.contains(number)) {
    return;
  }
  killed_.insert(number);
  never_ready_.insert(number);
  apart_ = false;
  count_fault("damage_found");
  words_.push_back({Word::Kind::rank, number, generation_, HeadEvent::damage_found});
}

void RecoveryWorld::kill_head() {
  count_fault("the head killed");
  state_ = HeadState::over;
  head_killed_ = true;
  ranks_ = false;
  close_network();
  launchers_.clear();
  returned_.clear();
}

void RecoveryWorld::kill_launcher(int number) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (!node.alive || node.state == NodeState::over) {
    return;
  }
  count_fault("a launcher killed");
  const bool known = node.connected == generation_;
  node = Node();
  node.alive = false;
  node.state = NodeState::over;
  if (known) {
    missed(number);
  }
}

void RecoveryWorld::cut(int number) {
  Node& node = nodes_[static_cast<std::size_t>(number)];
  if (!node.alive || !node.linked || node.state == NodeState::over) {
    return;
  }
  count_fault("a link cut");
  node.linked = false;
  if (node.connected == generation_) {  // both sides miss their heartbeats
    missed(number);
  }
  node_hear(number, NodeEvent::head_lost);
}

void RecoveryWorld::mend() {
  for (std::size_t number = 1; number < nodes_.size(); ++number) {
    Node& node = nodes_[number];
    if (!node.linked && upto(40) == 0) {
      say(fmt::format("link {} mended", number));
      node.linked = true;
    }
    if (!node.alive && !restarted_.contains(static_cast<int>(number)) && upto(40) == 0 &&
        state_ != HeadState::over) {
      say(fmt::format("launcher {} started anew", number));
      restarted_.insert(static_cast<int>(number));
      node = Node();
    }
  }
}

void RecoveryWorld::judge_end() const {
  const bool own = hit("rank_failed") || hit("rank_crashed");
  const bool lost = hit("rank_lost") || hit("rank_missed") || hit("a launcher killed") ||
                    hit("a link cut") || hit("a slow head");
  const bool ok = exit_ == kExitFinished    ? done_ >= steps_
                  : exit_ == kExitUserError ? hit("rank_mistaken")
                  : exit_ == kExitStopped   ? signalled_ || no_way_ || (refused_ && saved_)
                  : exit_ == kExitFailure
                      ? own || hit("rank_stranded") || hit("a part of the head failed") ||
                            (lost && !respawn_) || (refused_ && !saved_)
                      : false;
  if (!ok && !head_killed_) {
    throw Violation(fmt::format("exit code {} after {} faults ({}), {} steps of {}", exit_,
                                outcome_.faults, fmt::join(faults_, ", "), done_, steps_));
  }
  if (faults_.empty() && exit_ != kExitFinished) {
    throw Violation(fmt::format("exit code {} and nothing had gone wrong", exit_));
  }
  if (outcome_.faults == 1 && (own || hit("rank_mistaken")) && !cause_.starts_with("rank ")) {
    throw Violation(fmt::format("a rank failed, and {} is named", cause_));
  }
  if (outcome_.faults == 1 && hit("a part of the head failed") &&
      (exit_ != kExitFailure || cause_ != "the head")) {
    throw Violation(fmt::format("the head failed, and {} is named, with {}", cause_, exit_));
  }
  for (std::size_t number = 1; number < nodes_.size(); ++number) {
    const Node& node = nodes_[number];
    if (node.alive && node.exit_code != exit_ && node.exit_code != kExitFinished &&
        node.exit_code != kExitStopped && node.exit_code != kExitFailure) {
      throw Violation(fmt::format("node {} ended with {}", number, node.exit_code));
    }
    if (node.ranks) {
      throw Violation(fmt::format("ranks of node {} outlive it", number));
    }
    if (node.alive && faults_.empty() && node.exit_code != kExitFinished) {
      throw Violation(
          fmt::format("node {} ended with {}, the head with 0", number, node.exit_code));
    }
  }
}

}  // namespace train::sim
