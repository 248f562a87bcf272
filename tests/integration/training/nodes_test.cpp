// Several nodes: a launcher each, whose ranks compute as one run.

#include "tests/integration/sites/node_runs.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

const Words kShortNodes = {"run.steps=6", "run.digest_interval_steps=1", "batch.lanes=5",
                           "schedule.warmup_steps=2"};

/// Both launchers of a job, to its good end.
void start_nodes_to_end(const RunSite& site, int job) {
  const auto other = start_node(site, 1, job, kShortNodes);
  const auto head = start_node(site, 0, job, kShortNodes);
  for (Process* launcher : {head.get(), other.get()}) {
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
  }
}

/// The launcher of node 1 that comes when the head has ended with `code` ends as it did.
void check_comes_late(const RunSite& site, int job, int code) {
  const Ended late = start_node(site, 1, job, kShortNodes)->wait();
  INFO(late.err);
  CHECK(late.exit_code == code);
  check_ends_in_order_as(
      end_of(run::NodeState::first_look, run::NodeEvent::head_not_found, {run::NodeFact::recorded},
             {.node = 1, .text = fmt::format("{}", code)}, code),
      late);
}

/// What the launcher of node 1 says that has lost its head, and whose run cannot do without.
TableEnd end_without_head() {
  return end_of(run::NodeState::looking, run::NodeEvent::head_not_found, {},
                {.node = 1, .seconds = 1});
}

/// Two nodes, of which the head is lost while ranks join.
class LostWhileJoining {
 public:
  LostWhileJoining()
      : head_(start_node(site_, 0, 30, keys())), other_(start_node(site_, 1, 30, keys())) {
    started_workers(site_, *other_, 4);
    head_->send(SIGKILL);
  }

  /// Ranks of the other node do not outlive it.
  void check_end() {
    const Ended ended = other_->wait();
    INFO(ended.err);
    check_ends_as(end_without_head(), ended, "node 1");
    CHECK(comes_true([&] { return workers_of(site_.path()).empty(); }));
  }

 private:
  static Words keys() {
    return joined(kShortNodes, {"run.steps=1000000", "recovery.node_wait_s=1"});
  }

  RunSite site_;
  std::unique_ptr<Process> head_, other_;
};

}  // namespace

