#include "base/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace train {
namespace {

// There is one terminal, and log lines know nothing of who else writes to it.
struct Terminal {
  std::mutex mutex;
  LiveBlock* block = nullptr;
};

Terminal& terminal() {
  static Terminal instance;
  return instance;
}

}  // namespace

LiveBlock::LiveBlock(std::FILE* out) : out_(out) {
  const std::lock_guard lock(terminal().mutex);
  terminal().block = this;
}

LiveBlock::~LiveBlock() {
  const std::lock_guard lock(terminal().mutex);
  if (terminal().block == this) {
    terminal().block = nullptr;
  }
}

void LiveBlock::show(std::vector<std::string> lines) {
  const std::lock_guard lock(terminal().mutex);
  erase();
  lines_ = std::move(lines);
  draw();
}

void LiveBlock::print(std::string_view line) {
  const std::lock_guard lock(terminal().mutex);
  erase();
  std::fwrite(line.data(), 1, line.size(), out_);
  std::fputc('\n', out_);
  draw();
}

void LiveBlock::leave() {
  const std::lock_guard lock(terminal().mutex);
  lines_.clear();
  drawn_ = false;
}

std::size_t LiveBlock::columns(std::FILE* out) {
  winsize size = {};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Up to the block's first line and all from there on.
void LiveBlock::erase() {
  if (drawn_) {
    std::fputs(("\x1b[" + std::to_string(lines_.size()) + "A\x1b[J").c_str(), out_);
    std::fflush(out_);
  }
  drawn_ = false;
}

void LiveBlock::draw() {
  for (const std::string& line : lines_) {
    std::fputs((line + "\n").c_str(), out_);
  }
  std::fflush(out_);
  drawn_ = !lines_.empty();
}

void above_live_block(const std::function<void()>& print) {
  const std::lock_guard lock(terminal().mutex);
  LiveBlock* block = terminal().block;
  if (block != nullptr) {
    block->erase();
  }
  print();
  if (block != nullptr) {
    block->draw();
  }
}

}  // namespace train
