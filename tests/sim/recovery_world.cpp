#include "tests/sim/recovery_parties.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sim/checks.hpp"

namespace train::sim {
namespace {

using run::Exit;

constexpr int kMostTurns = 40'000;
constexpr int kLongestReturn = 1'500;  // steps

}  // namespace

void RecoveryWorld::play() {
  for (; !all_over(); ++turn_) {
    if (turn_ == kMostTurns) {
      throw Violation(fmt::format("no end: head {} in generation {}, {}", name_of(state_),
                                  generation_, nodes_text()));
    }
    take_turn();
  }
  judge_end();
  outcome_.exit_code = exit_;
}

void RecoveryWorld::say(const std::string& text) {
  if (trace_) {
    outcome_.trace += fmt::format("{:5} {}\n", turn_, text);
  }
}

std::string RecoveryWorld::nodes_text() const {
  std::string text;
  for (std::size_t node = 1; node < nodes_.size(); ++node) {
    text += fmt::format("node {} {}{}{} ", node, name_of(nodes_[node].state),
                        nodes_[node].alive ? "" : " (gone)", nodes_[node].linked ? "" : " (cut)");
  }
  return text;
}

bool RecoveryWorld::all_over() const {
  return state_ == HeadState::over &&
         std::all_of(nodes_.begin() + 1, nodes_.end(),
                     [](const Node& node) { return !node.alive || node.state == NodeState::over; });
}

void RecoveryWorld::take_turn() {
  for (Node& node : nodes_) {
    ++node.waited;
  }
  ++waited_;
  const int node = upto(static_cast<int>(nodes_.size()));
  switch (upto(6)) {
    case 0:
      return node == 0 ? fault() : node_time(node);
    case 1:
      return node == 0 ? head_time() : node_hears(node);
    case 2:
      return head_hears();
    case 3:
      return node == 0 ? head_time() : node_hears(node);
    case 4:
      return node == 0 ? head_works() : node_works(node);
    default:
      return head_works();
  }
}

void RecoveryWorld::hear(HeadEvent event, const std::string& whose, int told) {
  const HeadFacts facts = facts_of();
  const HeadState before = state_;
  const HeadStep step = decide(state_, event, facts);
  if (taken_ != nullptr) {
    taken_->head.take(state_, event, facts);
  }
  if (step.next != before || !step.actions.empty()) {
    say(fmt::format("head {}: {} -> {}", name_of(before), name_of(event), name_of(step.next)));
  }
  if (before == HeadState::over && (step.next != before || !step.actions.empty())) {
    throw Violation(fmt::format("{} after the run was over", name_of(event)));
  }
  if ((before == HeadState::starting || before == HeadState::training) &&
      (step.next == HeadState::start_doubt || step.next == HeadState::doubt)) {
    first_lost_ = event == HeadEvent::rank_missed;
  }
  if (step.exit != Exit::none) {
    exit_ = exit_code_of(step.exit, before == HeadState::ending_run ? exit_ : told);
    cause_ = event == HeadEvent::ranks_gone || whose.empty() ? cause_ : whose;
  }
  no_way_ = no_way_ || (step.next == HeadState::over && before == HeadState::meeting);
  refused_ = refused_ || (step.next == HeadState::over && before == HeadState::restoring);
  state_ = step.next;
  if (state_ != before) {
    waited_ = 0;
  }
  carry_out(step);
}

HeadFacts RecoveryWorld::facts_of() {
  HeadFacts facts;
  const auto come = launchers_.size() + 1;
  const auto with = come + returned_.size();
  facts.set(HeadFact::first, first_);
  facts.set(HeadFact::missing, missing());
  facts.set(HeadFact::room, with <= rooms_.size() && rooms_[with - 1]);
  facts.set(HeadFact::room_without, !missing() || rooms_[come - 1]);
  facts.set(HeadFact::signalled, signalled_);
  facts.set(HeadFact::respawn, respawn_);
  facts.set(HeadFact::allowed, allowed_);
  facts.set(HeadFact::fewer, respawn_ && nodes_.size() == 1 && node_ranks_ > 1);
  facts.set(HeadFact::saved, saved_);
  facts.set(HeadFact::in_memory, from_memory_);
  facts.set(HeadFact::alone, alone());
  facts.set(HeadFact::lost, first_lost_);
  const auto more = members_.size() + returned_.size() + 1;
  facts.set(HeadFact::welcome, in_memory_kept_ && more <= rooms_.size() && rooms_[more - 1]);
  facts.set(HeadFact::waiting, !returned_.empty() && !asked_);
  facts.set(HeadFact::steps_left, done_ < steps_);
  return facts;
}

void RecoveryWorld::carry_out(const HeadStep& step) {
  if (step.has(HeadAction::refuse_launcher) && state_ != HeadState::restoring) {
    if (facts_of().has(HeadFact::welcome)) {
      throw Violation(fmt::format("node {} is sent away, and there is a place", came_));
    }
    tell(came_, NodeEvent::without);
    came_ = -1;
  } else if (step.has(HeadAction::refuse_launcher)) {
    send_returned_away();
  }
  if (step.has(HeadAction::keep_launcher)) {
    returned_.insert(came_);
  }
  if (step.has(HeadAction::take_nodes)) {
    for (const int node : returned_) {
      outcome_.returns += ever_members_.contains(node) ? 1 : 0;
      launchers_.insert(node);
    }
    returned_.clear();
    members_ = launchers_;
    members_.insert(0);
    counted_ = false;
  }
  if (step.has(HeadAction::verify)) {
    doubted_ = true;
  }
  if (step.has(HeadAction::forget_memory)) {
    from_memory_ = false;
  }
  if (step.has(HeadAction::take_fewer)) {
    --node_ranks_;
  }
  if (step.has(HeadAction::start_ranks)) {
    start_ranks();
  }
  if (step.has(HeadAction::connect)) {
    for (const int node : killed_) {  // its rank was ready, and has ended; its own word comes first
      const bool says = std::any_of(words_.begin(), words_.end(), [node](const Word& word) {
        return word.kind == Word::Kind::rank && word.node == node;
      });
      if (!says) {
        words_.push_back({Word::Kind::rank, node, generation_, HeadEvent::rank_missed});
      }
    }
  }
  if (step.has(HeadAction::ask_for_place)) {
    asked_ = true;
    return hear(HeadEvent::nodes_wait);
  }
  if (step.has(HeadAction::save)) {
    steps_ = done_;  // no step further
  }
  if (step.has(HeadAction::tell_again)) {
    for (const auto* launchers : {&launchers_, &returned_}) {
      for (const int node : *launchers) {
        tell(node, NodeEvent::again);
      }
    }
    begin_meeting();
  }
  if (state_ == HeadState::over) {
    end_head();
  }
}

void RecoveryWorld::send_returned_away() {
  for (const int node : returned_) {
    tell(node, NodeEvent::without);
  }
  returned_.clear();
}

void RecoveryWorld::start_ranks() {
  if (!returned_.empty()) {
    throw Violation("ranks start, and nobody has said what becomes of nodes that are back");
  }
  if (missing()) {
    return hear(HeadEvent::launcher_lost, "a launcher");
  }
  for (const int node : launchers_) {
    const Node& other = nodes_[static_cast<std::size_t>(node)];
    // Of those that the head is in touch with, none runs ranks of an older generation.
    if (other.alive && other.linked && other.connected == generation_ && other.ranks) {
      throw Violation(fmt::format("ranks start while node {} runs older ones", node));
    }
    tell(node, NodeEvent::start);
  }
  first_ = false;
  ranks_ = true;
  killed_.clear();
  never_ready_.clear();
  apart_ = true;
  ready_ = {0};
  ever_members_.insert(members_.begin(), members_.end());
  ++outcome_.generations;
}

void RecoveryWorld::place() {
  for (const int node : launchers_) {
    if (!counted_) {
      tell(node, NodeEvent::position);
    } else if (from_memory_) {
      tell(node, NodeEvent::restore);
    }
  }
}

void RecoveryWorld::begin_meeting() {
  close_network();
  ++generation_;
  launchers_.clear();
  returned_.clear();
  counted_ = true;
  asked_ = false;
  from_memory_ = false;
}

void RecoveryWorld::close_network() {
  for (std::size_t node = 1; node < nodes_.size(); ++node) {
    if (nodes_[node].connected == generation_) {
      tell(static_cast<int>(node), NodeEvent::head_lost);
    }
  }
  words_.clear();
}

void RecoveryWorld::end_head() {
  for (const auto* launchers : {&launchers_, &returned_}) {
    for (const int node : *launchers) {
      tell(node, NodeEvent::end, exit_);
    }
  }
  ranks_ = false;
  close_network();
  launchers_.clear();
  returned_.clear();
  recorded_ = exit_;
  say(fmt::format("head over with {}: {}", exit_, cause_));
}

void RecoveryWorld::tell(int node, NodeEvent event, int exit_code) {
  if (node > 0) {
    nodes_[static_cast<std::size_t>(node)].inbox.push_back({event, generation_, exit_code});
  }
}

void RecoveryWorld::head_time() {
  switch (state_) {
    case HeadState::meeting: {
      const bool time_over = waited_ > (first_ ? 3000 : 150);
      if (missing() && !time_over && !signalled_) {
        return;
      }
      if (missing() || !returned_.empty()) {
        return hear(HeadEvent::met_others, "nodes are missing");
      }
      return hear(HeadEvent::met);
    }
    case HeadState::start_doubt:
    case HeadState::doubt:
      if (upto(8) == 0 && std::none_of(words_.begin(), words_.end(), [this](const Word& word) {
            return word.kind == Word::Kind::rank && word.event != HeadEvent::rank_missed &&
                   word.event != HeadEvent::rank_stranded &&
                   nodes_[static_cast<std::size_t>(word.node)].linked;
          })) {  // else the cause is told in time
        hear(HeadEvent::cause_time_over, doubt_);
      }
      return;
    default:
      return;
  }
}

void RecoveryWorld::head_works() {
  switch (state_) {
    case HeadState::restoring:
      if (found_at_ != generation_) {
        found_at_ = generation_;
        from_memory_ = in_memory_kept_ && upto(2) == 0;
      }
      if (in_memory_kept_ && upto(4) == 0) {
        const bool was_there = from_memory_;
        hear(HeadEvent::not_placed);
        if (was_there || state_ != HeadState::restoring) {
          return;  // once more, from a checkpoint
        }
      }
      if (placed_at_ != generation_) {
        placed_at_ = generation_;
        older_ = std::exchange(doubted_, false) && upto(2) == 0;
        allowed_ = !counted_ || older_ || (respawn_ && respawns_.allow(done_));
        place();
      }
      return hear(HeadEvent::placed, cause_);
    case HeadState::starting:
    case HeadState::start_doubt:
      if (ready_.size() == members_.size() && never_ready_.empty() && upto(5) == 0) {
        hear(HeadEvent::ranks_ready);
        if (signalled_ && steps_ != done_) {
          throw Violation("a signal that came while ranks started is forgotten");
        }
      }
      return;
    case HeadState::training:
      return killed_.empty() ? ranks_train() : void();  // else nobody can take a step
    case HeadState::doubt:
      // They have done all, and lose touch as they end: the head may hear of both.
      return apart_ && !returns_later() ? program_ends() : void();
    case HeadState::ending_loss:
    case HeadState::ending_back:
    case HeadState::ending_phase:
    case HeadState::ending_damage:
    case HeadState::ending_run:
      return upto(6) == 0 ? ranks_end() : void();
    default:
      return;
  }
}

void RecoveryWorld::ranks_train() {
  if (done_ >= steps_ && returns_later()) {
    ++steps_;
    if (++awaited_ > kLongestReturn) {
      throw Violation("a node that was given up does not come back: " + nodes_text());
    }
  }
  if (upto(3) == 0 && !returned_.empty()) {
    return hear(HeadEvent::snapshot_sealed);
  }
  if (done_ < steps_ && done_ != phase_end_) {
    ++done_;
    saved_ = saved_ || (done_ % 7 == 0 && nodes_.size() > 1);
    return;
  }
  program_ends();
}

void RecoveryWorld::program_ends() {
  if (done_ == phase_end_ && done_ < steps_) {
    phase_end_ += 1 + upto(40);
    return hear(HeadEvent::phase_over, "a phase", kExitStopped);
  }
  if (done_ >= steps_) {
    hear(HeadEvent::program_over, "the program",
         signalled_ && done_ < 20 ? kExitStopped : kExitFinished);
  }
}

void RecoveryWorld::ranks_end() {
  if (own_killed_ != 0) {
    const bool crashed = own_killed_ == 2;
    own_killed_ = 0;
    hear(crashed ? HeadEvent::worker_crashed : HeadEvent::worker_killed, "rank 0");
  }
  ranks_ = false;
  hear(HeadEvent::ranks_gone);
  if (state_ == HeadState::restoring) {  // the next phase, which nobody meets for
    begin_meeting();
    counted_ = false;
  }
}

/// A node that does not take part could, and lives: the program goes on until it does.
bool RecoveryWorld::returns_later() const {
  for (std::size_t number = 1; number < nodes_.size(); ++number) {
    const Node& node = nodes_[number];
    const bool known = returned_.contains(static_cast<int>(number));
    const std::size_t with = members_.size() + returned_.size() + (known ? 0 : 1);
    if (node.alive && node.state != NodeState::over && node.linked && with <= rooms_.size() &&
        !members_.contains(static_cast<int>(number)) && rooms_[with - 1]) {
      return in_memory_kept_ && respawn_ && !signalled_;
    }
  }
  return false;
}

void RecoveryWorld::head_hears() {
  if (words_.empty()) {
    return;
  }
  const auto at = words_.begin() + upto(static_cast<int>(words_.size()));
  const Word word = *at;  // of several connections: in any order
  words_.erase(at);
  const Node& node = nodes_[static_cast<std::size_t>(word.node)];
  if (!node.linked || word.generation != generation_) {
    return;
  }
  if (word.kind == Word::Kind::joined && state_ == HeadState::restoring) {
    return words_.push_back(word);  // it is read when ranks start
  }
  switch (word.kind) {
    case Word::Kind::joined:
      if (node.connected != generation_) {
        return;
      }
      if (state_ == HeadState::meeting && members_.contains(word.node)) {
        launchers_.insert(word.node);
        return;
      }
      if (members_.contains(word.node)) {
        return;  // it has still to be missed
      }
      came_ = word.node;
      return hear(HeadEvent::launcher_came);
    case Word::Kind::ready:
      ready_.insert(word.node);
      return;
    case Word::Kind::rank:
      if (word.event == HeadEvent::rank_missed || word.event == HeadEvent::rank_stranded) {
        doubt_ = fmt::format("rank {}", word.node);
      }
      return hear(word.event, fmt::format("rank {}", word.node));
  }
}

RecoveryOutcome simulate_recovery(std::uint64_t seed, bool trace, TakenEntries* taken) {
  RecoveryOutcome outcome;
  try {
    RecoveryWorld world(seed, outcome, trace, taken);
    world.play();
  } catch (const std::exception& violation) {
    outcome.violation = violation.what();
  }
  return outcome;
}

}  // namespace train::sim
