// A node that is lost and does not come back: the others go on without it, in the same job and to
// the same bits, until it comes back. Real processes, real signals. Some strategies, drawn by the
// seed: all of them in `./dev test soak`.

#include <random>

#include "tests/integration/kept_snapshots.hpp"
#include "tests/integration/sites/two_nodes.hpp"
#include "tests/integration/table_end.hpp"
#include "tests/support/harness/drawn.hpp"

using namespace train::test;

namespace {

const Words kFromMemory = {"recovery.node_wait_s=1", "recovery.snapshot_interval_steps=20",
                           "checkpoint.interval_steps=1000"};

/// A node that is there came back later than recovery.node_wait_s allows: that is real time, and
/// the machine busy.
struct CameLate {};

/// Plays a scenario with more and more time for the nodes that are left, until it is enough.
template <class Scenario>
void with_enough_time(const Words& keys, int seconds, Scenario scenario) {
  for (;; seconds *= 2) {
    REQUIRE(seconds < hang_limit.count());
    try {
      scenario(joined(keys, {fmt::format("recovery.node_wait_s={}", seconds)}));
      return;
    } catch (const CameLate&) {
      fmt::print("nodes: {} s were too few to come back\n", seconds);
    }
  }
}

/// The step that a run last resumed from, by its log; 0 if it never did.
std::int64_t resumed_last(const std::string& log) {
  constexpr std::string_view kSaid = "resumed step=";
  const std::size_t at = log.rfind(kSaid);
  return at == std::string::npos ? 0 : std::stoll(log.substr(at + kSaid.size()));
}

/// A run without an end in sight whose nodes are lost one after the other. `in_time`: CameLate is
/// thrown if one that is there is given up.
class ShrinkingRun {
 public:
  ShrinkingRun(NodeShape shape, std::string strategy, const Words& keys, bool in_time = false)
      : shape_(shape),
        strategy_(std::move(strategy)),
        keys_(joined(joined(kShape, {kEndless}), keys)),
        in_time_(in_time) {
    for (int node = 0; node < shape.nodes; ++node) {
      launchers_.push_back(nullptr);
      start(node);
    }
  }

  [[nodiscard]] Process& head() { return *launchers_.front(); }
  [[nodiscard]] Process& launcher(int node) { return *launchers_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] bool has(int node) { return launchers_[static_cast<std::size_t>(node)] != nullptr; }
  [[nodiscard]] const RunSite& site() const { return site_; }

