// What a program inherits from whoever starts it (a daemon, the first process of a container, a
// shell with limits) changes nothing of a run.

#include "tests/integration/sites/endless_run.hpp"

using namespace train::test;

namespace {

/// A run in the shell, behind `before` and with `streams`.
std::unique_ptr<Process> start_in_shell(const RunSite& site, const std::string& before,
                                        const std::string& streams, const Words& keys,
                                        int ranks = 2) {
  Words words = {"/bin/sh", "-c", before + " exec \"$@\" " + streams, "sh", program()};
  return std::make_unique<Process>(
      joined(words, RunSite::run_words(joined(rank_keys(ranks, "full"), keys))), site.path());
}

/// While it lives, what is started has SIGCHLD ignored.
class ChildrenForgotten {
 public:
  ChildrenForgotten() : before_(std::signal(SIGCHLD, SIG_IGN)) {}
  ChildrenForgotten(const ChildrenForgotten&) = delete;
  ChildrenForgotten& operator=(const ChildrenForgotten&) = delete;
  ~ChildrenForgotten() { std::signal(SIGCHLD, before_); }

 private:
  void (*before_)(int);
};

}  // namespace

TEST_CASE("inherited: a run prints into none of its files where nothing is open at its start",
          "[integration][inherited][P3]") {
  const RunSite site;
  const auto ended =
      start_in_shell(site, "", "<&- >&- 2>&-", {"checkpoint.local_dir=fast"})->wait();
  CHECK(ended.exit_code == 0);
  CHECK(last_step(site.run()) == 20);
  const Ended verified = site.call({"verify", site.run().string()});
  INFO(verified.err);
  CHECK(verified.exit_code == 0);
}

TEST_CASE("inherited: where ended children were to be forgotten, a lost rank is noticed",
          "[integration][inherited][P4]") {
  const RunSite site;
  const auto process = [&] {
    const ChildrenForgotten forgotten;
    return start_in_shell(site, "", "", {kEndless, "checkpoint.interval_steps=1000000"});
  }();
  REQUIRE(process->until([&] { return last_step(site.run()) > 5; }));
  const auto workers = workers_of(site.path());
  REQUIRE(workers.size() == 2);
  ::kill(workers.at(1), SIGKILL);
  wait_for_event(site, *process, "respawned");
  process->send(SIGTERM);
  const Ended ended = process->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 75);
}

TEST_CASE("inherited: files that may not grow any more are failures of writes",
          "[integration][inherited][P3]") {
  const RunSite site;
  // In the shell's units of 512 bytes: less than a shard has.
  const Ended ended =
      start_in_shell(site, "ulimit -f 20;", "", {"checkpoint.interval_steps=5"}, 1)->wait();
  INFO(ended.err);
  CHECK(ended.signal == 0);
  CHECK(has(ended.err, "File too large"));
}
