// Whatever goes wrong in one rank ends all of them at once, and the first line of the report says
// which rank, layer and step it was, and what was thrown.

#include "tests/integration/sites/killed_runs.hpp"
#include "tests/integration/table_end.hpp"

using namespace train::test;

namespace {

Words endless(const Words& more = {}) {
  return rank_keys(3, "full",
                   joined({"run.steps=1000000", "eval.interval_steps=0",
                           "checkpoint.interval_steps=0", "recovery.rank_loss=stop"},
                          more));
}

/// The program with a kernel that fails.
std::unique_ptr<Process> start_faulty(const RunSite& site, const std::string& fault,
                                      const Words& keys, const Words& variables = {}) {
  Words words = joined({"/usr/bin/env", "ACTORTRAIN_TEST_FAULT=" + fault}, variables);
  words.push_back(faulty_program());
  return std::make_unique<Process>(joined(words, RunSite::run_words(keys)), site.path());
}

/// The first line that is not only news.
std::string first_report(const Ended& ended) {
  for (const std::string& line : lines_of(ended.err)) {
    const bool of_the_file =
        line.starts_with("warning tiny.toml") || line.starts_with("warning many_epochs ");
    if (line.starts_with("error ") || (line.starts_with("warning ") && !of_the_file)) {
      return line;
    }
  }
  return "no report";
}

}  // namespace

TEST_CASE("root cause: what a kernel or a handler throws is named with rank, layer and step",
          "[integration][.full][ranks][failure][P2]") {
  struct Fault {
    const char* what;
    int rank;
    Words parts;
  };
  // The 20th call: of two blocks and one lane in each step.
  const Fault faults[] = {
      {"throw",
       0,
       {"block 0 (backward attention) of step 10, lane ", ": the kernel has lost its way"}},
      {"bad_alloc",
       2,
       {"block 0 (backward attention) of step 10, lane ", ": out of memory (std::bad_alloc)"}},
      {"handler", 0, {"block 0, step 10: out of memory (std::bad_alloc)"}}};
  for (const Fault& fault : faults) {
    const RunSite site;
    const Ended ended =
        start_faulty(site, fmt::format("{}:20:{}", fault.what, fault.rank), endless())->wait();
    INFO(fault.what << " in rank " << fault.rank << ": " << ended.err);
    check_ends_as(end_of({.in = HeadState::training,
                          .events = {HeadEvent::rank_failed},
                          .words = {.rank = fault.rank, .text = "*"}}),
                  ended);
    const std::string report = first_report(ended);
    CHECK(report == "error " + first_error(ended));
    for (const std::string& part : fault.parts) {
      CHECK(has(report, part));
    }
    CHECK(workers_of(site.path()).empty());
  }
}

TEST_CASE("root cause: a value that is no number is named with rank, layer and step",
          "[integration][ranks][failure][P2]") {
  const RunSite site;
  const Ended ended = start_faulty(site, "nan:19:1", endless())->wait();
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::program_over},
                        .words = {.text = "not finite: *"}}),
                ended);
  const std::string report = first_report(ended);
  for (const char* part : {"not finite", "at step 10", "block 1 (backward)", "lane 1 of rank 1"}) {
    CHECK(has(report, part));
  }
  CHECK(workers_of(site.path()).empty());
}

TEST_CASE("root cause: a worker that throws while it starts is named with what it threw",
          "[integration][.full][ranks][failure][P2]") {
  for (const int rank : {0, 1}) {
    const RunSite site;
    const Ended ended = start_faulty(site, fmt::format("start:0:{}", rank), endless())->wait();
    INFO(ended.err);
    check_ends_as(end_of({.in = HeadState::starting,
                          .events = {HeadEvent::rank_failed},
                          .words = {.text = fmt::format("rank {} failed: starting: *", rank)}}),
                  ended);
    const std::string report = first_report(ended);
    CHECK(has(report, "out of memory (std::bad_alloc)"));
    CHECK(workers_of(site.path()).empty());
  }
}

TEST_CASE("root cause: an exception on a thread of nobody's is named, too",
          "[integration][.full][ranks][failure][P2]") {
  const RunSite site;
  const Ended ended = start_faulty(site, "thread:9:1", endless())->wait();
  INFO(ended.err);
  // What the thread has thrown, by the worker itself; then how its process ended, by the table.
  CHECK(has(first_report(ended), "error rank 1 failed: a thread has lost its way"));
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::rank_lost},
                        .words = {.rank = 1, .text = "*"},
                        .killed_by = SIGABRT}),
                ended, "rank 1 failed: its process");
}

TEST_CASE("root cause: of a killed worker it is the signal, not a lost connection",
          "[integration][.full][ranks][failure][P2]") {
  for (const auto& [rank, signal] :
       {std::pair(0, SIGKILL), std::pair(1, SIGBUS), std::pair(2, SIGSEGV)}) {
    const RunSite site;
    const auto launcher = site.start_run(endless());
    const auto workers = started_workers(site, *launcher, 3);
    wait_for_step(site, *launcher, 1);
    REQUIRE(::kill(workers.at(rank), signal) == 0);
    const Ended ended = launcher->wait();
    INFO(ended.err);
    check_ends_as(end_of({.in = HeadState::training,
                          .events = {HeadEvent::rank_lost},
                          .words = {.rank = rank, .text = "*"},
                          .killed_by = signal}),
                  ended);
    CHECK(workers_of(site.path()).empty());
  }
}
