#include "base/text/text_output.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/process/descriptor.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train {
namespace {

using namespace std::chrono_literals;

/// A pipe that takes one page, so that it is soon full.
struct Pipe {
  Descriptor reads, writes;

  Pipe() {
    std::array<int, 2> ends = {};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    reads.reset(ends[0]);
    writes.reset(ends[1]);
    REQUIRE(::fcntl(writes.get(), F_SETPIPE_SZ, 4096) > 0);
  }
  /// What comes up to and with `end`.
  [[nodiscard]] std::string read_to(const std::string& end) const {
    std::string text;
    std::array<char, 4096> piece = {};
    while (!text.ends_with(end)) {
      const ssize_t bytes = ::read(reads.get(), piece.data(), piece.size());
      if (bytes <= 0) {
        return text + " (the end is missing)";
      }
      text.append(piece.data(), static_cast<std::size_t>(bytes));
    }
    return text;
  }
};

std::string lost_line(std::uint64_t texts) { return std::to_string(texts) + " lost\n"; }

}  // namespace

TEST_CASE("text_output: text lost to a full disk is a failure, a reader that is gone is none",
          "[base][text_output]") {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full.get() >= 0);
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // as block_signals() does
  for (const bool queued : {false, true}) {
    TextOutput lost(full.get());
    Pipe pipe;
    TextOutput unread(pipe.writes.get());
    if (queued) {
      lost.queue(lost_line, 4096);
      unread.queue(lost_line, 4096);
    }
    CHECK(lost.failure() == 0);
    pipe.reads.reset();
    lost.write("a");
    unread.write("a");
    lost.finish(test::hang_limit);
    unread.finish(test::hang_limit);
    CHECK(lost.closed());
    CHECK(unread.closed());
    CHECK(lost.failure() == ENOSPC);
    CHECK(unread.failure() == 0);
  }
  std::signal(SIGPIPE, before);
}

TEST_CASE("text_output: a reader that does not read blocks nobody, and what is lost is counted",
          "[base][text_output][P2]") {
  const Pipe pipe;
  TextOutput output(pipe.writes.get());
  output.queue(lost_line, 64 * 1024);
  constexpr std::size_t kLines = 10'000;  // 1 MB: written at once, the second page would block
  const std::string line = std::string(99, 'x') + "\n";
  for (std::size_t i = 0; i < kLines; ++i) {
    output.write(line);
  }
  std::string text;
  std::thread reader([&] { text = pipe.read_to(" lost\n"); });
  output.finish(test::hang_limit);
  reader.join();
  CHECK_FALSE(output.closed());
  std::size_t whole = 0;
  while (text.starts_with(line)) {
    text.erase(0, line.size());
    ++whole;
  }
  CHECK(whole >= 64 * 1024 / line.size());
  CHECK(text == lost_line(kLines - whole));
}

TEST_CASE("text_output: whoever never reads costs the end a moment", "[base][text_output][P2]") {
  static const Pipe pipe;  // never closed: the thread that was given up may write once more
  TextOutput output(pipe.writes.get());
  output.queue(lost_line, 64 * 1024);
  output.write(std::string(20'000, 'x'));
  output.finish(20ms);
  CHECK(output.closed());
  output.write(std::string(20'000, 'x'));  // and is not waited for again
}

TEST_CASE("text_output: what goes to one file keeps its order", "[base][text_output]") {
  const Pipe pipe;
  TextOutput output(pipe.writes.get());
  TextOutput errors(pipe.writes.get(), output);
  std::string text;
  std::thread reader([&] { text = pipe.read_to("end\n"); });
  std::string wanted;
  const auto write_both = [&](const std::string& when) {
    for (int i = 0; i < 10; ++i) {
      output.write(when + " out\n");
      errors.write(when + " error\n");
      wanted += when + " out\n" + when + " error\n";
    }
  };
  write_both("at once");
  output.queue(lost_line, 64 * 1024);
  write_both("queued");
  output.finish(test::hang_limit);
  write_both("at once again");
  output.write("end\n");
  reader.join();
  CHECK(text == wanted + "end\n");
}

TEST_CASE("text_output: a reader that has gone is no error", "[base][text_output]") {
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // as block_signals() does
  Pipe pipe;
  TextOutput output(pipe.writes.get());
  pipe.reads.reset();
  CHECK_FALSE(output.closed());
  output.write("one\n");
  CHECK(output.closed());
  output.queue(lost_line, 64 * 1024);
  output.write("two\n");
  output.finish(test::hang_limit);
  std::signal(SIGPIPE, before);
}

TEST_CASE("text_output: no file gets the number of a standard descriptor that was closed",
          "[base][text_output]") {
  for (const unsigned closed : {1U, 2U, 4U, 6U, 7U}) {
    CAPTURE(closed);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int standard = 0; standard < 3; ++standard) {
        if ((closed >> standard & 1U) != 0) {
          ::close(standard);
        }
      }
      keep_standard_descriptors();
      const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::_exit(next > STDERR_FILENO ? 0 : 1);
    }
    int end = -1;
    REQUIRE(::waitpid(child, &end, 0) == child);
    CHECK(end == 0);
  }
}

}  // namespace train
