#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/harness/hang_limit.hpp"

extern "C" char** environ;  // NOLINT(readability-redundant-declaration): POSIX has no header for it

namespace train::test {

/// End of a process.
struct Ended {
  int exit_code = -1;  ///< As returned by the program; -1 after a signal.
  int signal = 0;      ///< Signal that ended it, or 0.
  std::string out;     ///< Complete standard output.
  std::string err;     ///< Complete standard error.
};

/// Child process. Its output goes to anonymous files, so that it never blocks on the reader, can be
/// read at any time and leaves nothing behind. Killed by the destructor.
///
/// Threading: one owner. wait() blocks.
class Process {
 public:
  /// Process group: with its own group a process can be signalled together with its children (the
  /// group's id is its pid), as a terminal or a batch system does.
  enum class Group { of_the_test, own };

  /// REQUIRES: words.front() is the path of a program.
  explicit Process(std::vector<std::string> words, const std::filesystem::path& directory = ".",
                   Group group = Group::of_the_test)
      : words_(std::move(words)), out_(anonymous_file("out")), err_(anonymous_file("err")) {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    if (group == Group::own) {
      posix_spawnattr_setpgroup(&attributes, 0);
      posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words_) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const int failed =
        posix_spawn(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    REQUIRE(failed == 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
    ::close(err_);
  }

  [[nodiscard]] std::string out() const { return content(out_); }
  [[nodiscard]] std::string err() const { return content(err_); }
  [[nodiscard]] pid_t pid() const { return pid_; }

  /// False once it has ended.
  bool running() {
    int status = 0;
    if (!ended_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = Ended{.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                     .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                     .out = out(),
                     .err = err()};
    }
    return !ended_;
  }

  void send(int signal) {
    if (running()) {
      REQUIRE(::kill(pid_, signal) == 0);
    }
  }

  /// Waits until `condition` holds, the process has ended or `limit` is over; true if it holds.
  template <class Condition>
  bool until(Condition condition, std::chrono::milliseconds limit = hang_limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (!running() || std::chrono::steady_clock::now() > deadline) {
        return condition();
      }
      before_the_next_look();
    }
    return true;
  }

  /// Waits for the end of the process. After `limit` it is killed, and the test fails.
  Ended wait(std::chrono::seconds limit = hang_limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (running()) {
      if (std::chrono::steady_clock::now() > deadline) {
        FAIL("hangs: " << words_[0] << " " << (words_.size() > 1 ? words_[1] : "") << "\n"
                       << err() << "\n"
                       << out());
      }
      before_the_next_look();
    }
    return *ended_;
  }

 private:
  static int anonymous_file(const char* name) {
    const int file = ::memfd_create(name, MFD_CLOEXEC);
    REQUIRE(file >= 0);
    return file;
  }

  static std::string content(int file) {
    std::string text;
    char piece[4096];
    for (;;) {
      const ssize_t got = ::pread(file, piece, sizeof(piece), static_cast<off_t>(text.size()));
      if (got <= 0) {
        return text;
      }
      text.append(piece, static_cast<std::size_t>(got));
    }
  }

  std::vector<std::string> words_;
  int out_ = -1;
  int err_ = -1;
  pid_t pid_ = -1;
  std::optional<Ended> ended_;
};

}  // namespace train::test
