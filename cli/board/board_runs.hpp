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

/// Runs in a folder, or a single run. New runs are added, vanished ones removed. If a folder has
/// too many, the first ones are kept, and the surplus is reported. Only files inside the folder are
/// read (storage::Within).
///
/// Threading: not thread-safe; look() blocks on the disk.
class BoardRuns {
 public:
  static constexpr std::size_t kMostRuns = 2000;
  static constexpr std::size_t kMostNames = 20'000;  ///< Largest number of names examined in a
                                                     ///< folder.

  /// Errors (user): neither a run's directory nor a folder.
  [[nodiscard]] static Result<BoardRuns> open(const std::filesystem::path& root);

  /// Updates the list of runs,
  void look_at_folder();
  /// and reads all of them.
  void look(const Surroundings& here);

  /// Run by name; null if unknown. Empty name: the only run, or null.
  [[nodiscard]] std::shared_ptr<WatchedRun> find(std::string_view name) const;
  [[nodiscard]] std::vector<std::shared_ptr<WatchedRun>> all() const;  ///< Sorted by name.
  /// {"runs": [...]}, with "left_out": true if some are not shown.
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
