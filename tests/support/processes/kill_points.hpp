#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "storage/files/file_calls.hpp"

namespace train::test {

/// Kills its own process at a call that changes the checkpoints' disk, by SIGKILL, and writes down
/// the calls that there are. What it does is in the environment, which a run's processes share:
///
///   ACTORTRAIN_TEST_KILL=<when>:<what>:<n>:<role>  when: before, after or torn (a write: half of
///   it
///       is done); what: a kind of call (name_of) or a point's name; n: the how many-th, from 1;
///       role: head (the process that was started), or a rank's number.
///   ACTORTRAIN_TEST_SIGNAL=<number>  that signal instead, after which the process goes on.
///   ACTORTRAIN_TEST_READ=<errno>:<part>  every read of a file in whose path the part is fails so.
///   ACTORTRAIN_TEST_TRACE=<directory>  the file <role> gets a line per call: what, and its path.
///
/// Only calls on checkpoints count, in either place, and points.
class KillPoints final : public storage::FileCallHook {
 public:
  KillPoints() : role_(own_role()) {
    const char* const trace = std::getenv("ACTORTRAIN_TEST_TRACE");
    trace_ = trace == nullptr ? -1
                              : ::open(fmt::format("{}/{}", trace, role_).c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
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
    const std::lock_guard lock(mutex_);
    if (!counts(call)) {
      return 0;
    }
    const std::string what = what_of(call);
    if (trace_ >= 0) {
      const std::string line = fmt::format("{} {}\n", what, call.path);
      [[maybe_unused]] const ssize_t written = ::write(trace_, line.data(), line.size());
    }
    due() = ++seen_[what] == number_ && what == what_;
    if (due() && when_ == "before") {
      die();
    }
    if (due() && when_ == "torn") {
      call.bytes = call.bytes.first(call.bytes.size() / 2);
    }
    return 0;
  }

  void after(const storage::FileCall& call, int /*error_number*/) override {
    if (due() && when_ != "before" && counts(call)) {
      die();
    }
  }

  int before_read(storage::FileRead& read) override {
    const bool fails = read_error_ != 0 && read.path.find(unread_) != std::string_view::npos;
    return fails ? read_error_ : 0;
  }

  /// "head", or the number of the rank whose process this is.
  static std::string own_role() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    const std::string option("--rank\0", 7);
    const std::size_t rank = words.find(option);
    return rank == std::string::npos ? "head" : words.c_str() + rank + option.size();
  }

 private:
  /// The call that this thread is about to make is the one.
  static bool& due() {
    thread_local bool value = false;
    return value;
  }
  void die() const {
    ::kill(::getpid(), signal_);
    if (signal_ == SIGKILL) {
      ::pause();
      ::_exit(1);
    }
    // The call goes on when the process has taken the signal, and had time to act on it: that comes
    // to this call, and not to what follows.
    sigset_t pending;
    for (int tries = 0; tries < 1000; ++tries) {
      ::sigpending(&pending);
      if (sigismember(&pending, signal_) != 1) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
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
  std::string when_;
  std::string what_;
  int number_ = -1;
  int signal_ = SIGKILL;
  int read_error_ = 0;
  std::string unread_;
  std::mutex mutex_;
  std::map<std::string, int> seen_;
};

}  // namespace train::test
