#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_output.hpp"

namespace train {

/// Lines at the bottom of a terminal that are replaced as a whole. What this process logs meanwhile
/// goes above them.
///
/// Threading: safe from any thread. One at a time in a process. A closed pipe is no error.
class LiveBlock {
 public:
  /// `out` is a terminal, and outlives this.
  explicit LiveBlock(TextOutput& out);
  ~LiveBlock();  ///< What was shown last stays.
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  void show(std::vector<std::string> lines);
  /// A line above the block.
  void print(std::string_view line);
  /// Leaves what is shown; a later show() begins another block below.
  void leave();

  /// Letters that fit into a line of the terminal behind `out`; 80 where it does not say.
  [[nodiscard]] static std::size_t columns(const TextOutput& out);

 private:
  friend void above_live_block(const std::function<void()>& print);
  [[nodiscard]] std::string drawn();
  [[nodiscard]] std::string erased();

  TextOutput& out_;
  std::vector<std::string> lines_;
  bool drawn_ = false;
};

/// Calls `print`, which writes whole lines to the terminal, with the block out of the way.
void above_live_block(const std::function<void()>& print);

}  // namespace train
