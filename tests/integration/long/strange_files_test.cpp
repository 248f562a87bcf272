// Runs on file systems that tell old news, or that give a lock to everybody. Real processes, which
// have a library preloaded that behaves so.

#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/sites/node_runs.hpp"

using namespace train::test;

namespace {

Words strange(const Words& variables) {
  return joined(
      {"/usr/bin/env", "LD_PRELOAD=" ACTORTRAIN_BINARY_DIR "/tests/libstrange_files_preload.so"},
      variables);
}

const Words kSaves = {kEndless, "checkpoint.interval_steps=200", "eval.interval_steps=0"};

/// A run of one process, on a file system that gives locks to everybody, or with `locks` refused.
std::unique_ptr<Process> start_unlocked(const RunSite& site, const Words& variables = {},
                                        const std::string& locks = "given") {
  const Words words =
      joined(strange(joined(variables, {"ACTORTRAIN_TEST_NO_LOCKS=" + locks})), {program()});
  return std::make_unique<Process>(joined(words, RunSite::run_words(kSaves)), site.path());
}

}  // namespace

TEST_CASE("strange files: a client that believes a file absent loses no node to a lost rank",
          "[integration][.full][nodes][recovery][strange][P4]") {
  const RunSite site;
  const Words keys = joined({kEndless}, {"recovery.node_wait_s=10", "recovery.max_respawns=100"});
  NodeShape shape{.ranks = 2};
  const auto head = start_node(site, 0, 70, keys, "full", shape);
  wait_for_event(site.run(), *head, "started", 1);
  shape.before = strange({"ACTORTRAIN_TEST_ABSENCE_S=30"});
  const auto other = start_node(site, 1, 70, keys, "full", shape);
  std::int64_t furthest = 0;
  for (std::size_t lost = 1; lost <= 10; ++lost) {
    REQUIRE(step_comes(site.run(), *head, furthest + 2));
    furthest = last_step(site.run());
    // The steps may be those of before the loss: the new workers need not be there yet.
    std::map<int, pid_t> workers;
    REQUIRE(head->until([&] {
      workers = workers_of(site.path());
      return workers.size() == 2;
    }));
    ::kill(workers.at(lost % 2 == 0 ? 1 : 0), SIGKILL);
    REQUIRE(event_comes(site.run(), *head, "respawned", lost));
  }
  REQUIRE(step_comes(site.run(), *head, furthest + 2));
  const Ended ended = stopped(*head);
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(other->wait().exit_code == 0);
  CHECK_FALSE(has(ended.err, "nodes_lost"));
}

TEST_CASE("strange files: where nobody gets a lock a run goes on, and a second head is refused",
          "[integration][.full][strange][ST-2][P3]") {
  const RunSite site;
  const auto first = start_unlocked(site, {}, "refused");
  wait_for_event(site, *first, "checkpoint_published", 1);
  const Ended second = start_unlocked(site, {}, "refused")->wait();
  check_one_line(second, 2,
                 {"runs/tiny is already in use by process", std::to_string(first->pid())});
  const Ended ended = stopped(*first);
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK_FALSE(has(ended.err, "index_incomplete"));
  CHECK(newest_checkpoint(site.run()) == last_step(site.run()));
}

TEST_CASE("strange files: where everybody gets the lock a second head is refused all the same",
          "[integration][.full][strange][ST-2][P3]") {
  const RunSite site;
  const auto first = start_unlocked(site);
  wait_for_step(site, *first, 5);
  const Ended second = start_unlocked(site)->wait();
  check_one_line(second, 2,
                 {"runs/tiny is already in use by process", std::to_string(first->pid())});
  wait_for_step(site, *first, last_step(site.run()) + 5);
  const Ended ended = stopped(*first);
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
}

TEST_CASE("strange files: a head that was taken for dead ends before it publishes anything",
          "[integration][.full][strange][ST-2][P3][P4]") {
  const RunSite site;
  const auto first = start_unlocked(site);
  wait_for_event(site, *first, "checkpoint_published", 1);
  ::kill(first->pid(), SIGSTOP);  // its machine is cut off, as another one sees it
  write_bytes(site / "boot", "another-machine\n");
  const auto second = start_unlocked(site, {"ACTORTRAIN_TEST_BOOT=" + (site / "boot").string()});
  wait_for_event(site.run(), *second, "resumed", 1);
  CHECK(has(second->err(), "lock_awaited"));
  ::kill(first->pid(), SIGCONT);
  const Ended dead = first->wait();
  INFO(dead.err);
  CHECK(dead.exit_code == 1);
  CHECK(has(dead.err, "has taken over the run"));
  wait_for_step(site, *second, last_step(site.run()) + 30);
  const Ended ended = stopped(*second);
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(newest_checkpoint(site.run()) == last_step(site.run()));  // each is whole
}