  void start(int node) {
    check_given_up();
    launchers_[static_cast<std::size_t>(node)] =
        start_node(site_, node, 60, keys_, strategy_, shape_);
  }
  /// It is started once more, and the head knows of it.
  void comes_back(int node) {
    const std::string name = fmt::format("node {}", node);
    const std::size_t before = heard_of("node_joined", name);
    start(node);
    hears("node_joined", name, before + 1);
  }
  /// The node is gone at once, with launcher, ranks and memory.
  void lose(int node) {
    furthest_ = std::max(furthest_, last_step(site_.run()));
    launcher(node).send(SIGKILL);
    launcher(node).wait();
    launchers_[static_cast<std::size_t>(node)].reset();
  }
  /// The same when the others have in memory what it had.
  void lose_kept(int node) {
    std::vector<pid_t> launchers;
    std::size_t place = 0;
    for (int other = 0; other < shape_.nodes; ++other) {
      if (other == node) {
        place = launchers.size();
      }
      if (has(other)) {
        launchers.push_back(launcher(other).pid());
      }
    }
    const bool kept = lose_when_kept(site_.path(), launchers, shape_.ranks / shape_.nodes, place,
                                     [&] { lose(node); });
    INFO(head().err());
    REQUIRE(kept);
  }
  /// Waits until the run has come so far.
  void comes_to(std::int64_t step) {
    const bool there = head().until([&] { return last_step(site_.run()) >= step; });
    INFO(head().err());
    REQUIRE(there);
    REQUIRE(head().running());
  }
  /// Waits for more steps than the run has done.
  void makes_progress(std::int64_t steps = 2) { comes_to(last_step(site_.run()) + steps); }
  /// Waits for so many events of a kind with `part` in their text.
  void hears(const std::string& kind, const std::string& part, std::size_t times = 1) {
    const bool heard = head().until([&] {
      check_given_up();
      return heard_of(kind, part) >= times;
    });
    INFO(head().err());
    INFO("wanted: " << kind << " " << part);
    REQUIRE(heard);
  }
  /// So many times have nodes been given up: if others, one came late.
  void has_given_up(std::size_t times) {
    if (heard_of("nodes_lost") != times) {
      throw CameLate{};
    }
  }
  /// So many times have ranks been started without another node: if more often, one that is there
  /// came late.
  void has_been_alone(std::size_t times) {
    if (heard_of("respawned", "nodes=1") != times) {
      throw CameLate{};
    }
  }
  /// Waits until the head gives these nodes up.
  void gives_up(const std::string& nodes) { hears("nodes_lost", nodes + " did not come back"); }
  /// Waits until ranks of so many nodes are started in the place of those before.
  void respawns(int ranks, int nodes, std::size_t times = 1) {
    hears("respawned", fmt::format("ranks={} nodes={}", ranks, nodes), times);
  }
  [[nodiscard]] std::size_t heard_of(const std::string& kind, const std::string& part = "") const {
    const auto events = events_of(site_.run(), kind);
    return static_cast<std::size_t>(std::count_if(
        events.begin(), events.end(),
        [&](const nlohmann::json& event) { return train::test::has(event.at("text"), part); }));
  }
  /// Ends the run when all that was lost has been made good, and checks what it has done; every
  /// launcher ends with it.
  void check_good_end() {
    comes_to(furthest_ + 5);
    const Ended ended = stopped(head());
    INFO("head: " << ended.err);
    for (std::size_t node = 1; node < launchers_.size(); ++node) {
      if (launchers_[node]) {
        const Ended other = launchers_[node]->wait();
        INFO("node " << node << ": " << other.err);
        // One that waited to take part ends as the head does.
        CHECK((other.exit_code == 0 || other.exit_code == 75));
      }
    }
    CHECK(comes_true([&] { return workers_of(site_.path()).empty(); }));
    // A node that came back just before the end took the run to its newest snapshot once more.
    unbroken_run().check_same(site_.run(), std::min(furthest_, resumed_last(ended.err)));
  }

 private:
  /// A node that is given up has been lost.
  void check_given_up() {
    const auto given_up = in_time_ ? events_of(site_.run(), "nodes_lost") : Events{};
    for (; judged_ < given_up.size(); ++judged_) {
      const std::string text = given_up[judged_].at("text");
      std::istringstream words(text.substr(0, text.find(" did not come back")));
      words.ignore(text.size(), ' ');  // "node" or "nodes", and then their numbers
      for (int node = 0; words >> node; words.ignore()) {
        if (has(node)) {
          throw CameLate{};
        }
      }
    }
  }

  using Events = std::vector<nlohmann::json>;

  RunSite site_;
  NodeShape shape_;
  std::string strategy_;
  Words keys_;
  bool in_time_;
  std::size_t judged_ = 0;  ///< Of the times that nodes were given up.
  std::vector<std::unique_ptr<Process>> launchers_;
  std::int64_t furthest_ = 0;  ///< Step before a loss.
};

}  // namespace

