// The transport between devices of several processes (engine/collective/nccl_link.hpp) on emulated
// devices and the library that nccl/emulated_nccl.cpp is.
#include <cstdlib>
#include <filesystem>

#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/nccl.hpp"
#include "tests/engine/collective/tcp_fixture.hpp"

namespace train::engine {
namespace {

const kernels::Device& device() { return *kernels::cuda_backend()->device; }

/// A parcel in the device's memory, which the host may not touch.
class DeviceParcel {
 public:
  DeviceParcel(int rank, int world_size, const test::SizeOf& size_of, int salt = 0)
      : parcel_(rank, world_size, size_of, salt), host_(parcel_.transfer()) {}

  [[nodiscard]] Transfer transfer() {
    Transfer there;
    for (const auto& range : host_.send) {
      there.send.push_back(put(range));
    }
    for (const auto& range : host_.receive) {
      there.receive.push_back(put(range));
      received_.push_back(there.receive.back());
    }
    return there;
  }
  [[nodiscard]] bool whole() {
    fetch();
    return parcel_.whole();
  }
  [[nodiscard]] bool untouched() {
    fetch();
    return parcel_.untouched();
  }

 private:
  std::span<std::byte> put(std::span<const std::byte> range) {
    if (range.empty()) {
      return {};
    }
    buffers_.emplace_back(range.size(), "parcel", device().memory);
    device().copy(buffers_.back().data(), range.data(), range.size());
    return {buffers_.back().data(), range.size()};
  }
  void fetch() {
    for (std::size_t from = 0; from < received_.size(); ++from) {
      if (!received_[from].empty()) {
        device().copy(host_.receive[from].data(), received_[from].data(), received_[from].size());
      }
    }
  }

  test::Parcel parcel_;
  Transfer host_;
  std::vector<std::span<std::byte>> received_;
  std::vector<kernels::Buffer> buffers_;
};

TcpOptions nccl_options(int rank, int world_size, std::uint64_t generation = 1) {
  TcpOptions options = options_of(rank, world_size, generation);
  options.nccl = true;
  return options;
}

/// Lets the emulated library of this process stop for good at "rank group"; it makes the file then.
void stall_at(const char* where, const std::filesystem::path& file) {
  ::setenv("PLAYED_NCCL_STALL", where, 1);
  ::setenv("PLAYED_NCCL_STALL_ONCE", file.c_str(), 1);
}

/// Exchanges until one fails: its text. `begun` is called before each.
template <class Begun>
std::string exchange_on(Collectives& channel, int world_size, int last, const Begun& begun) {
  for (int i = 0; i < last; ++i) {
    begun(i);
    DeviceParcel parcel(
        channel.rank(), world_size, [](int, int) { return 100'000; }, i);
    auto end = start(channel, identity_of(i), parcel.transfer());
    if (const std::string text = end_of(end); !text.empty() || !parcel.whole()) {
      return fmt::format("exchange {}: {}", i, text);
    }
  }
  return {};
}

}  // namespace

TEST_CASE("nccl: processes exchange the memory of their devices", "[emulation][nccl][fork]") {
  const int world_size = GENERATE(2, 3, 4);
  const TempDirectory directory;
  Processes processes(directory, world_size, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, nccl_options(rank, world_size));
    if (!channels) {
      return channels.error().message;
    }
    for (int i = 0; i < 12; ++i) {
      // Some of nothing, some of more than a socket holds; to itself too.
      const auto size_of = [i](int from, int to) {
        return static_cast<std::size_t>((from * 10 + to) * i * i * 90);
      };
      DeviceParcel reduced(rank, world_size, size_of, i);
      DeviceParcel gathered(rank, world_size, size_of, i + 50);
      Parcel controlled(
          rank, world_size, [](int, int) { return 24; }, i + 90);
      auto first = start(*(*channels)[kReduce], identity_of(i), reduced.transfer());
      auto second = start(*(*channels)[kGather], identity_of(i), gathered.transfer());
      auto third = start(*(*channels)[static_cast<std::size_t>(Channel::control)], identity_of(i),
                         controlled.transfer());
      const std::string texts = end_of(first) + end_of(second) + end_of(third);
      if (!texts.empty() || !reduced.whole() || !gathered.whole() || !controlled.whole()) {
        return fmt::format("exchange {}: {}", i, texts);
      }
    }
    return std::string("good");
  });
  for (int rank = 0; rank < world_size; ++rank) {
    CHECK(processes.report(rank) == "good");
  }
}

TEST_CASE("nccl: ranks that differ are named before a byte moves",
          "[emulation][nccl][fork][EX-2]") {
  const bool by_size = GENERATE(true, false);
  const TempDirectory directory;
  Processes processes(directory, 2, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, nccl_options(rank, 2));
    if (!channels) {
      return channels.error().message;
    }
    const std::size_t size = by_size && rank == 1 ? 2000 : 1000;
    DeviceParcel parcel(rank, 2, [size](int, int) { return size; });
    auto identity = identity_of(3);
    identity.hash += by_size ? 0 : static_cast<std::uint64_t>(rank);
    auto end = start(*(*channels)[kReduce], identity, parcel.transfer());
    const std::string text = end_of(end);
    return text + (parcel.untouched() ? " untouched" : " touched");
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = processes.report(rank);
    CHECK_THAT(text, Catch::Contains("collectives differ: ") && Catch::EndsWith(" untouched"));
    CHECK_THAT(text, Catch::Contains("rank 0 is at") && Catch::Contains("rank 1 is at"));
  }
}

