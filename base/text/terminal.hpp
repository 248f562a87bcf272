#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/text_output.hpp"

namespace train {

/// Lines at the bottom of a terminal that are replaced together. Log lines of this process go above
/// them.
///
/// Threading: safe from any thread. One at a time in a process. A closed pipe is no error.
class LiveBlock {
 public:
  /// `out` is a terminal, and outlives this object.
  explicit LiveBlock(TextOutput& out);
  ~LiveBlock();  ///< Leaves the last block on the screen.
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  void show(std::vector<std::string> lines);
  /// Prints a line above the block.
  void print(std::string_view line);
  /// Leaves the block on the screen; a later show() begins another one below.
  void leave();

  /// Width of the terminal behind `out`; 80 if unknown.
  [[nodiscard]] static std::size_t columns(const TextOutput& out);

 private:
  friend void above_live_block(const std::function<void()>& print);
  [[nodiscard]] std::string drawn();
  [[nodiscard]] std::string erased();

  TextOutput& out_;
  std::vector<std::string> lines_;
  bool drawn_ = false;
};

/// Calls `print`, which writes whole lines to the terminal, with the block temporarily erased.
void above_live_block(const std::function<void()>& print);

}  // namespace train