TEST_CASE("fewer nodes: one of two does not come back, and the head goes on from both's memory",
          "[integration][.full][soak][nodes][fewer][recovery][P1][P4]") {
  // Not hybrid with two ranks: no group of two would be left.
  const auto [strategy, ranks] =
      GENERATE(from_range(drawn(std::vector<std::pair<std::string, int>>{{"full", 2},
                                                                         {"full", 4},
                                                                         {"none", 2},
                                                                         {"none", 4},
                                                                         {"hybrid", 4},
                                                                         {"optimizer", 2},
                                                                         {"optimizer", 4},
                                                                         {"gradient", 2},
                                                                         {"gradient", 4}},
                                3)));
  CAPTURE(strategy, ranks);
  ShrinkingRun run({.nodes = 2, .ranks = ranks}, strategy, kFromMemory);
  run.comes_to(50);
  run.lose_kept(1);
  run.gives_up("node 1");
  run.check_good_end();
  const std::string log = run.head().err();
  check_lost_as(ends_of_lost_node(1, {0, 1, 2, 3}), log);
  CHECK(count_of(log, " from memory") == 1);
  CHECK(has(log, fmt::format("ranks={} nodes=1", ranks / 2)));
}

TEST_CASE("fewer nodes: two of three go on from memory, and then one",
          "[integration][.full][soak][nodes][fewer][recovery][P1][P4]") {
  const auto [strategy, first] = GENERATE(from_range(drawn(
      std::vector<std::pair<std::string, int>>{
          {"full", 1}, {"full", 2}, {"none", 2}, {"optimizer", 1}, {"gradient", 2}},
      2)));
  CAPTURE(strategy, first);
  with_enough_time(kFromMemory, 3, [&, strategy = strategy, first = first](const Words& keys) {
    ShrinkingRun run({.nodes = 3, .ranks = 3}, strategy, keys, true);
    run.comes_to(50);
    run.lose_kept(first);
    run.gives_up(fmt::format("node {}", first));
    run.comes_to(120);
    run.lose_kept(3 - first);
    run.gives_up(fmt::format("node {}", 3 - first));
    run.check_good_end();
    const std::string log = run.head().err();
    CHECK(count_of(log, " from memory") == 2);
    CHECK(has(log, "ranks=2 nodes=2"));
    CHECK(has(log, "ranks=1 nodes=1"));
  });
}

TEST_CASE("fewer nodes: of those that are left one that is started anew has its place again",
          "[integration][.full][nodes][fewer][recovery][P1][P4]") {
  with_enough_time(kFromMemory, 6, [](const Words& keys) {
    ShrinkingRun run({.nodes = 3, .ranks = 3}, "full", keys, true);
    run.comes_to(50);
    run.lose_kept(1);
    run.gives_up("node 1");
    run.comes_to(120);
    run.lose_kept(2);
    run.start(2);
    run.hears("respawned", "generation=", 2);
    run.has_given_up(1);
    run.check_good_end();
    const std::string log = run.head().err();
    CHECK(count_of(log, " from memory") == 2);
    CHECK(count_of(log, "ranks=2 nodes=2") == 2);
  });
}

TEST_CASE("fewer nodes: what no node has in memory comes from the newest checkpoint",
          "[integration][.full][nodes][fewer][recovery][P1][P3][P4]") {
  ShrinkingRun run({.nodes = 3, .ranks = 3}, "full",
                   {"recovery.node_wait_s=1", "recovery.snapshot_interval_steps=20"});
  run.comes_to(50);
  wait_for_event(run.site(), run.head(), "checkpoint_published");
  run.head().send(SIGSTOP);  // it misses both at once
  run.lose(1);
  run.lose(2);  // and with node 1's buddy all that was kept of it
  run.head().send(SIGCONT);
  run.gives_up("nodes 1, 2");
  run.check_good_end();
  const std::string log = run.head().err();
  INFO(log);
  CHECK(has(log, "checkpoints/step-"));
}

