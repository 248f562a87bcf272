#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace train {

/// Lines at the bottom of a terminal that are replaced as a whole. What this process logs meanwhile
/// goes above them.
///
/// Threading: safe from any thread. One at a time in a process. A closed pipe is no error.
class LiveBlock {
 public:
  /// `out` is a terminal.
  explicit LiveBlock(std::FILE* out);
  ~LiveBlock();  ///< What was shown last stays.
  LiveBlock(const LiveBlock&) = delete;
  LiveBlock& operator=(const LiveBlock&) = delete;

  void show(std::vector<std::string> lines);
  /// A line above the block.
  void print(std::string_view line);
  /// Leaves what is shown; a later show() begins another block below.
  void leave();

  /// Letters that fit into a line of the terminal behind `out`; 80 where it does not say.
  [[nodiscard]] static std::size_t columns(std::FILE* out);

 private:
  friend void above_live_block(const std::function<void()>& print);
  void draw();
  void erase();

  std::FILE* out_;
  std::vector<std::string> lines_;
  bool drawn_ = false;
};

/// Log lines that are neither warnings nor errors go to no terminal from now on.
void log_less();

/// Calls `print`, which writes whole lines to the terminal, with the block out of the way.
void above_live_block(const std::function<void()>& print);

}  // namespace train
