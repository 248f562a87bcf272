#pragma once

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/sanitized.hpp"
#include "tests/support/processes/allocated.hpp"
#include "tests/support/processes/leave.hpp"

namespace train::test {

/// Resource use of work in a child process: counts that are equal on any machine.
struct Used {
  std::uint64_t growth_bytes = 0;     ///< Peak memory above the initial amount.
  std::uint64_t read_bytes = 0;       ///< Returned by read() and similar calls.
  std::uint64_t allocations = 0;      ///< Calls of operator new.
  std::uint64_t allocated_bytes = 0;  ///< Total bytes they requested.
};

/// Result of work in a child process.
struct Contained {
  int signal = 0;    ///< Signal that ended it; 0: none.
  Used used;         ///< Zeros after a signal.
  std::string text;  ///< Result of the work.
};

/// Peak resident memory so far, or since the last forget_peak().
inline std::uint64_t peak_bytes() {
  std::uint64_t kilobytes = 0;
  if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      unsigned long long value = 0;
      if (std::sscanf(line, "VmHWM: %llu", &value) == 1) {
        kilobytes = value;
      }
    }
    std::fclose(file);
  }
  return kilobytes << 10;
}

inline void forget_peak() {
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
}

/// Bytes read from files by this process so far.
inline std::uint64_t bytes_read() {
  std::uint64_t bytes = 0;
  if (std::FILE* file = std::fopen("/proc/self/io", "r")) {
    unsigned long long value = 0;
    if (std::fscanf(file, "rchar: %llu", &value) == 1) {
      bytes = value;
    }
    std::fclose(file);
  }
  return bytes;
}

/// Runs `work`, which returns a std::string, in a forked process that is killed if it hangs. This
/// process survives any damage there. REQUIRES: one thread.
template <class Work>
Contained run_contained(const Work& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(static_cast<unsigned>(hang_limit.count()));
    ::malloc_trim(0);  // Otherwise the work would reuse memory freed by this process.
    forget_peak();
    const std::uint64_t peak_before = peak_bytes();
    const std::uint64_t read_before = bytes_read();
    const Allocated before = allocated();
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = std::string("exception: ") + error.what();
    }
    const Allocated after = allocated();
    const Used used = {.growth_bytes = peak_bytes() - peak_before,
                       .read_bytes = bytes_read() - read_before,
                       .allocations = after.count - before.count,
                       .allocated_bytes = after.bytes - before.bytes};
    std::string message(reinterpret_cast<const char*>(&used), sizeof used);
    message += text.substr(0, 4000);
    const bool sent =
        ::write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size());
    leave(sent ? 0 : 1);
  }
  ::close(ends[1]);
  std::string message;
  char piece[1024];
  for (ssize_t got = 0; (got = ::read(ends[0], piece, sizeof piece)) > 0;) {
    message.append(piece, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  Contained result;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) == 0 ? 0 : -1;
  if (message.size() >= sizeof result.used) {
    std::memcpy(&result.used, message.data(), sizeof result.used);
    result.text = message.substr(sizeof result.used);
  }
  return result;
}

/// Maximum of each count.
inline Used most_of(const Used& one, const Used& other) {
  return {.growth_bytes = std::max(one.growth_bytes, other.growth_bytes),
          .read_bytes = std::max(one.read_bytes, other.read_bytes),
          .allocations = std::max(one.allocations, other.allocations),
          .allocated_bytes = std::max(one.allocated_bytes, other.allocated_bytes)};
}

/// Requires that work on hostile content of this size was bounded by it: peak memory, bytes read
/// and allocations of at most a few passes over the content.
inline void require_bounded(const Used& used, std::uint64_t content_bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  if (!sanitized()) {
    // Pages newly resident in the process: partly determined by the allocator's free memory before.
    REQUIRE(used.growth_bytes <= 2 * content_bytes + 96 * kMiB);
    REQUIRE(used.read_bytes <= 4 * content_bytes + kMiB);
    REQUIRE(used.allocations <= content_bytes + 10'000);
    REQUIRE(used.allocated_bytes <= 8 * content_bytes + 64 * kMiB);
  }
}

/// Requires that hostile content of this size was refused with an error text, with bounded work.
inline void require_refused(const Contained& result, std::uint64_t content_bytes) {
  INFO(result.text);
  REQUIRE(result.signal == 0);
  REQUIRE_FALSE(result.text.empty());
  REQUIRE_FALSE(result.text.starts_with("exception"));
  REQUIRE(result.text.find('\n') == std::string::npos);
  REQUIRE(result.text.size() < 1000);
  require_bounded(result.used, content_bytes);
}

}  // namespace train::test
