// Nodes whose network is cut. Needs root.

#include "tests/integration/sites/linked_nodes.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

const Words kCutKeys = {"run.digest_interval_steps=1", "batch.lanes=2",
                        "eval.interval_steps=0",       "checkpoint.interval_steps=10",
                        "checkpoint.local_dir=none",   "run.steps=300"};

void skip(const char* test) {
  WARN("skipped: " << test << ": cannot make network name spaces (needs root and iproute2)");
}

}  // namespace

TEST_CASE("cut link: when it works again the run goes on in the same job, to the same bits",
          "[integration][.full][nodes][recovery][P1][P4]") {
  const LinkedNodes nodes(2);
  if (!nodes.made()) {
    return skip("cut link, mended");
  }
  const RunSite site;
  const std::unique_ptr<Process> cut[] = {nodes.start(site, 0, 40, kCutKeys),
                                          nodes.start(site, 1, 40, kCutKeys)};
  wait_for_event(site, *cut[0], "checkpoint_published");
  REQUIRE(nodes.set_link(false));
  let_go(site);
  wait_for_event(site, *cut[0], "rank_lost");
  // The head has ended its rank, and the other node, which nobody could tell, does so by itself.
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  REQUIRE(nodes.set_link(true));
  for (const int node : {0, 1}) {
    const Ended ended = cut[node]->wait();
    INFO(ended.err);
    CHECK(has(ended.err, "respawned generation=1") == (node == 0));
    if (node == 0) {
      check_lost_as(ends_of_lost_node(1, {0, 1}), ended.err);
      check_ends_in_order_as(end_of_steps(300), ended);
    } else {
      check_ends_with_ranks(ended, node);
    }
  }
  site.train(joined(kCutKeys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("cut link: a head without network ends, and the next start goes on to the same bits",
          "[integration][.full][nodes][failure][P1][P4]") {
  const LinkedNodes nodes(2);
  if (!nodes.made()) {
    return skip("cut link");
  }
  const RunSite site;
  const Words keys = joined(kCutKeys, {"recovery.node_wait_s=2"});
  const std::unique_ptr<Process> cut[] = {nodes.start(site, 0, 40, keys),
                                          nodes.start(site, 1, 40, keys)};
  wait_for_event(site, *cut[0], "checkpoint_published");
  REQUIRE(nodes.set_link(false));
  let_go(site);
  for (const int node : {0, 1}) {
    const Ended ended = cut[node]->wait();
    INFO(ended.err);
    if (node == 0) {
      check_ends_as(end_of({.in = HeadState::meeting,
                            .events = {HeadEvent::met_others},
                            .facts = {HeadFact::missing},
                            .words = {.seconds = 2, .text = "*", .nodes = "node 1"}}),
                    ended, "node 1");
    } else {
      check_ends_in_order_as(end_of(run::NodeState::looking, run::NodeEvent::head_not_found,
                                    {run::NodeFact::recorded}, {.node = 1, .text = "75"}, 75),
                             ended);
    }
  }
  CHECK(comes_true([&] { return workers_of(site.path()).empty(); }));
  REQUIRE(nodes.set_link(true));
  const auto head = nodes.start(site, 0, 41, keys);
  const auto other = nodes.start(site, 1, 41, keys);
  let_go(site);
  const Ended ended = head->wait();
  INFO(ended.err);
  check_ends_in_order_as(end_of_steps(300), ended);
  CHECK(has(ended.err, "resumed step="));
  check_ends_with_ranks(other->wait(), 1);
  site.train(joined(keys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("cut link: a node that stays away is gone on without, to the same bits",
          "[integration][.full][nodes][failure][P1][P4]") {
  const LinkedNodes nodes(2);
  if (!nodes.made()) {
    return skip("cut link, a node without network");
  }
  const RunSite site;
  const Words keys = joined(kCutKeys, {"recovery.node_wait_s=2"});
  const std::unique_ptr<Process> cut[] = {nodes.start(site, 0, 40, keys),
                                          nodes.start(site, 1, 40, keys)};
  wait_for_event(site, *cut[0], "checkpoint_published");
  REQUIRE(nodes.set_link(false, 1));
  let_go(site);
  for (const int node : {0, 1}) {
    const Ended ended = cut[node]->wait();
    INFO(ended.err);
    if (node == 0) {
      check_ends_in_order_as(end_of_steps(300), ended);
      CHECK(has(ended.err, "nodes_lost node 1 did not come back within 2 s"));
    } else {  // the run goes on all the while, and it could have come back: it sees the run's end
      check_ends_in_order_as(end_of(run::NodeState::looking, run::NodeEvent::head_not_found,
                                    {run::NodeFact::recorded}, {.node = 1, .text = "0"}, 0),
                             ended);
    }
  }
  CHECK(workers_of(site.path()).empty());
  site.train(joined(keys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}

TEST_CASE("cut link: a node that was given up takes part again when its link works",
          "[integration][.full][nodes][recovery][P4]") {
  const LinkedNodes nodes(2);
  if (!nodes.made()) {
    return skip("cut link, a node that was given up");
  }
  const RunSite site;
  const Words keys = joined(kCutKeys, {"recovery.node_wait_s=2", "run.steps=1000000"});
  const auto head = nodes.start(site, 0, 40, keys);
  const auto other = nodes.start(site, 1, 40, keys);
  wait_for_event(site, *head, "checkpoint_published");
  REQUIRE(nodes.set_link(false, 1));
  let_go(site);
  wait_for_event(site, *head, "nodes_lost");
  // It has heard nothing of the head for as long as it waits for one, and begins anew.
  wait_for_event(site, *head, "node_waiting");
  CHECK(other->running());
  REQUIRE(nodes.set_link(true, 1));
  wait_for_event(site, *head, "nodes_returned");
  wait_for_event(site, *head, "respawned", 2);
  // One that is late for the next meeting takes part in the one after it.
  CHECK(comes_true([&] {
    return has(last_of(events_of(site.run(), "respawned")).at("text"), "ranks=2 nodes=2");
  }));
  CHECK(other->running());
}

TEST_CASE("cut link: ranks that reach the head but not each other are started until they do",
          "[integration][.full][nodes][recovery][P1][P4]") {
  const LinkedNodes nodes(3);
  if (!nodes.made()) {
    return skip("cut link, between two others");
  }
  const RunSite site;
  const Words keys = joined(kCutKeys, {"batch.lanes=3", "recovery.max_respawns=1000"});
  std::vector<std::unique_ptr<Process>> launchers;
  for (const int node : {0, 1, 2}) {
    launchers.push_back(nodes.start(site, node, 40, keys));
  }
  Process& head = *launchers.front();
  wait_for_event(site, head, "checkpoint_published");
  REQUIRE(nodes.part(1, 2));
  ::kill(started_workers(site, head, 3).at(0), SIGKILL);
  let_go(site);
  // The first start ends with the rank that is killed, the second because two cannot connect.
  wait_for_event(site, head, "respawned", 2);
  REQUIRE(nodes.join(1, 2));
  for (const int node : {0, 1, 2}) {
    const Ended ended = launchers[static_cast<std::size_t>(node)]->wait();
    INFO(ended.err);
    if (node == 0) {
      check_ends_in_order_as(end_of_steps(300), ended);
    } else {
      check_ends_with_ranks(ended, node);
    }
  }
  site.train(joined(keys, {"run.name=one"}));
  CHECK(results_of(site.run()) == results_of(site.run("one")));
}