TEST_CASE("fewer nodes: a node that is lost while memory is laid out anew is missed like the first",
          "[integration][.full][nodes][fewer][recovery][P1][P2][P3][P4]") {
  with_enough_time({"recovery.snapshot_interval_steps=20"}, 3, [](const Words& keys) {
    ShrinkingRun run({.nodes = 3, .ranks = 3}, "full", keys, true);
    run.comes_to(50);
    wait_for_event(run.site(), run.head(), "checkpoint_published");
    const std::size_t joined_before = run.heard_of("node_joined", "node 1");
    run.lose(2);
    // Node 1 comes to the meeting, which waits for node 2, and then takes no order any more.
    run.hears("node_joined", "node 1", joined_before + 1);
    run.launcher(1).send(SIGSTOP);
    run.has_given_up(0);
    run.gives_up("node 2");
    run.lose(1);
    run.gives_up("node 1");
    run.check_good_end();
    const std::string log = run.head().err();
    INFO(log);
    const TableEnd missed = end_of(
        {.in = HeadState::starting, .events = {HeadEvent::launcher_lost}, .words = {.node = 1}});
    CHECK(has(log, "warning rank_lost " + missed.line + "\n"));
    CHECK(has(log, "checkpoints/step-"));
    CHECK(has(log, "ranks=1 nodes=1"));
  });
}

TEST_CASE("fewer nodes: where nothing is kept in memory, one that comes too late is told so",
          "[integration][.full][nodes][fewer][recovery][P4]") {
  ShrinkingRun run({.nodes = 2, .ranks = 4}, "full",
                   {"recovery.node_wait_s=1", "recovery.snapshot_interval_steps=0"});
  run.comes_to(50);
  run.lose(1);
  run.hears("respawned", "generation=1");
  run.start(1);
  const Ended late = run.launcher(1).wait();
  INFO(late.err);
  check_ends_in_order_as(end_of(run::NodeState::joined, run::NodeEvent::without, {}, {.node = 1}),
                         late);
  run.check_good_end();
}

TEST_CASE("fewer nodes: one that comes back takes part again",
          "[integration][.full][soak][nodes][fewer][recovery][P1][P4]") {
  const auto [strategy, ranks] = GENERATE(
      from_range(drawn(std::vector<std::pair<std::string, int>>{{"full", 4},
                                                                {"none", 4},
                                                                {"hybrid", 4},
                                                                {"optimizer", 4},
                                                                {"gradient", 4},
                                                                {"full", 2},
                                                                {"optimizer", 2}},
                       3)));
  CAPTURE(strategy, ranks);
  with_enough_time(kFromMemory, 1, [&, strategy = strategy, ranks = ranks](const Words& keys) {
    ShrinkingRun run({.nodes = 2, .ranks = ranks}, strategy, keys);
    run.comes_to(50);
    run.lose_kept(1);
    run.respawns(ranks / 2, 1);
    run.start(1);
    run.hears("nodes_returned", "node 1 came back");
    run.respawns(ranks, 2);
    run.has_been_alone(1);
    run.check_good_end();
    const std::string log = run.head().err();
    CHECK(count_of(log, " from memory") == 2);
    CHECK(count_of(log, "rank_lost") == 1);  // a node that comes back is no loss
  });
}

TEST_CASE("fewer nodes: a rank that is left alone is started again, and not alone for ever",
          "[integration][.full][nodes][fewer][recovery][P1][P4]") {
  with_enough_time(kFromMemory, 1, [](const Words& keys) {
    ShrinkingRun run({.nodes = 2, .ranks = 2}, "full", keys);
    run.comes_to(50);
    run.lose_kept(1);
    run.respawns(1, 1);
    run.makes_progress();
    const auto workers = workers_of(run.site().path());
    REQUIRE(workers.size() == 1);
    REQUIRE(::kill(workers.begin()->second, SIGKILL) == 0);
    run.respawns(1, 1, 2);
    run.start(1);
    run.respawns(2, 2);
    run.has_been_alone(2);
    run.check_good_end();
    CHECK(count_of(run.head().err(), " from memory") == 3);
  });
}