TEST_CASE("nccl: kill -9 of a rank in the middle of its bytes fails the others at once",
          "[emulation][nccl][fork][P4]") {
  const TempDirectory directory;
  const auto stalled = directory.path() / "stalled";
  Processes processes(directory, 3, [&](int rank, RendezvousStore& store) {
    stall_at("2 3", stalled);
    auto channels = make_tcp(store, nccl_options(rank, 3));
    if (!channels) {
      return channels.error().message;
    }
    return exchange_on(*(*channels)[kReduce], 3, 100, [&](int i) {
      if (i == 3) {
        leave_note(directory, fmt::format("ready{}", rank));
      }
    });
  });
  for (int rank = 0; rank < 3; ++rank) {
    std::ignore = processes.await(fmt::format("ready{}", rank));
  }
  // Then all others have told rank 2 what they send, and are in it, or about to be.
  REQUIRE(test::comes_true([&] { return std::filesystem::exists(stalled); }));
  processes.send(2, SIGKILL);
  // Who fails closes its connections: the one that is later may have lost the other as well.
  std::string reports;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string report = processes.report(rank);
    CHECK_THAT(report, Catch::Contains("exchange 3: ") && Catch::Contains("lost rank"));
    reports += report;
  }
  CHECK_THAT(reports, Catch::Contains("lost rank 2"));
}

TEST_CASE("nccl: cancel while a peer is stuck, and a new generation", "[emulation][nccl][fork]") {
  const bool by_destructor = GENERATE(false, true);
  const TempDirectory directory;
  const auto stalled = directory.path() / "stalled";
  Processes processes(directory, 2, [&](int rank, RendezvousStore& store) {
    stall_at("1 0", stalled);
    auto channels = make_tcp(store, nccl_options(rank, 2));
    if (!channels) {
      return channels.error().message;
    }
    DeviceParcel parcel(rank, 2, large);
    auto end = start(*(*channels)[kReduce], identity_of(0), parcel.transfer());
    if (!test::comes_true([&] { return std::filesystem::exists(stalled); })) {
      return std::string("rank 1 is not stuck");
    }
    if (by_destructor) {
      (*channels)[kReduce].reset();
    } else {
      (*channels)[kReduce]->cancel("enough");
    }
    const std::string text = end_of(end);
    if (text.empty() || text == "has not ended") {
      return fmt::format("the exchange: \"{}\"", text);
    }
    ::unsetenv("PLAYED_NCCL_STALL");
    auto next = make_tcp(store, nccl_options(rank, 2, 2));
    if (!next) {
      return next.error().message;
    }
    return exchange_on(*(*next)[kReduce], 2, 5, [](int) {}) + "good";
  });
  CHECK(processes.report(0) == "good");
  CHECK(processes.report(1) == "good");
}

TEST_CASE("nccl: a library that is too old is said", "[emulation][nccl][fork]") {
  const TempDirectory directory;
  Processes processes(directory, 1, [&](int, RendezvousStore&) {
    ::setenv("PLAYED_NCCL_VERSION", "21403", 1);
    return kernels::nccl_absence();
  });
  CHECK(processes.report(0) == "NCCL: version 2.14 is too old, 2.18 is needed");
}

}  // namespace train::engine
