#include "tests/sim/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "actors/head/head_setup.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/train/runtime/rank_setup.hpp"
#include "base/exit_codes.hpp"

namespace train::sim {
namespace {

constexpr std::int64_t kMostEvents = 400'000;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStuckNs = 200 * kSecond;  // longer than anybody waits in vain
constexpr std::int64_t kLongestDrain = 100;       // events of ranks that are about to be killed

std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 33U;
  value *= 0xff51afd7ed558ccdULL;
  return value ^ value >> 33U;
}

}  // namespace

Generation::Generation(Scene& scene, const run::PreparedRun& run)
    : scene_(scene), run_(run), waits_(std::make_shared<actors::WaitTable>()) {
  ++scene_.tally.generations;
  scene_.disk.revive_ranks();
  scene_.checks.begin(run.first_step(), run.config().parallel.ranks);
  world_.observe([this](std::string_view actor, const caf::type_erased_tuple& message) {
    if (actor == "conductor") {
      scene_.checks.hear(message);
    }
  });
}

Generation::~Generation() {
  for (Connection* connection : network_.connections()) {
    connection->close();
  }
}

int Generation::process_of(std::size_t rank) const {
  return ranks_.size() == 1 ? kLauncher : static_cast<int>(rank);
}

Status Generation::make_ranks() {
  const auto clock = std::make_shared<std::uint64_t>(0);
  const std::int64_t count = run_.config().parallel.ranks;
  std::vector<actors::RankContext> contexts;
  for (std::int64_t rank = 0; rank < count; ++rank) {
    actors::StartState start;
    if (run_.start.checkpoint) {
      start.checkpoint = run_.start.checkpoint->path;
    }
    auto context = actors::make_rank(run_.plan, rank, start, 1, actors::StreamKind::inline_);
    if (!context && (scene_.disk.was_full() || scene_.disk.ended(kLauncher))) {
      return context.error();
    }
    if (!context) {
      throw Violation(fmt::format("rank {} cannot start at step {}: {} (P3)", rank,
                                  run_.first_step(), context.error().message));
    }
    (*context)->generation = run_.generation;
    contexts.push_back(*context);
    ranks_.push_back({.context = *context,
                      .streams = test::RankStreams::install(**context, clock),
                      .to_rank = {},
                      .to_conductor = {},
                      .to_index = {},
                      .actors = {}});
  }
  publish_ = std::make_shared<test::ManualStream>(clock);
  network_.join(contexts);
  if (scene_.bug == Bug::collective_out_of_order && count > 1) {
    for (Connection* connection : network_.connections()) {
      connection->wrong_order = connection->rank() == 1;
    }
  }
  return {};
}

// Ranks and launcher reach each other through links, as processes do.
Status Generation::start_actors() {
  auto report = run::RunReport::open({.directory = run_.directory.root,
                                      .first_step = run_.first_step(),
                                      .total_steps = run_.config().run.steps,
                                      .tokens_per_step = 1,
                                      .tensorboard = false});
  if (!report) {
    return report.error();
  }
  waiter_ = std::make_unique<test::Recorder>(world_.system());
  actors::HeadParts parts = actors::head_parts(run_, std::move(report).value(), publish_);
  parts.report_stream = actors::StreamKind::inline_;
  parts.waits = waits_;
  head_ = actors::start_head(world_.system(), parts);
  for (const caf::actor& actor : head_.all) {
    world_.keep(actor);
  }
  std::vector<actors::RankActor> handles;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    handles.push_back(start_rank(rank));
  }
  actors::connect_head(head_, handles, waiter_->actor());
  return {};
}

actors::RankActor Generation::start_rank(std::size_t number) {
  Rank& rank = ranks_[number];
  auto shards = actors::shard_work({.places = run_.store->locations(),
                                    .tag = run_.store->tag(),
                                    .identity = run_.store->identity(),
                                    .rsync = {.copy = copy_on_disk}},
                                   run_.config().parallel, static_cast<std::int64_t>(number));
  TRAIN_CHECK(shards.ok(), "{}", shards.error().message);
  rank.to_conductor =
      std::make_unique<ControlLink>(world_.system(), head_.conductor, bug_from(number));
  rank.to_index = std::make_unique<ControlLink>(world_.system(), head_.index);
  actors::RankActors started = actors::start_rank(
      world_.system(),
      {.context = rank.context,
       .shards = std::move(shards).value(),
       .reporting = {.digest_interval = run_.config().run.digest_interval_steps}},
      {.conductor = rank.to_conductor->as<actors::ConductorActor>(),
       .index = rank.to_index->as<actors::IndexActor>()});
  rank.to_rank = std::make_unique<ControlLink>(world_.system(), started.rank, bug_towards(number));
  rank.actors = started.all;
  for (const caf::actor& actor : started.all) {
    world_.keep(actor);
  }
  for (const auto* link : {&rank.to_rank, &rank.to_conductor, &rank.to_index}) {
    world_.keep((*link)->actor());
  }
  return rank.to_rank->as<actors::RankActor>();
}

