#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/board/watched_run.hpp"

namespace train::cli {

/// The runs of a folder, or one run alone. Runs that come are taken in, those that go are dropped.
/// Of a folder that others fill without end, those that came first stay; that there are more is
/// said. Only what lies in the folder is read (storage::Within).
///
/// Threading: not thread-safe; look() blocks on the disk.
class BoardRuns {
 public:
  static constexpr std::size_t kMostRuns = 2000;
  static constexpr std::size_t kMostNames = 20'000;  ///< Of a folder that are looked at.

  /// Errors (user): neither a run's directory nor a folder.
  [[nodiscard]] static Result<BoardRuns> open(const std::filesystem::path& root);

  /// Looks which runs there are,
  void look_at_folder();
  /// and at all of them.
  void look(const Surroundings& here);

  /// By name; null: there is no such run. An empty name: the only run, or null.
  [[nodiscard]] std::shared_ptr<WatchedRun> find(std::string_view name) const;
  [[nodiscard]] std::vector<std::shared_ptr<WatchedRun>> all() const;  ///< By name.
  /// {"runs": [...]}, and "left_out": true if there are more than are shown.
  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string open_metrics() const;

 private:
  BoardRuns(std::filesystem::path root, bool alone) : root_(std::move(root)), alone_(alone) {}
  void take(const std::filesystem::path& below, std::string name);

  std::filesystem::path root_;
  bool alone_;
  bool left_out_ = false;
  std::map<std::string, std::shared_ptr<WatchedRun>, std::less<>> runs_;
};

}  // namespace train::cli
