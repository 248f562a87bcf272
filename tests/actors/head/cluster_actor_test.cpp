#include "actors/head/cluster_actor.hpp"

#include <caf/all.hpp>
#include <catch2/catch.hpp>
#include <optional>

#include "actors/cluster/network/system_config.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::actors {
namespace {

/// A cluster that waits for `ranks` ranks on the head's data; this thread is its waiter.
class Joining {
 public:
  explicit Joining(std::int64_t ranks, std::int64_t memory_step = -1)
      : system_(config_), self_(system_) {
    cluster_ = spawn_cluster(
        system_,
        {.version = "1", .kernel_set = "cpu", .waiter = caf::actor_cast<caf::actor>(self_)});
    Assignment assignment;
    assignment.memory.step = memory_step;
    self_->send(cluster_, OpenCluster{.assignment = assignment,
                                      .ranks = ranks,
                                      .plan_digest = 7,
                                      .data_fingerprint = "data of the head"});
  }
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;
  ~Joining() { caf::anon_send_exit(cluster_, caf::exit_reason::user_shutdown); }

  void say_ready(std::int32_t rank, const std::string& data, std::uint64_t plan_digest = 7,
                 const std::string& kernel_set = "cpu") {
    self_->send(cluster_, WorkerReady{.rank = rank,
                                      .plan_digest = plan_digest,
                                      .data_fingerprint = data,
                                      .kernel_set = kernel_set,
                                      .rank_actor = {},
                                      .process = {}});
  }
  /// The answer to the waiter: none, if all ranks were taken in.
  std::optional<RunFinished> failure() {
    std::optional<RunFinished> failed;
    self_->receive([&](const ClusterReady& ready) { ranks_ = ready.ranks.size(); },
                   [&](const RunFinished& message) { failed = message; });
    return failed;
  }
  template <class Message>
  void tell(const Message& message) {
    self_->send(cluster_, message);
  }
  /// The signal that the cluster hands on for the conductor.
  int signal() {
    int signal = 0;
    self_->receive([&](const StopRequested& stop) { signal = stop.signal; },
                   caf::after(test::hang_limit) >> [] {});
    return signal;
  }
  /// The node whose launcher is for the conductor to miss.
  std::int64_t lost_node() {
    std::int64_t node = -1;
    self_->receive([&](const LauncherLost& lost) { node = lost.node; },
                   caf::after(test::hang_limit) >> [] {});
    return node;
  }
  [[nodiscard]] std::size_t ranks() const { return ranks_; }

 private:
  ControlConfig config_;
  caf::actor_system system_;
  caf::scoped_actor self_;
  caf::actor cluster_;
  std::size_t ranks_ = 0;
};

TEST_CASE("cluster actor: ranks that agree with the head are taken in",
          "[actors][cluster][unit][world]") {
  Joining joining(2);
  joining.say_ready(1, "data of the head");
  joining.say_ready(0, "data of the head");
  CHECK_FALSE(joining.failure());
  CHECK(joining.ranks() == 2);
}

TEST_CASE("cluster actor: a rank that sees other data is refused by name, with both fingerprints",
          "[actors][cluster][unit][world]") {
  Joining joining(2);
  joining.say_ready(0, "data of the head");
  joining.say_ready(1, "other data");
  const auto failed = joining.failure();
  REQUIRE(failed);
  CHECK(failed->exit_code == 2);
  CHECK(failed->end == run::GenerationEnd::run_over);
  CHECK(failed->text.find('\n') == std::string::npos);
  for (const char* part : {"rank 1 ", "(other data)", "(data of the head)", "data.dir"}) {
    INFO(part);
    CHECK(failed->text.find(part) != std::string::npos);
  }
}

TEST_CASE("cluster actor: a rank of another plan or kernel set is refused by name",
          "[actors][cluster][unit][world]") {
  Joining joining(2);
  SECTION("plan") { joining.say_ready(1, "data of the head", 8); }
  SECTION("kernels") { joining.say_ready(1, "data of the head", 7, "gpu"); }
  const auto failed = joining.failure();
  REQUIRE(failed);
  CHECK(failed->exit_code == 2);
  CHECK(failed->text.find("rank 1 ") != std::string::npos);
}

TEST_CASE("cluster actor: a signal before the ranks are there ends the start",
          "[actors][cluster][unit][P4][world]") {
  Joining joining(1);
  joining.tell(StopRequested{15});
  const auto ended = joining.failure();
  REQUIRE(ended);
  CHECK(ended->exit_code == 75);
  CHECK(ended->text == "stopped by signal 15 before the first step");
}

TEST_CASE("cluster actor: what is in memory alone is saved first, a signal waits for the ranks",
          "[actors][cluster][unit][P4][world]") {
  Joining joining(1, 40);
  joining.tell(StopRequested{15});
  joining.say_ready(0, "data of the head");
  CHECK_FALSE(joining.failure());
  CHECK(joining.ranks() == 1);
  CHECK(joining.signal() == 15);
}

TEST_CASE("cluster actor: a launcher lost while ranks start ends the generation, not the run",
          "[actors][cluster][unit][P4][world]") {
  Joining joining(2);
  joining.say_ready(0, "data of the head");
  joining.tell(LauncherLost{3});
  const auto ended = joining.failure();
  REQUIRE(ended);
  CHECK(ended->end == run::GenerationEnd::rank_lost);
  CHECK(ended->text == "the launcher of node 3 has ended or cannot be reached");
}

TEST_CASE("cluster actor: a rank whose checkpoint is damaged ends the generation, not the run",
          "[actors][cluster][unit][P3][world]") {
  Joining joining(2);
  joining.say_ready(0, "data of the head");
  if (GENERATE(false, true)) {  // who misses it may say so sooner
    joining.tell(WorkerFailed{.rank = 0, .text = "rank 1 is not there"});
  }
  joining.tell(WorkerFailed{.rank = 1, .text = "rank 1: tensor x", .damaged = true});
  const auto ended = joining.failure();
  REQUIRE(ended);
  CHECK(ended->end == run::GenerationEnd::damage_found);
  CHECK(ended->exit_code == 1);
  CHECK(ended->text == "rank 1: tensor x");
}

TEST_CASE("cluster actor: what comes when the ranks train is handed back for the conductor",
          "[actors][cluster][unit][P4][world]") {
  Joining joining(1);
  joining.say_ready(0, "data of the head");
  CHECK_FALSE(joining.failure());
  joining.tell(StopRequested{15});
  joining.tell(LauncherLost{3});
  CHECK(joining.signal() == 15);
  CHECK(joining.lost_node() == 3);
}

}  // namespace
}  // namespace train::actors
