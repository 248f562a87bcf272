#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "storage/files/file_calls.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// Kills its own process by SIGKILL at a call that changes the checkpoints' disk, and records these
/// calls. Configured by the environment, which a run's processes share:
///
///   ACTORTRAIN_TEST_KILL=<when>:<what>:<n>:<role>  when: before, after or torn (half of a write
///       is done); what: a kind of call (name_of) or a point's name; n: index of the call, from 1;
///       role: head (the process that was started), or a rank's number.
///   ACTORTRAIN_TEST_SIGNAL=<number>  sends this signal instead, to the head at a call in a run's
///       directory; the call continues when events.jsonl there has stop_requested.
///   ACTORTRAIN_TEST_READ=<errno>:<part>  fails every read of a file with the part in its path; 0:
///       the first non-empty read sends SIGTERM to the head, and a worker stops reading.
///   ACTORTRAIN_TEST_READS=<directory>  the file <role> gets a line per read of a checkpoint's
///       shard: bytes, and its path.
///   ACTORTRAIN_TEST_TRACE=<directory>  the file <role> gets a line per call: what, and its path.
///
/// Only points and calls on checkpoints count, in either location.
class KillPoints final : public storage::FileCallHook {
 public:
  KillPoints() : role_(own_role()) {
    trace_ = open_log("ACTORTRAIN_TEST_TRACE");
    reads_ = open_log("ACTORTRAIN_TEST_READS");
    const char* const kill = std::getenv("ACTORTRAIN_TEST_KILL");
    if (kill != nullptr) {
      parse(kill);
    }
    if (const char* const read = std::getenv("ACTORTRAIN_TEST_READ")) {
      const std::string text(read);
      read_error_ = std::atoi(read);
      unread_ = text.substr(text.find(':') + 1);
    }
    const char* const signal = std::getenv("ACTORTRAIN_TEST_SIGNAL");
    signal_ = signal == nullptr ? SIGKILL : std::atoi(signal);
  }

  int before(storage::FileCall& call) override {
    if (!counts(call)) {
      return 0;
    }
    due() = is_the_one(call);
    if (due() && when_ == "before") {
      die(call.path);
    }
    if (due() && when_ == "torn") {
      call.bytes = call.bytes.first(call.bytes.size() / 2);
    }
    return 0;
  }

  void after(const storage::FileCall& call, int /*error_number*/) override {
    if (due() && when_ != "before" && counts(call)) {
      die(call.path);
    }
  }

  int before_read(storage::FileRead& read) override {
    if (reads_ >= 0 && read.path.find("/shard-") != std::string_view::npos) {
      const std::string line = fmt::format("{} {}\n", read.size_bytes, read.path);
      const std::lock_guard lock(mutex_);
      [[maybe_unused]] const ssize_t written = ::write(reads_, line.data(), line.size());
    }
    const bool meant = !unread_.empty() && read.path.find(unread_) != std::string_view::npos;
    if (meant && read_error_ == 0 && read.size_bytes > 0 && !asked_to_stop_.exchange(true)) {
      ::kill(role_ == "head" ? ::getpid() : ::getppid(), SIGTERM);
      if (role_ != "head" && !comes_true([] { return false; })) {  // A worker waits for its end.
        std::abort();
      }
    }
    return meant ? read_error_ : 0;
  }

  /// Role of this process: "head" or the number of its rank.
  static std::string own_role() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    const std::string option("--rank\0", 7);
    const std::size_t rank = words.find(option);
    return rank == std::string::npos ? "head" : words.c_str() + rank + option.size();
  }

 private:
  /// Opens this process's file in the directory that the variable names; -1: the variable is not
  /// set.
  [[nodiscard]] int open_log(const char* variable) const {
    const char* const directory = std::getenv(variable);
    return directory == nullptr ? -1
                                : ::open(fmt::format("{}/{}", directory, role_).c_str(),
                                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }
  /// True if this thread's next call is the chosen one.
  static bool& due() {
    thread_local bool value = false;
    return value;
  }
  /// Counts and records the call.
  bool is_the_one(const storage::FileCall& call) {
    const std::string what = what_of(call);
    const std::lock_guard lock(mutex_);
    if (trace_ >= 0) {
      const std::string line = fmt::format("{} {}\n", what, call.path);
      [[maybe_unused]] const ssize_t written = ::write(trace_, line.data(), line.size());
    }
    return ++seen_[what] == number_ && what == what_;
  }
  /// Holds no lock: other threads continue with their own calls.
  void die(std::string_view path) const {
    if (signal_ == SIGKILL) {
      ::kill(::getpid(), SIGKILL);
      ::pause();
      ::_exit(1);
    }
    // The call continues after the process has acted on the signal, so that the signal affects this
    // call and not later ones.
    const std::filesystem::path run = path.substr(0, path.find("/checkpoints"));
    const std::size_t heard = stop_requests(run);
    ::kill(::getpid(), signal_);
    if (!comes_true([&] { return stop_requests(run) > heard; })) {
      std::abort();  // The signal was ignored: an orderly end will not follow.
    }
  }
  /// Number of stop requests to the starts of a run.
  static std::size_t stop_requests(const std::filesystem::path& run) {
    std::ifstream events(run / "events.jsonl");
    std::size_t count = 0;
    for (std::string line; std::getline(events, line);) {
      count += line.find("\"event\":\"stop_requested\"") == std::string::npos ? 0 : 1;
    }
    return count;
  }
  static bool counts(const storage::FileCall& call) {
    return call.kind == storage::FileCallKind::point ||
           call.path.find("/checkpoints") != std::string_view::npos;
  }
  static std::string what_of(const storage::FileCall& call) {
    return std::string(call.kind == storage::FileCallKind::point ? call.to
                                                                 : storage::name_of(call.kind));
  }
  void parse(const std::string& text) {
    const std::size_t first = text.find(':');
    const std::size_t third = text.rfind(':');
    const std::size_t second = text.rfind(':', third - 1);
    if (first >= second || text.substr(third + 1) != role_) {
      return;
    }
    when_ = text.substr(0, first);
    what_ = text.substr(first + 1, second - first - 1);
    number_ = std::atoi(text.substr(second + 1, third - second - 1).c_str());
  }

  std::string role_;
  int trace_ = -1;
  int reads_ = -1;
  std::string when_;
  std::string what_;
  int number_ = -1;
  int signal_ = SIGKILL;
  int read_error_ = 0;
  std::string unread_;
  std::atomic<bool> asked_to_stop_{false};
  std::mutex mutex_;
  std::map<std::string, int> seen_;
};

}  // namespace train::test
