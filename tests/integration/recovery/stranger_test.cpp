// Whoever finds a port of a run learns nothing, changes nothing and costs nothing.

#include "tests/support/processes/stranger.hpp"
#include "actors/cluster/nodes/control_files.hpp"
#include "tests/integration/sites/held_runs.hpp"
#include "tests/support/processes/port_scanner.hpp"

using namespace train::test;

namespace {

const Words kDisturbedRun = {"run.steps=60", "run.digest_interval_steps=1", "batch.micro_batch=4"};
constexpr std::int64_t kGrowthLimit_kib = 16 * 1024;

std::int64_t resident_kib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::stoll(line.substr(6));
    }
  }
  return -1;
}

/// Sends it and waits until it is hung up on. False: nobody listens.
bool connect_to_head_with(const train::actors::Endpoint& endpoint, const std::string& bytes) {
  const auto socket = connect_to(endpoint);
  if (socket) {
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    CHECK(read_to_end(socket, hang_limit).has_value());
  }
  return static_cast<bool>(socket);
}

// Mostly what would pass for a length, and never a handshake.
std::string garbage(std::mt19937& random) {
  std::string bytes(1 + random() % 5000, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  bytes.front() = 'x';  // 0x16 would begin a TLS record
  return bytes;
}

}  // namespace

TEST_CASE("unauthenticated peers: 100 of them at the control port change no bit and cost no memory",
          "[integration][.full][ranks][unauthenticated peer][P1]") {
  const RunSite site;
  // Held: what it takes meanwhile is the unauthenticated peers'.
  const auto launcher = start_held(site, "0", 4 * 20 + 1, rank_keys(2, "full", kDisturbedRun));
  wait_for_step(site, *launcher, 20);
  const auto endpoint = train::actors::find_head(
      {.start = ".."}, 0, site.run() / "control/endpoint", hang_limit);
  INFO((endpoint.ok() ? "" : endpoint.error().message));
  REQUIRE(endpoint.ok());
  const std::int64_t before_kib = resident_kib(launcher->pid());
  REQUIRE(before_kib > 0);

  std::mt19937 random(11);
  std::vector<train::Descriptor> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(connect_to(*endpoint));
    REQUIRE(silent.back());
  }
  for (int i = 0; i < 40; ++i) {
    REQUIRE(connect_to_head_with(*endpoint, garbage(random)));
  }
  for (int i = 0; i < 20; ++i) {
    CHECK_FALSE(tls_gets_in(*endpoint, nullptr));
  }
  REQUIRE(launcher->running());
  const std::int64_t growth_kib = resident_kib(launcher->pid()) - before_kib;
  fmt::print("100 unauthenticated peers cost the head {} KiB\n", growth_kib);
  CHECK(growth_kib <= kGrowthLimit_kib);

  let_go(site);
  for (int i = 0; i < 40 && connect_to_head_with(*endpoint, garbage(random)); ++i) {
  }  // as many more as come before its end

  const Ended ended = launcher->wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK_FALSE(has(ended.err, "warning"));
  site.train(joined(kDisturbedRun, {"run.name=undisturbed"}));
  CHECK(results_of(site.run()) == results_of(site.run("undisturbed")));
}

TEST_CASE(
    "unauthenticated peers: keys are made anew at every start and readable by their owner alone",
    "[integration][ranks][unauthenticated peer]") {
  const RunSite site;
  const auto key_of = [&] { return read_bytes(site.run() / "control/worker.pem"); };
  const Words keys = rank_keys(2, "none", {"run.steps=2", "schedule.warmup_steps=0"});
  site.train(keys);
  for (const auto& entry : fs::directory_iterator(site.run() / "control")) {
    INFO(entry.path().string());
    const fs::perms open_to_others = fs::perms::group_all | fs::perms::others_all;
    CHECK((fs::status(entry.path()).permissions() & open_to_others) == fs::perms::none);
  }
  CHECK_FALSE(fs::exists(site.run() / "control/endpoint"));  // nobody listens any more
  const std::string first = key_of();
  site.train(joined(keys, {"run.steps=3"}));
  CHECK(key_of() != first);
}

namespace {

/// Waits for a new process of rank 1 and holds it back until the scanner has found a port of those
/// who wait for it. The process; it may have been too late for that.
pid_t come_late(const RunSite& site, Process& launcher, const PortScanner& scanner, pid_t before) {
  constexpr std::chrono::seconds kTooLate{15};  // Half the time that a worker has to join.
  const std::size_t reached = scanner.reached();
  pid_t late = -1;
  REQUIRE(launcher.until([&] {
    const auto workers = workers_of(site.path());
    late = workers.contains(1) ? workers.at(1) : -1;
    return late > 0 && late != before;
  }));
  REQUIRE(::kill(late, SIGSTOP) == 0);
  std::ignore = comes_true([&] { return scanner.reached() > reached; }, kTooLate);
  REQUIRE(::kill(late, SIGCONT) == 0);
  return late;
}

}  // namespace

TEST_CASE("unauthenticated peers: one at every port that opens costs no generation and no bit",
          "[integration][ranks][recovery][unauthenticated peer][P1][P3]") {
  const Words keys = rank_keys(3, "full",
                               {"run.steps=12", "run.digest_interval_steps=1", "batch.lanes=3",
                                "schedule.warmup_steps=0", "recovery.rank_loss=respawn"});
  const RunSite site;
  // Held in its third step, once in each generation: what comes before is the connecting.
  const auto launcher = start_held(site, "0", 2 * 2 + 1, keys);
  const PortScanner scanner(launcher->pid());
  const pid_t first = come_late(site, *launcher, scanner, -1);
  wait_for_step(site, *launcher, 2);
  const std::size_t found_at_start = scanner.reached();
  CHECK(found_at_start > 0);
  REQUIRE(::kill(first, SIGKILL) == 0);
  std::ignore = come_late(site, *launcher, scanner, first);
  let_go(site);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(scanner.reached() > found_at_start);
  CHECK(count_events(site.run(), "rank_lost") == 1);
  CHECK(count_events(site.run(), "respawned") == 1);
  site.train(joined(keys, {"run.name=undisturbed"}));
  CHECK(results_of(site.run()) == results_of(site.run("undisturbed")));
}
