#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/training_system.hpp"
#include "run/prepared_run.hpp"
#include "tests/sim/control_link.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/scene.hpp"
#include "tests/support/devices/rank_streams.hpp"
#include "tests/support/runs/actor_world.hpp"

namespace train::sim {

/// One generation of ranks in one thread: all actors, streams and connections, one event at a time,
/// in an order that the seed picks.
class Generation {
 public:
  Generation(Scene& scene, const run::PreparedRun& run);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation();

  /// To its end; nothing of it acts any more then. Errors: the report cannot be opened.
  /// Throws Violation, LauncherGone.
  Result<actors::RunFinished> run();

 private:
  struct Rank {
    actors::RankContext context;
    test::RankStreams streams;
    std::unique_ptr<ControlLink> to_rank, to_conductor, to_index;
    std::vector<caf::actor> actors;
    bool alive = true;
  };
  struct Timer {
    std::int64_t at_ns = 0;
    std::function<void()> action;
  };

  /// Error: a rank could not write what it compares with, for want of space or of a launcher.
  Status make_ranks();
  Status start_actors();
  actors::RankActor start_rank(std::size_t rank);
  [[nodiscard]] ControlLink::Swallow bug_towards(std::size_t rank) const;
  [[nodiscard]] ControlLink::Swallow bug_from(std::size_t rank) const;
  [[nodiscard]] int process_of(std::size_t rank) const;

  // The order of events (generation.cpp).
  bool step();
  void collect();
  [[nodiscard]] std::uint64_t key_of(std::size_t choice);
  [[nodiscard]] bool slow(std::uint64_t key) const;
  void run_stream(test::ManualStream& stream);
  void pass_time(std::int64_t ns);
  void wait();
  [[nodiscard]] std::string stuck_text() const;

  // What goes wrong (generation_faults.cpp).
  void strike_if_due();
  void strike(const Fault& fault);
  void notice_ended_processes();
  void kill(std::size_t rank);
  [[noreturn]] void lose_launcher(bool power);
  void cut(std::size_t rank);
  void stall(std::size_t rank, std::int64_t ns);
  void send_stale(std::size_t rank);
  void after(std::int64_t ns, std::function<void()> action);
  void run_now(const std::vector<caf::actor>& actors);

  void end(bool in_order);
  void check_waits() const;
  void check_blame(const actors::RunFinished& outcome) const;

  Scene& scene_;
  const run::PreparedRun& run_;
  std::vector<Rank> ranks_;
  std::shared_ptr<test::ManualStream> publish_;
  SimNetwork network_;
  std::shared_ptr<actors::WaitTable> waits_;
  test::ActorWorld world_;
  std::unique_ptr<test::Recorder> waiter_;
  actors::HeadActors head_;
  std::vector<Timer> timers_;
  std::int64_t now_ns_ = 0;
  std::int64_t waited_ns_ = 0;  // since anything happened
  bool struck_ = false;         // a rank may be lost
  bool cut_ = false;
  std::vector<std::size_t> killed_;
  std::int64_t events_ = 0;
  // What can happen next: actors first, then these.
  std::vector<test::ManualStream*> streams_;
  std::vector<Connection*> connections_;
};

}  // namespace train::sim