TEST_CASE("nodes: two launchers with two ranks each compute the bits of one rank",
          "[integration][ranks][nodes][P1]") {
  const RunSite site;
  const auto other = start_node(site, 1, 7, kShortNodes);  // it waits for the head
  const auto head = start_node(site, 0, 7, kShortNodes);
  const Ended ended = head->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  const Ended other_ended = other->wait();
  INFO(other_ended.err);
  CHECK(other_ended.exit_code == 0);
  CHECK(other_ended.out.empty());  // the head speaks for all
  CHECK(other_ended.err.empty());
  site.train(joined(kShortNodes, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("nodes: launchers whose head has ended, or has nothing to do, end as it did",
          "[integration][.full][ranks][nodes]") {
  const RunSite site;
  start_nodes_to_end(site, 8);
  check_comes_late(site, 8, 0);  // after the run's end
  start_nodes_to_end(site, 9);   // nothing is left to do
}

TEST_CASE("nodes: damage that a start meets ends the other nodes as it ends the head",
          "[integration][.full][nodes][failure]") {
  const RunSite site;
  start_nodes_to_end(site, 13);
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(site.run())) {
    if (file.path().extension() == ".safetensors") {
      write_bytes(file.path(), "damaged");
    }
  }
  const Ended unusable = start_node(site, 0, 14, kShortNodes)->wait();
  INFO(unusable.err);
  CHECK(unusable.exit_code == 1);
  check_comes_late(site, 14, 1);
  write_bytes(site.run() / "config.toml", "[run\nname");
  fs::remove_all(site.run() / "index");  // Has the run's own record of its configuration.
  const Ended mistaken = start_node(site, 0, 15, kShortNodes)->wait();
  INFO(mistaken.err);
  CHECK(mistaken.exit_code == 2);
  check_comes_late(site, 15, 2);
}

TEST_CASE("nodes: a launcher that may not join a head that waits ends by its own mistake's code",
          "[integration][.full][nodes][failure]") {
  const RunSite site;
  const auto head = start_node(site, 0, 16, joined(kShortNodes, {"recovery.start_wait_s=600"}));
  REQUIRE(head->until([&] { return fs::exists(site.run() / "control/endpoint"); }));
  const auto key = site.run() / "control/worker.pem";
  fs::permissions(key, fs::perms(0644));
  const Ended mistaken =
      start_node(site, 1, 16, joined(kShortNodes, {"recovery.start_wait_s=1"}))->wait();
  INFO(mistaken.err);
  CHECK(mistaken.exit_code == 2);
  check_ends_as(end_of(run::NodeState::first_look, run::NodeEvent::head_not_found, {},
                       {.text = "*/worker.pem can be read by others (mode 644); chmod 600 it"}, 2),
                mistaken);
  head->send(SIGTERM);
  const Ended ended = head->wait();
  INFO(ended.err);
  check_ends_in_order_as(end_of({.in = HeadState::meeting,
                                 .events = {HeadEvent::met_others},
                                 .facts = {HeadFact::first, HeadFact::missing, HeadFact::signalled},
                                 .words = {.signal = SIGTERM}}),
                         ended);
  check_comes_late(site, 16, 75);
}

TEST_CASE("nodes: a launcher that nobody joins says for whom it waits, and gives up",
          "[integration][.full][ranks][nodes][failure]") {
  const RunSite site;
  const auto head = start_node(site, 0, 10, joined(kShortNodes, {"recovery.start_wait_s=5"}));
  const auto other = start_node(site, 1, 11, joined(kShortNodes, {"recovery.start_wait_s=1"}));
  const Ended ended = head->wait();
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::meeting,
                        .events = {HeadEvent::met_others},
                        .facts = {HeadFact::first, HeadFact::missing},
                        .words = {.seconds = 5, .nodes = "node 1"}}),
                ended);
  CHECK(has(ended.out + ended.err, "nodes_awaited waiting for node 1; "));
  const Ended alone = other->wait();
  INFO(alone.err);
  check_ends_as(end_of(run::NodeState::first_look, run::NodeEvent::head_not_found, {},
                       {.text = "*(recovery.start_wait_s = 1)"}),
                alone);
}

TEST_CASE("nodes: a lost node ends a run that cannot do without it, and the next start goes on",
          "[integration][.full][ranks][nodes][failure]") {
  LostWhileJoining joining;  // beside the other: its node waits ten seconds for a head
  const RunSite site;
  const Words keys =
      joined(kShortNodes, {"run.steps=1000000", "checkpoint.interval_steps=5",
                           "checkpoint.keep_last=2", "recovery.node_wait_s=1", "parallel.group=4"});
  int job = 20;
  for (const int lost : {1, 0}) {
    INFO("node " << lost << " is lost");
    const std::size_t published = count_events(site.run(), "checkpoint_published");
    const std::unique_ptr<Process> nodes[] = {start_node(site, 0, job, keys),
                                              start_node(site, 1, job, keys)};
    ++job;
    wait_for_event(site, *nodes[0], "checkpoint_published", published + 1);
    nodes[lost]->send(SIGKILL);
    const Ended ended = nodes[1 - lost]->wait();
    INFO(ended.err);
    const TableEnd end =
        lost == 0 ? end_without_head()
                  : end_of({.in = HeadState::meeting,
                            .events = {HeadEvent::met_others},
                            .facts = {HeadFact::missing},
                            .words = {.seconds = 1, .text = "parallel.group*", .nodes = "node 1"}});
    CHECK(end.exit_code == 75);  // to be queued again
    check_ends_as(end, ended, "node 1");
    CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  }
  const std::int64_t done = last_step(site.run());
  const auto head = start_node(site, 0, job, keys);
  const auto other = start_node(site, 1, job, keys);
  wait_for_step(site, *head, done + 1);
  // As a batch system does it: every task of the step is told.
  other->send(SIGTERM);
  head->send(SIGTERM);
  const Ended ended = head->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
  CHECK(has(ended.err, "resumed step="));
  CHECK(other->wait().exit_code == 0);
  joining.check_end();
}
