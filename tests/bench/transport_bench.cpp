// What moving bytes between two processes costs: our exchange over Gloo against Gloo's own alltoall
// and allgather over the same connections, loopback TCP. Usage: transport_bench [rounds].
#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/alltoall.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
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
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/collective/gloo_transport.hpp"

namespace {

using namespace train;
using namespace train::engine;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr std::size_t kSizes[] = {1U << 10, 64U << 10, 1U << 20, 16U << 20, 64U << 20};

/// Our store for Gloo's own context.
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

/// One way to do it; each call is one collective in which a rank gets `size` bytes from each rank.
struct Way {
  const char* name;
  std::function<void(std::size_t size)> run;
};

struct Rank {
  int rank = 0;
  ChannelTransports channels;
  std::shared_ptr<gloo::rendezvous::Context> plain;
  Bytes bytes;
  std::int64_t command = 0;

  void exchange(std::size_t size, bool gather) {
    Transfer transfer;
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      transfer.send.push_back(std::span(bytes.sent).subspan(gather ? 0 : peer * size, size));
      transfer.receive.push_back(std::span(bytes.received).subspan(peer * size, size));
    }
    std::promise<Status> ended;
    channels[0]->exchange({.generation = 1, .command = command++}, std::move(transfer),
                          [&](const Status& status) { ended.set_value(status); });
    if (const Status status = ended.get_future().get(); !status) {
      throw std::runtime_error(status.error().message);
    }
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

/// Seconds of one collective: the ways take turns, so that a busy moment meets all of them.
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

void run_rank(int rank, const fs::path& directory, int rounds) {
  const auto store = make_file_store(directory);
  Rank self;
  self.rank = rank;
  GlooOptions options;
  options.rank = rank;
  options.world_size = kRanks;
  const Clock::time_point begin = Clock::now();
  Result<ChannelTransports> channels = make_gloo(*store, options);
  if (!channels) {
    throw std::runtime_error(channels.error().message);
  }
  const double connect_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  self.channels = std::move(channels).value();
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(where);
  PlainStore plain_store(*store);
  self.plain = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
  self.plain->connectFullMesh(plain_store, device);
  const std::size_t most = kRanks * std::end(kSizes)[-1];
  self.bytes = {std::vector<std::byte>(most), std::vector<std::byte>(most)};

  const std::vector<Way> ways = {{"exchange", [&](std::size_t n) { self.exchange(n, false); }},
                                 {"Gloo alltoall", [&](std::size_t n) { self.alltoall(n); }},
                                 {"all-gather", [&](std::size_t n) { self.exchange(n, true); }},
                                 {"Gloo allgather", [&](std::size_t n) { self.allgather(n); }}};
  if (rank == 0) {
    fmt::print("2 ranks, 2 processes, loopback; 3 channels connected in {:.0f} ms\n", connect_ms);
    fmt::print("median time, and bytes sent to the other rank per second\n\n| bytes |");
    for (const Way& way : ways) {
      fmt::print(" {} |", way.name);
    }
    fmt::print("\n|---|---|---|---|---|\n");
  }
  for (const std::size_t size : kSizes) {
    const int times = size <= (1U << 20) ? rounds * 10 : rounds;
    const std::vector<double> seconds = measure(ways, size, times);
    if (rank == 0) {
      fmt::print("| {} KiB |", size >> 10);
      for (const double s : seconds) {
        fmt::print(" {:.3f} ms, {:.2f} GB/s |", s * 1e3, static_cast<double>(size) / s * 1e-9);
      }
      fmt::print("\n");
      std::fflush(stdout);
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
