#include "base/text/terminal.hpp"

#include <pty.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "base/process/descriptor.hpp"

namespace train {
namespace {

/// A terminal, and what came out of it, as far as it is asked for.
struct Pty {
  int ours = -1, theirs = -1;
  std::unique_ptr<TextOutput> out;

  Pty() {
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = 60;
    REQUIRE(openpty(&ours, &theirs, nullptr, nullptr, &size) == 0);
    out = std::make_unique<TextOutput>(theirs);
  }
  ~Pty() {
    ::close(theirs);
    ::close(ours);
  }
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  /// All up to `end`.
  [[nodiscard]] std::string read(const std::string& end) const {
    std::string text;
    char piece[512];
    while (text.find(end) == std::string::npos) {
      const ssize_t got = ::read(ours, piece, sizeof piece);
      REQUIRE(got > 0);
      text.append(piece, static_cast<std::size_t>(got));
    }
    return text;
  }
};

}  // namespace

TEST_CASE("terminal: a block is replaced as a whole", "[terminal]") {
  const Pty pty;
  CHECK(LiveBlock::columns(*pty.out) == 60);
  LiveBlock block(*pty.out);
  block.show({"one", "two"});
  CHECK(pty.read("two\r\n") == "one\r\ntwo\r\n");
  block.show({"three"});
  CHECK(pty.read("three\r\n") == "\x1b[2A\x1b[Jthree\r\n");
  block.show({"four"});
  CHECK(pty.read("four\r\n") == "\x1b[1A\x1b[Jfour\r\n");
}

TEST_CASE("terminal: lines go above the block", "[terminal]") {
  const Pty pty;
  LiveBlock block(*pty.out);
  block.print("before");
  CHECK(pty.read("before\r\n") == "before\r\n");
  block.show({"live"});
  CHECK(pty.read("live\r\n") == "live\r\n");
  block.print("an event");
  CHECK(pty.read("live\r\n") == "\x1b[1A\x1b[Jan event\r\nlive\r\n");
  above_live_block([&pty] { pty.out->write("a log line\n"); });
  CHECK(pty.read("live\r\n") == "\x1b[1A\x1b[Ja log line\r\nlive\r\n");
  block.leave();
  block.print("after");
  CHECK(pty.read("after\r\n") == "after\r\n");
}

}  // namespace train
