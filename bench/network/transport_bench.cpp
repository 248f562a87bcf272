// Cost of moving bytes between two processes: the engine's exchange over Gloo, by reading the
// other's memory and over loopback TCP, against Gloo's own alltoall and allgather over loopback
// TCP. Usage: transport_bench [rounds].
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gloo/allgather.h>
#include <gloo/alltoall.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/collective/tcp_transport.hpp"
#include "tests/support/disks/file_store.hpp"

namespace {

using namespace train;
using namespace train::engine;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr std::size_t kSizes[] = {1U << 10, 64U << 10, 1U << 20, 16U << 20, 64U << 20};

/// Store for Gloo's own context.
class PlainStore final : public gloo::rendezvous::Store {
 public:
  explicit PlainStore(RendezvousStore& store) : store_(store) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    if (!store_.set("plain." + key, data)) {
      throw std::runtime_error("the store is not writable");
    }
  }
  std::vector<char> get(const std::string& key) override {
    return std::move(store_.get("plain." + key, std::chrono::seconds(30))).value();
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      get(key);
    }
  }

 private:
  RendezvousStore& store_;
};

struct Bytes {
  std::vector<std::byte> sent, received;
};

/// Way to run a collective; each call is one in which a rank gets `size` bytes from each rank.
struct Way {
  const char* name;
  std::function<void(std::size_t size)> run;
};

struct Rank {
  ChannelTransports direct;
  ChannelTransports tcp;
  std::shared_ptr<gloo::rendezvous::Context> plain;
  Bytes bytes;
  std::int64_t command = 0;

  void exchange(ChannelTransports& channels, std::size_t size, bool gather) {
    Transfer transfer;
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      transfer.send.push_back(std::span(bytes.sent).subspan(gather ? 0 : peer * size, size));
      transfer.receive.push_back(std::span(bytes.received).subspan(peer * size, size));
    }
    run(channels, std::move(transfer));
  }
  void run(ChannelTransports& channels, Transfer transfer) {
    std::promise<Status> ended;
    channels[0]->exchange({.generation = 1, .command = command++}, std::move(transfer),
                          [&](const Status& status) { ended.set_value(status); });
    if (const Status status = ended.get_future().get(); !status) {
      throw std::runtime_error(status.error().message);
    }
  }
  /// Sum over all ranks.
  double sum(double own) {
    std::vector<double> all(kRanks);
    Transfer transfer;
    for (double& value : all) {
      transfer.send.push_back(std::as_bytes(std::span(&own, 1)));
      transfer.receive.push_back(std::as_writable_bytes(std::span(&value, 1)));
    }
    run(direct, std::move(transfer));
    return std::accumulate(all.begin(), all.end(), 0.0);
  }
  void alltoall(std::size_t size) {
    gloo::AlltoallOptions options(plain);
    options.setInput(bytes.sent.data(), kRanks * size);
    options.setOutput(bytes.received.data(), kRanks * size);
    gloo::alltoall(options);
  }
  void allgather(std::size_t size) {
    gloo::AllgatherOptions options(plain);
    options.setInput(bytes.sent.data(), size);
    options.setOutput(bytes.received.data(), kRanks * size);
    gloo::allgather(options);
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Seconds of one collective: the ways take turns, so that a busy moment affects all of them.
std::vector<double> measure(const std::vector<Way>& ways, std::size_t size, int rounds) {
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = -2; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      ways[i].run(size);
      if (round >= 0) {
        seconds[i].push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      }
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& of_way : seconds) {
    medians.push_back(median(of_way));
  }
  return medians;
}

double processor_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// CPU seconds of one collective over all ranks: each way runs alone, so that work after its end is
/// attributed to it.
std::vector<double> measure_processor(Rank& self, const std::vector<Way>& ways, std::size_t size,
                                      int rounds) {
  std::vector<double> seconds;
  for (const Way& way : ways) {
    const double begin = processor_seconds();
    for (int round = 0; round < rounds; ++round) {
      way.run(size);
    }
    seconds.push_back(self.sum((processor_seconds() - begin) / rounds));
  }
  return seconds;
}

ChannelTransports connect(RendezvousStore& store, int rank, bool direct) {
  TcpOptions options;
  options.rank = rank;
  options.world_size = kRanks;
  options.generation = direct ? 1 : 2;
  options.direct = direct;
  Result<ChannelTransports> channels = make_tcp(store, options);
  if (!channels) {
    throw std::runtime_error(channels.error().message);
  }
  return std::move(channels).value();
}

std::shared_ptr<gloo::rendezvous::Context> connect_plain(RendezvousStore& store, int rank) {
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(where);
  PlainStore plain_store(store);
  auto plain = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
  plain->connectFullMesh(plain_store, device);
  return plain;
}

void print_head(const std::vector<Way>& ways) {
  fmt::print("median time, bytes sent to the other rank per second, and processor time of both\n");
  fmt::print("processes together\n\n| bytes |");
  for (const Way& way : ways) {
    fmt::print(" {} |", way.name);
  }
  fmt::print("\n|---|{}\n", fmt::join(std::vector<std::string>(ways.size(), "---|"), ""));
}

void print_row(std::size_t size, const std::vector<double>& seconds,
               const std::vector<double>& processor) {
  fmt::print("| {} KiB |", size >> 10);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    fmt::print(" {:.3f} ms, {:.2f} GB/s, {:.3f} ms |", seconds[i] * 1e3,
               static_cast<double>(size) / seconds[i] * 1e-9, processor[i] * 1e3);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void run_rank(int rank, const fs::path& directory, int rounds) {
  const auto store = test::make_file_store(directory);
  Rank self;
  const Clock::time_point begin = Clock::now();
  self.direct = connect(*store, rank, true);
  const double connect_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  self.tcp = connect(*store, rank, false);
  self.plain = connect_plain(*store, rank);
  const std::size_t most = kRanks * std::end(kSizes)[-1];
  self.bytes = {std::vector<std::byte>(most), std::vector<std::byte>(most)};

  const std::vector<Way> ways = {
      {"exchange, direct", [&](std::size_t n) { self.exchange(self.direct, n, false); }},
      {"exchange, TCP", [&](std::size_t n) { self.exchange(self.tcp, n, false); }},
      {"Gloo alltoall", [&](std::size_t n) { self.alltoall(n); }},
      {"all-gather, direct", [&](std::size_t n) { self.exchange(self.direct, n, true); }},
      {"all-gather, TCP", [&](std::size_t n) { self.exchange(self.tcp, n, true); }},
      {"Gloo allgather", [&](std::size_t n) { self.allgather(n); }}};
  if (rank == 0) {
    fmt::print("2 ranks, 2 processes, loopback; 3 channels connected in {:.0f} ms\n", connect_ms);
    print_head(ways);
  }
  for (const std::size_t size : kSizes) {
    const int times = size <= (1U << 20) ? rounds * 10 : rounds;
    const std::vector<double> seconds = measure(ways, size, times);
    const std::vector<double> processor = measure_processor(self, ways, size, times);
    if (rank == 0) {
      print_row(size, seconds, processor);
    }
  }
}

}  // namespace

int main(int argc, char* argv[]) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const fs::path directory =
      fs::temp_directory_path() / fmt::format("transport_bench_{}", ::getpid());
  fs::create_directory(directory);
  const pid_t other = ::fork();
  int failed = 0;
  try {
    run_rank(other == 0 ? 1 : 0, directory, rounds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    failed = 1;
  }
  if (other == 0) {
    ::_exit(failed);
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  fs::remove_all(directory);
  return failed != 0 || status != 0 ? 1 : 0;
}
