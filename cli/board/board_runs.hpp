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
///
/// Threading: not thread-safe; look() blocks on the disk.
class BoardRuns {
 public:
  /// Errors (user): neither a run's directory nor a folder.
  [[nodiscard]] static Result<BoardRuns> open(const std::filesystem::path& root);

  /// Looks at the folder and at all runs that are not over, and at those not looked at yet.
  void look(const Surroundings& here);

  /// By name; null: there is no such run. An empty name: the only run, or null.
  [[nodiscard]] std::shared_ptr<WatchedRun> find(std::string_view name) const;
  [[nodiscard]] std::vector<std::shared_ptr<WatchedRun>> all() const;  ///< By name.
  /// {"runs": [...]}.
  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string open_metrics() const;

 private:
  BoardRuns(std::filesystem::path root, bool alone) : root_(std::move(root)), alone_(alone) {}
  void look_at_folder();

  std::filesystem::path root_;
  bool alone_;
  std::map<std::string, std::shared_ptr<WatchedRun>, std::less<>> runs_;
};

}  // namespace train::cli
