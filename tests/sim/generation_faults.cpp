#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/messages/collective_messages.hpp"
#include "tests/sim/generation.hpp"

namespace train::sim {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kSilence = 5'000 * kMillisecond;  // until a rank that is cut off is given up

}  // namespace

void Generation::strike_if_due() {
  while (!scene_.faults.empty() && scene_.fault_clock >= scene_.faults.front().after) {
    const Fault fault = scene_.faults.front();
    scene_.faults.pop_front();
    scene_.fault_clock = 0;
    strike(fault);
  }
}

void Generation::strike(const Fault& fault) {
  const std::size_t rank = fault.number % ranks_.size();
  const std::uint64_t detail = fault.number / 64;
  const bool alone = ranks_.size() == 1;  // then it lives in the launcher
  switch (fault.kind) {
    case FaultKind::kill_rank:
      scene_.hit(fault.kind);
      if (alone) {
        lose_launcher(false);
      }
      return kill(rank);
    case FaultKind::kill_rank_in_call:
      return scene_.disk.end_in_call(process_of(rank), detail % 24);
    case FaultKind::kill_launcher_in_call:
      return scene_.disk.end_in_call(kLauncher, detail % 48);
    case FaultKind::power_cut_in_call:
      return scene_.disk.end_in_call(kEverybody, detail % 96);
    case FaultKind::kill_launcher:
    case FaultKind::power_cut:
      scene_.hit(fault.kind);
      lose_launcher(fault.kind == FaultKind::power_cut);
    case FaultKind::cut_rank:
      return alone ? void() : cut(rank);
    case FaultKind::stall_network:
      return alone ? void() : stall(rank, static_cast<std::int64_t>(detail % 3000) * kMillisecond);
    case FaultKind::full_disk:
      scene_.hit(fault.kind);
      return scene_.disk.fill(1 + detail % 40);
    case FaultKind::signal:
      scene_.hit(fault.kind);
      scene_.signalled = true;
      return caf::anon_send(head_.conductor, actors::StopRequested{15});
    case FaultKind::stale_message:
      return send_stale(rank);
  }
}

void Generation::notice_ended_processes() {
  const auto ended = scene_.disk.take_ended_in_call();
  if (!ended) {
    return;
  }
  if (*ended >= 0) {
    scene_.hit(FaultKind::kill_rank_in_call);
    return kill(static_cast<std::size_t>(*ended));
  }
  const bool power = *ended == kEverybody;
  scene_.hit(power ? FaultKind::power_cut_in_call : FaultKind::kill_launcher_in_call);
  lose_launcher(power);
}

/// What is thrown ends everything on its way, and none of that may touch the disk.
void Generation::lose_launcher(bool power) {
  scene_.disk.end(kEverybody);
  throw LauncherGone{.power = power};
}

/// The process is gone: the kernel closes its connections, its node's watcher says so.
void Generation::kill(std::size_t number) {
  Rank& rank = ranks_[number];
  if (!rank.alive) {
    return;
  }
  rank.alive = false;
  struck_ = true;
  killed_.push_back(number);
  scene_.disk.end(process_of(number));
  network_.cut(number, fmt::format("rank {} has closed its connection", number));
  run_now(rank.actors);
  after(static_cast<std::int64_t>(scene_.random() % 200) * kMillisecond, [this, number] {
    caf::anon_send(head_.conductor,
                   actors::RankFailed{static_cast<std::int32_t>(number),
                                      "its process ended: killed by signal 9", 1, false, true});
  });
}

/// Ends these actors before anything else happens.
void Generation::run_now(const std::vector<caf::actor>& actors) {
  for (const caf::actor& actor : actors) {
    caf::anon_send_exit(actor, caf::exit_reason::remote_link_unreachable);
  }
  for (const caf::actor& actor : actors) {
    while (world_.scheduler().prioritize(actor)) {
      world_.run_one();
    }
  }
}

void Generation::cut(std::size_t number) {
  Rank& rank = ranks_[number];
  if (!rank.alive) {
    return;
  }
  scene_.hit(FaultKind::cut_rank);
  struck_ = cut_ = true;
  for (const auto* link : {&rank.to_rank, &rank.to_conductor, &rank.to_index}) {
    (*link)->cut();
  }
  network_.stall(number, true);
  after(kSilence, [this, number] {
    network_.cut(number, fmt::format("rank {} cannot be reached", number));
    for (const auto* link : {&ranks_[number].to_rank, &ranks_[number].to_index}) {
      caf::anon_send_exit((*link)->actor(), caf::exit_reason::remote_link_unreachable);
    }
  });
}

void Generation::stall(std::size_t rank, std::int64_t ns) {
  scene_.hit(FaultKind::stall_network);
  network_.stall(rank, true);
  after(ns, [this, rank] { network_.stall(rank, false); });
}

/// A request of the generation before, or with Bug::stale_generation one that says it is of this.
void Generation::send_stale(std::size_t number) {
  const Rank& rank = ranks_[number];
  const auto ops = engine::expand(rank.context->engine->plan(),
                                  rank.context->engine->rank_plan().passes().step().back());
  if (run_.generation == 0 || ops.empty() || !rank.alive) {
    return;
  }
  scene_.hit(FaultKind::stale_message);
  auto identity = rank.context->identity(ops[scene_.random() % ops.size()], scene_.random() % 4);
  if (scene_.bug != Bug::stale_generation) {
    --identity.generation;
  }
  for (const caf::actor& actor : rank.actors) {
    const auto* local =
        dynamic_cast<caf::local_actor*>(caf::actor_cast<caf::abstract_actor*>(actor));
    if (local != nullptr && std::string_view(local->name()) == "collective") {
      caf::anon_send(actor, actors::RequestCollective{identity});
    }
  }
}

void Generation::after(std::int64_t ns, std::function<void()> action) {
  timers_.push_back({now_ns_ + ns, std::move(action)});
}

}  // namespace train::sim
