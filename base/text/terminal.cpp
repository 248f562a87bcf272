#include "base/text/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace train {
namespace {

// State of the one terminal, shared with the log.
struct Terminal {
  std::mutex mutex;
  LiveBlock* block = nullptr;
};

Terminal& terminal() {
  static Terminal instance;
  return instance;
}

}  // namespace

LiveBlock::LiveBlock(TextOutput& out) : out_(out) {
  const std::lock_guard lock(terminal().mutex);
  terminal().block = this;
}

LiveBlock::~LiveBlock() {
  const std::lock_guard lock(terminal().mutex);
  if (terminal().block == this) {
    terminal().block = nullptr;
  }
}

// Writes each block as one text, which is written or dropped as a whole.
void LiveBlock::show(std::vector<std::string> lines) {
  const std::lock_guard lock(terminal().mutex);
  std::string text = erased();
  lines_ = std::move(lines);
  out_.write(text + drawn());
}

void LiveBlock::print(std::string_view line) {
  const std::lock_guard lock(terminal().mutex);
  std::string text = erased();
  text.append(line).push_back('\n');
  out_.write(text + drawn());
}

void LiveBlock::leave() {
  const std::lock_guard lock(terminal().mutex);
  lines_.clear();
  drawn_ = false;
}

std::size_t LiveBlock::columns(const TextOutput& out) {
  winsize size = {};
  return ::ioctl(out.descriptor(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Control sequence that moves to the block's first line and erases from there on.
std::string LiveBlock::erased() {
  return std::exchange(drawn_, false) ? "\x1b[" + std::to_string(lines_.size()) + "A\x1b[J" : "";
}

std::string LiveBlock::drawn() {
  std::string text;
  for (const std::string& line : lines_) {
    text.append(line).push_back('\n');
  }
  drawn_ = !lines_.empty();
  return text;
}

void above_live_block(const std::function<void()>& print) {
  const std::lock_guard lock(terminal().mutex);
  LiveBlock* block = terminal().block;
  if (block != nullptr) {
    block->out_.write(block->erased());
  }
  print();
  if (block != nullptr) {
    block->out_.write(block->drawn());
  }
}

}  // namespace train
