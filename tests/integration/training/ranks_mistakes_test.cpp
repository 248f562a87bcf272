// A user's mistakes about ranks: one line that says where and how to mend it, exit code 2, no file
// changed, no process left.

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/process/descriptor.hpp"
#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

namespace {

void check_keys(const RunSite& site, const Words& keys, const Words& parts) {
  check_mistake(site, RunSite::run_words(keys), parts);
  CHECK(workers_of(site.path()).empty());
}

// A socket that listens on a port of loopback, and the port.
std::pair<train::Descriptor, int> hold_port() {
  train::Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(socket.get(), generic, size) == 0);
  REQUIRE(::listen(socket.get(), 1) == 0);
  REQUIRE(::getsockname(socket.get(), generic, &size) == 0);
  return {std::move(socket), ntohs(address.sin_port)};
}

}  // namespace

TEST_CASE("ranks: mistakes in the run file", "[integration][ranks][mistakes]") {
  const RunSite site;
  check_keys(site, {"parallel.ranks=4"}, {"parallel.ranks", "4", "3 lanes", "batch.lanes"});
  check_keys(site, {"parallel.ranks=0"}, {"--set parallel.ranks=0", "1 .. "});
  check_keys(site, {"parallel.ranks=3", "parallel.strategy=hybrid", "parallel.group=2"},
             {"parallel.group", "divisor", "(3)", "2"});
  check_keys(site, {"parallel.ranks=2", "parallel.strategy=hybrid"}, {"parallel.group"});
  check_keys(site, {"parallel.ranks=2", "parallel.strategy=ful"}, {"did you mean \"full\""});
  check_keys(site, {"parallel.ranks=2", "parallel.wrapping=[\"blok *\"]"},
             {"parallel.wrapping", "blok *", "block 0"});
  check_keys(site, {"parallel.ranks=2", "parallel.strategy_by_unit=[\"blok * = full\"]"},
             {"parallel.strategy_by_unit", "blok *", "block 0"});
  check_keys(site, {"parallel.ranks=2", "parallel.strategy_by_unit=[\"block * = ful\"]"},
             {"parallel.strategy_by_unit", "did you mean \"full\""});
  check_keys(site, {"parallel.ranks=2", "train.freeze=[\"blok 0\"]"},
             {"train.freeze", "blok 0", "\"head\""});
  check_keys(site, {"parallel.ranks=2", "parallel.strategy=full", "parallel.reshard=3"},
             {"parallel.reshard", "2 ranks"});
  check_keys(site, {"parallel.ranks=2", "parallel.transport=udp"}, {"parallel.transport", "tcp"});
  check_keys(site, {"parallel.ranks=3", "parallel.nodes=2", "parallel.interface=lo"},
             {"parallel.nodes", "divisor"});
}

TEST_CASE("ranks: mistakes about the network", "[integration][ranks][mistakes]") {
  const RunSite site;
  const auto [socket, port] = hold_port();
  check_keys(site, {"parallel.ranks=2", fmt::format("parallel.port={}", port)},
             {"parallel.port", fmt::format("{}", port), "taken", "0 for any free one"});
  check_keys(site, {"parallel.ranks=2", "parallel.interface=none0"},
             {"parallel.interface", "none0", "there are: lo"});
}

TEST_CASE("ranks: more files than a process may open", "[integration][ranks][mistakes]") {
  const RunSite site;
  const auto with_limit = [&site](const char* limit, const Words& keys) {
    Words words = {"/bin/sh", "-c", fmt::format("ulimit {}; exec \"$@\"", limit), "sh", program()};
    const Words run = RunSite::run_words(joined(rank_keys(2, "full"), keys));
    words.insert(words.end(), run.begin(), run.end());
    return Process(std::move(words), site.path()).wait();
  };
  check_one_line(with_limit("-n 100", {}), 2,
                 {"parallel.ranks: 2 ranks need", "this machine allows 100", "ulimit -Hn"});
  const Ended raised = with_limit("-S -n 60", {"run.steps=2"});  // the hard limit is enough
  INFO(raised.err);
  CHECK(raised.exit_code == 0);
}

TEST_CASE("ranks: nodes without Slurm", "[integration][ranks][mistakes]") {
  const RunSite site;
  check_keys(site, {"parallel.ranks=2", "parallel.nodes=2", "parallel.interface=lo"},
             {"parallel.nodes = 2", "srun --ntasks-per-node=1"});
}

TEST_CASE("ranks: a worker that nobody started", "[integration][ranks][mistakes]") {
  const RunSite site;
  check_mistake(site,
                {"worker", "--head", "127.0.0.1:9", "--rank", "0", "--credentials", "nowhere"},
                {"nowhere"});
  check_mistake(site, {"worker", "--head", "nonsense", "--rank", "0", "--credentials", "nowhere"},
                {"nonsense", "HOST:PORT"});
  check_mistake(site, {"worker"}, {"--head"});
}

TEST_CASE("ranks: a number of ranks for which the stored run has too few lanes",
          "[integration][ranks][mistakes]") {
  const RunSite site;
  site.train({"run.steps=2", "schedule.warmup_steps=0"});
  check_keys(site, {"run.steps=2", "schedule.warmup_steps=0", "parallel.ranks=4"},
             {"parallel.ranks", "batch.lanes"});
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{2});
}