ControlLink::Swallow Generation::bug_towards(std::size_t rank) const {
  if (scene_.bug != Bug::rank_local_evaluation || rank == 0) {
    return {};
  }
  return [conductor = head_.conductor, rank](const caf::message& message) {
    if (!message.match_elements<actors::Command>() ||
        message.get_as<actors::Command>(0).kind != engine::CommandKind::pass ||
        message.get_as<actors::Command>(0).pass != engine::kEvaluation.index) {
      return false;
    }
    caf::anon_send(conductor, actors::CommandFinished{message.get_as<actors::Command>(0).sequence,
                                                      static_cast<std::int32_t>(rank)});
    return true;
  };
}

ControlLink::Swallow Generation::bug_from(std::size_t rank) const {
  if (scene_.bug != Bug::lost_credit || rank != 0) {
    return {};
  }
  return [](const caf::message& message) {
    return message.match_elements<actors::CommandFinished>() &&
           message.get_as<actors::CommandFinished>(0).sequence == 2;
  };
}

Result<actors::RunFinished> Generation::run() {
  TRAIN_RETURN_IF_ERROR(make_ranks());
  run_.store->restored();
  TRAIN_RETURN_IF_ERROR(start_actors());
  const auto over = [this] { return waiter_->count<actors::RunFinished>() > 0; };
  while (!over()) {
    strike_if_due();
    if (!step()) {
      wait();
    }
  }
  const auto outcome = waiter_->all<actors::RunFinished>().front();
  const bool in_order = outcome.exit_code == kExitFinished || outcome.exit_code == kExitStopped;
  check_blame(outcome);
  end(in_order);
  if (waiter_->count<actors::RunFinished>() != 1) {
    throw Violation(fmt::format("a generation ended twice, first: {}", outcome.text));
  }
  return outcome;
}

void Generation::collect() {
  streams_.clear();
  connections_.clear();
  for (const Rank& rank : ranks_) {
    if (rank.alive) {
      rank.streams.add_runnable(streams_);
    }
  }
  if (publish_->pending() > 0) {
    streams_.push_back(publish_.get());
  }
  for (Connection* connection : network_.connections()) {
    if (ranks_[static_cast<std::size_t>(connection->rank())].alive && connection->ready()) {
      connections_.push_back(connection);
    }
  }
}

/// Names what would run: the same whenever the seed is played.
std::uint64_t Generation::key_of(std::size_t choice) {
  constexpr std::uint64_t kStream = 1'000'000;
  constexpr std::uint64_t kConnection = 2'000'000;
  if (choice < world_.runnable()) {
    return dynamic_cast<caf::scheduled_actor&>(*world_.scheduler().jobs[choice]).id();
  }
  choice -= world_.runnable();
  if (choice < streams_.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const test::RankStreams& own = ranks_[rank].streams;
      const std::array<const test::ManualStream*, 5> all = {own.compute, own.copy, own.input,
                                                            own.disk, own.reduce};
      const auto found = std::find(all.begin(), all.end(), streams_[choice]);
      if (found != all.end()) {
        return kStream + rank * all.size() + static_cast<std::uint64_t>(found - all.begin());
      }
    }
    return kStream - 1;
  }
  const auto& all = network_.connections();
  const auto found = std::find(all.begin(), all.end(), connections_[choice - streams_.size()]);
  return kConnection + static_cast<std::uint64_t>(found - all.begin());
}

bool Generation::slow(std::uint64_t key) const {
  constexpr std::uint64_t kWhile = 400;  // events
  const std::uint64_t now = static_cast<std::uint64_t>(events_) / kWhile;
  return mix(key * 7919 + now * 104729 + scene_.plan.seed) % 100 < scene_.plan.slow_percent;
}

