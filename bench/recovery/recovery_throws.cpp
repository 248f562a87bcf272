// Rows on errors within a rank: the time until all ranks have ended and the cause is reported.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/recovery/recovery_rows.hpp"
#include "bench/recovery/recovery_support.hpp"
#include "bench/support/bench_child.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kMost_s = 1.0;
constexpr double kPatience_s = 60.0;

/// Clock of the faults' time stamps (tests/support/devices/kernel_faults.hpp).
double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// Process that is not a child of this one; its end can be waited for.
class WatchedProcess {
 public:
  explicit WatchedProcess(pid_t process)
      : file_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {}
  WatchedProcess(WatchedProcess&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  WatchedProcess& operator=(WatchedProcess&&) = delete;
  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;
  ~WatchedProcess() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }
  /// Waits for at most 1 ms.
  [[nodiscard]] bool ended() const {
    pollfd one{.fd = file_, .events = POLLIN, .revents = 0};
    return file_ < 0 || ::poll(&one, 1, 1) == 1;
  }

 private:
  int file_;
};

struct Ending {
  double reported_s = 0.0;  ///< From the fault to the first error line,
  double over_s = 0.0;      ///< and to the end of the last worker.
};

/// Run ended by `fault`, given as ACTORTRAIN_TEST_FAULT.
Ending end_by(const Workplace& place, const std::string& fault, int rank, int ranks) {
  const fs::path errors = place.directory() / "faulty.err";
  const fs::path stamp = place.directory() / "faulty.stamp";
  fs::remove(stamp);
  const Words keys = {fmt::format("parallel.ranks={}", ranks), "parallel.strategy=\"none\"",
                      "checkpoint.local_dir=\"none\"", "run.steps=1000000",
                      "checkpoint.interval_steps=0"};
  BenchChild child(joined({"/usr/bin/env", fmt::format("ACTORTRAIN_TEST_FAULT={}:{}", fault, rank),
                           "ACTORTRAIN_TEST_FAULT_STAMP=" + stamp.string(),
                           ACTORTRAIN_BINARY_DIR "/actortrain_faulty"},
                          run_words(place, "faulty", keys)),
                   errors);
  std::thread output([&] {
    while (child.read_line()) {
    }
  });
  std::vector<WatchedProcess> workers;
  const double begin = now_s();
  while (static_cast<int>(workers.size()) < ranks && now_s() < begin + kPatience_s) {
    const pid_t process = find_worker(child.id(), static_cast<int>(workers.size()));
    process != 0 ? static_cast<void>(workers.emplace_back(process))
                 : std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  double reported = 0.0;
  double over = 0.0;
  std::size_t ended = 0;
  while ((over == 0.0 || reported == 0.0) && now_s() < begin + kPatience_s) {
    if (ended < workers.size()) {
      ended += workers[ended].ended() ? 1 : 0;
    } else if (over == 0.0) {
      over = now_s();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (reported == 0.0 && text_of(errors).find("\nerror ") != std::string::npos) {
      reported = now_s();
    }
  }
  if (over == 0.0 || reported == 0.0) {
    ::kill(child.id(), SIGKILL);
  }
  output.join();
  const int code = child.wait();
  const std::string stamped = text_of(stamp);
  fs::remove_all(place.directory() / "runs" / "faulty");
  if (code != 1 || stamped.empty() || over == 0.0 || reported == 0.0) {
    throw std::runtime_error(fmt::format("ended with {}: {}", code, child.errors()));
  }
  const double fault_s = static_cast<double>(std::stoll(stamped)) * 1e-9;
  return {.reported_s = reported - fault_s, .over_s = over - fault_s};
}

void throws_among(const Workplace& place, int ranks) {
  const char* const wanted = std::getenv("ACTORTRAIN_BENCH_THROWS");
  const int times = wanted == nullptr ? 30 : std::max(1, std::atoi(wanted));
  std::mt19937 random(7);
  for (const std::string what : {"throw", "bad_alloc", "nan"}) {
    Values reported, over;
    for (int i = 0; i < times; ++i) {
      const auto call = 8 + random() % 24;  // In an attention backward pass of the first steps.
      const auto rank = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const Ending ending = end_by(place, fmt::format("{}:{}", what, call), rank, ranks);
      reported.add(ending.reported_s);
      over.add(ending.over_s);
    }
    print_result(fmt::format("{}, {} times: to the first line of the report, s", what, times),
                 fmt::format("{}; p99 {:.3f}", reported.text(3), percentile(reported.all, 0.99)));
    print_result(fmt::format("{}: to the end of the last worker, s", what), over.text(3));
    Values late;
    late.add(percentile(over.all, 0.99));
    print_at_most(fmt::format("{}: the same, p99", what), late, kMost_s);
  }
}

}  // namespace

void throws_row(const Workplace& place) { throws_among(place, 2); }
void throws_of_four_row(const Workplace& place) { throws_among(place, 4); }

}  // namespace train::bench
