// Cost of the control connection: a message's round trip to the head, and 500 silent peers. Usage:
// bench_connection.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/rendezvous.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "actors/cluster/nodes/control_files.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "base/process/process.hpp"

namespace {

using namespace train;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kTrips = 20'000;
constexpr int kPeers = 500;
constexpr int kRounds = 5;

int be_head(const fs::path& control) {
  const auto files = actors::make_credentials(control);
  actors::ControlConfig config;
  caf::actor_system system(config);
  const auto listener =
      actors::HeadListener::open(system, actors::spawn_rendezvous(system), files.value(), {});
  TRAIN_CHECK(listener.ok());
  TRAIN_CHECK(actors::write_endpoint(control / "endpoint", (*listener)->endpoint(), "").ok());
  std::this_thread::sleep_for(10min);
  return 0;
}

/// CPU seconds of all threads, from the scheduler.
double processor_seconds(pid_t pid) {
  double sum_ns = 0;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    std::ifstream file(task.path() / "schedstat");
    double used_ns = 0;
    file >> used_ns;
    sum_ns += used_ns;
  }
  return sum_ns / 1e9;
}

double resident_mib(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

Descriptor connect_silently(const actors::Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TRAIN_CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return socket;
}

void wait_for_end(const Descriptor& socket) {
  char byte = 0;
  while (::recv(socket.get(), &byte, 1, 0) > 0) {
  }
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void measure_trips(caf::actor_system& system, const caf::actor& head, const char* round) {
  std::vector<double> trips_us;
  caf::scoped_actor self(system);
  const std::string key = "k";
  self->send(head, actors::RendezvousSet{key, {1, 2, 3, 4}});
  self->receive([](const actors::RendezvousAnswer&) {});
  const auto begin = Clock::now();
  for (int trip = 0; trip < kTrips; ++trip) {
    const auto sent = Clock::now();
    self->send(head, actors::RendezvousGet{key});
    self->receive([](const actors::RendezvousAnswer&) {});
    trips_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - sent).count());
  }
  fmt::print("round trip {}: median {:.0f} us, p99 {:.0f} us, {:.0f} a second\n", round,
             quantile(trips_us, 0.5), quantile(trips_us, 0.99),
             kTrips / std::chrono::duration<double>(Clock::now() - begin).count());
}

void measure_silent_peers(const actors::Endpoint& endpoint, pid_t head) {
  const double memory = resident_mib(head);
  const auto begin = Clock::now();
  const double before = processor_seconds(head);
  std::vector<Descriptor> peers;
  for (int i = 0; i < kPeers; ++i) {
    peers.push_back(connect_silently(endpoint));
  }
  for (const Descriptor& peer : peers) {
    wait_for_end(peer);
  }
  const double used = processor_seconds(head) - before;
  const auto taken = Clock::now() - begin;
  const double grown = resident_mib(head) - memory;
  const double idle_before = processor_seconds(head);
  std::this_thread::sleep_for(taken);
  fmt::print(
      "{} silent peers: {:.4f} s of processor time in {:.1f} s ({:.4f} s without them), "
      "{:+.1f} MiB\n",
      kPeers, used, std::chrono::duration<double>(taken).count(),
      processor_seconds(head) - idle_before, grown);
}

int be_worker() {
  const fs::path control =
      fs::temp_directory_path() / fmt::format("connection_bench_{}", ::getpid());
  auto head = Process::start({"/proc/self/exe", "head", control.string()}, {}).value();
  {
    const auto endpoint = actors::find_head({}, 0, control / "endpoint", 20s).value();
    measure_silent_peers(endpoint, head.pid());
    actors::ControlConfig config;
    caf::actor_system system(config);
    const auto files = actors::load_credentials(control).value();
    const auto begin = Clock::now();
    const auto actor = actors::connect_to_head(system, files, endpoint, 20s).value();
    fmt::print("connecting: {:.1f} ms\n",
               std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    for (int round = 1; round <= kRounds; ++round) {
      measure_trips(system, actor, fmt::format("{}", round).c_str());
    }
    head.kill();
  }
  fs::remove_all(control);
  return 0;
}

}  // namespace

int main(int argc, char* argv[]) {
  std::signal(SIGPIPE, SIG_IGN);
  return argc == 3 && std::string(argv[1]) == "head" ? be_head(argv[2]) : be_worker();
}
