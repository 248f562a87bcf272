#pragma once

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

namespace train::test {

/// What became of work in a process of its own.
struct Contained {
  int signal = 0;                  ///< That ended it; 0: it ended by itself.
  double cpu_s = 0.0;              ///< Processor time it took.
  std::uint64_t growth_bytes = 0;  ///< Most memory at once, above what there was before.
  std::string text;                ///< What the work returned.
};

/// Most resident memory so far, after forget_peak() since then.
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

/// Runs `work`, which returns a std::string, in a forked process that is killed after 30 s.
/// Whatever it does to memory or to itself, this process goes on. REQUIRES: one thread.
template <class Work>
Contained run_contained(const Work& work) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(30);
    ::malloc_trim(0);  // or the work would live in what this process has freed
    forget_peak();
    const std::uint64_t before = peak_bytes();
    std::string text;
    try {
      text = work();
    } catch (const std::exception& error) {
      text = std::string("exception: ") + error.what();
    }
    const std::uint64_t growth = peak_bytes() - before;
    std::string message(reinterpret_cast<const char*>(&growth), sizeof growth);
    message += text.substr(0, 4000);
    const bool sent =
        ::write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size());
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  std::string message;
  char piece[1024];
  for (ssize_t got = 0; (got = ::read(ends[0], piece, sizeof piece)) > 0;) {
    message.append(piece, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  rusage usage{};
  REQUIRE(::wait4(child, &status, 0, &usage) == child);
  Contained result;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) == 0 ? 0 : -1;
  result.cpu_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  if (message.size() >= sizeof result.growth_bytes) {
    std::memcpy(&result.growth_bytes, message.data(), sizeof result.growth_bytes);
    result.text = message.substr(sizeof result.growth_bytes);
  }
  return result;
}

/// The sanitizers keep freed memory and shadow copies: sizes and times mean nothing with them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// Requires that hostile content of so many bytes was answered with an error (the text of it), at
/// once, in bounded memory.
inline void require_refused(const Contained& result, std::uint64_t content_bytes) {
  INFO(result.text);
  REQUIRE(result.signal == 0);
  REQUIRE_FALSE(result.text.empty());
  REQUIRE_FALSE(result.text.starts_with("exception"));
  REQUIRE(result.text.find('\n') == std::string::npos);
  REQUIRE(result.text.size() < 1000);
  if (!sanitized) {
    REQUIRE(result.cpu_s <= 1.0);
    REQUIRE(result.growth_bytes <= content_bytes + (std::uint64_t{64} << 20));
  }
}

}  // namespace train::test