TEST_CASE("fewer nodes: two of three come back, one after the other, and one is lost again",
          "[integration][.full][soak][nodes][fewer][recovery][P1][P4]") {
  const std::string strategy = GENERATE(from_range(drawn(Words{"full", "none"}, 1)));
  CAPTURE(strategy);
  with_enough_time(kFromMemory, 3, [&](const Words& keys) {
    ShrinkingRun run({.nodes = 3, .ranks = 6}, strategy, keys, true);
    run.comes_to(50);
    run.lose(2);
    run.respawns(4, 2);
    run.lose(1);
    run.respawns(2, 1);
    run.start(2);
    run.hears("nodes_returned", "node 2 came back");
    run.respawns(4, 2, 2);
    run.start(1);
    run.hears("nodes_returned", "node 1 came back");
    run.respawns(6, 3);
    run.makes_progress();
    run.lose(2);
    run.respawns(4, 2, 3);
    run.check_good_end();
    CHECK(count_of(run.head().err(), "memory_not_restored") == 0);
  });
}

TEST_CASE("fewer nodes: one that comes back and is lost while it waits disturbs nobody",
          "[integration][.full][nodes][fewer][recovery][P1][P4]") {
  // So rarely are snapshots taken that it waits for the whole run.
  ShrinkingRun run({.nodes = 2, .ranks = 4}, "full",
                   {"recovery.node_wait_s=1", "recovery.snapshot_interval_steps=1000000"});
  run.comes_to(50);
  run.lose(1);
  run.respawns(2, 1);
  for (int time = 0; time < 2; ++time) {
    run.comes_back(1);
    CHECK(run.launcher(1).running());
    run.lose(1);
  }
  run.comes_back(1);  // and this one hears the end of the run
  run.check_good_end();
  CHECK(count_of(run.head().err(), "nodes_returned") == 0);
}

TEST_CASE("fewer nodes: nodes that are lost and come back at random times",
          "[integration][.full][soak][nodes][fewer][recovery][P1][P2][P4]") {
  std::mt19937 random(Catch::rngSeed());
  int lost = 0;
  int started = 0;
  for (int pass = 0; pass < soak(); ++pass) {
    const bool two_each = random() % 2 == 0;
    const char* const strategy = std::array{"full", "none", "optimizer", "gradient",
                                            "hybrid"}[random() % (two_each ? 5 : 4)];
    CAPTURE(strategy, two_each, pass);
    ShrinkingRun run(
        {.nodes = 3, .ranks = two_each ? 6 : 3}, strategy,
        joined(kFromMemory, {"recovery.max_respawns=1000", "checkpoint.interval_steps=100"}));
    run.comes_to(50);
    // One that is killed before it has joined, or while it waits, is no loss: nobody starts again.
    std::array<bool, 3> takes_part = {true, true, true};
    std::size_t running = takes_part.size();
    for (int event = 0; event < 6; ++event) {
      const int node = 1 + static_cast<int>(random() % 2);
      bool& known = takes_part.at(static_cast<std::size_t>(node));
      const bool loses = run.has(node);
      running += loses ? -1 : 1;
      const std::string nodes = fmt::format("nodes={}", running);
      const std::size_t respawned = run.heard_of("respawned", nodes);
      const bool owed = !loses || known;
      if (loses) {
        run.lose(node);
        ++lost;
      } else {
        run.start(node);
        ++started;
      }
      known = false;
      // The next one comes at once, when the ranks are started again, or some steps later.
      const auto when = random() % 3;
      if (when > 0 && owed) {
        run.hears("respawned", nodes, respawned + 1);
        known = !loses;
      }
      if (when > 1) {
        run.makes_progress(1 + static_cast<std::int64_t>(random() % 60));
      }
      REQUIRE(run.head().running());
    }
    run.check_good_end();
  }
  fmt::print("nodes: lost {} times and back {} times\n", lost, started);
  CHECK(lost > 0);
}