/// One message, one piece of stream work, or one step of an exchange. False: there is none.
bool Generation::step() {
  collect();
  const std::size_t actors = world_.runnable();
  const std::size_t choices = actors + streams_.size() + connections_.size();
  if (choices == 0) {
    return false;
  }
  std::size_t choice = 0;
  std::uint64_t key = 0;
  for (int attempt = 0; attempt < 12; ++attempt) {  // the slow have their turn, but seldom
    choice = scene_.random() % choices;
    key = key_of(choice);
    if (!slow(key)) {
      break;
    }
  }
  scene_.trace = mix(scene_.trace ^ key);
  if (++events_ > kMostEvents) {
    throw Violation("no end: " + stuck_text());
  }
  ++scene_.tally.events;
  ++scene_.fault_clock;
  const auto watches = [this](std::size_t job) {
    const auto* actor = dynamic_cast<caf::local_actor*>(world_.scheduler().jobs[job]);
    return actor != nullptr && std::string_view(actor->name()) == "watchdog";
  };
  if (choice >= actors || !watches(choice)) {
    waited_ns_ = 0;
  }
  if (choice < actors) {
    world_.run_one(choice);
  } else if (choice < actors + streams_.size()) {
    run_stream(*streams_[choice - actors]);
  } else {
    connections_[choice - actors - streams_.size()]->move_on();
  }
  notice_ended_processes();
  pass_time(
      static_cast<std::int64_t>(scene_.random() % static_cast<std::uint64_t>(scene_.plan.tick_ns)));
  return true;
}

void Generation::run_stream(test::ManualStream& stream) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (&stream == ranks_[rank].streams.disk) {
      scene_.disk.act_as(process_of(rank));
    }
  }
  stream.run_next();
  scene_.disk.act_as(kLauncher);
}

void Generation::pass_time(std::int64_t ns) {
  now_ns_ += ns;
  world_.advance(std::chrono::nanoseconds(ns));
  for (std::size_t i = 0; i < timers_.size();) {
    if (timers_[i].at_ns <= now_ns_) {
      const auto action = std::move(timers_[i].action);
      timers_.erase(timers_.begin() + static_cast<std::ptrdiff_t>(i));
      action();
    } else {
      ++i;
    }
  }
}

/// Nothing can happen before its time has come.
void Generation::wait() {
  constexpr std::int64_t kPause = 50'000'000;
  pass_time(kPause);
  waited_ns_ += kPause;
  if (waited_ns_ > kStuckNs) {
    throw Violation("stuck: " + stuck_text());
  }
}

std::string Generation::stuck_text() const {
  std::string text;
  const auto add = [&text](const std::string& whose, const actors::WaitTable& board) {
    for (const actors::WaitTable::Wait& wait : board.waiting()) {
      text +=
          fmt::format("{}{}{} waits for {}", text.empty() ? "" : "; ", whose, wait.who, wait.what);
    }
  };
  add("", *waits_);
  for (const Rank& rank : ranks_) {
    if (rank.alive) {
      add(fmt::format("rank {} ", rank.context->rank), rank.context->waits);
    }
  }
  return text.empty() ? "nobody says what it waits for" : text;
}

/// The launcher sends its workers away, and kills those that have not ended soon.
void Generation::end(bool in_order) {
  if (in_order) {
    while (step()) {
    }
    while (!timers_.empty()) {
      wait();
      while (step()) {
      }
    }
    check_waits();
  } else if (ranks_.size() > 1) {
    const auto left = static_cast<std::int64_t>(scene_.random() % kLongestDrain);
    for (std::int64_t event = 0; event < left && step(); ++event) {
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].alive = false;
      scene_.disk.end(process_of(rank));
      run_now(ranks_[rank].actors);
    }
  }
  for (Rank& rank : ranks_) {
    actors::stop_actors(rank.actors);
  }
  actors::stop_actors(head_.all);
  while (step()) {  // what is on the streams of processes that live is done before they end
  }
}

/// A generation that ended by a loss had one; of a rank that was killed alone it names that one.
void Generation::check_blame(const actors::RunFinished& outcome) const {
  if (outcome.end != run::GenerationEnd::rank_lost) {
    return;
  }
  if (!struck_) {
    throw Violation(fmt::format("a generation ended and no rank was lost: {}", outcome.text));
  }
  // Where events take long the news of its end may come after the time that is given to it.
  constexpr std::int64_t kQuick = 1'000;
  const bool alone = killed_.size() == 1 && !cut_;
  if (alone && scene_.plan.tick_ns <= kQuick &&
      !outcome.text.starts_with(fmt::format("rank {} failed: ", killed_.front()))) {
    throw Violation(
        fmt::format("rank {} was killed, and another is named: {}", killed_.front(), outcome.text));
  }
}

void Generation::check_waits() const {
  for (const Rank& rank : ranks_) {
    if (!struck_ && !rank.context->waits.waiting().empty()) {
      throw Violation("a run ended in order, and still " + stuck_text());
    }
  }
}

}  // namespace train::sim
