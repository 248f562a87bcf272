#include "cli/checkpoints/run_paths.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/text/paths.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

/// `path` without "." and a slash at its end.
fs::path plain_path(const fs::path& path) { return without_slash(path.lexically_normal()); }

/// Directory where the run in `run` (absolute) was started; empty: its run.dir does not say. The
/// name does not matter: --fresh sets runs aside under other names.
fs::path start_directory(const fs::path& run, const std::string& run_dir) {
  fs::path rest = run.parent_path();
  fs::path left = plain_path(fs::path(".") / run_dir);
  for (; left != "." && !left.empty(); left = left.parent_path()) {
    if (left.is_absolute() || left.filename() == ".." || left.filename() != rest.filename()) {
      return {};
    }
    rest = rest.parent_path();
  }
  return rest;
}

/// Finds paths of one run.
class PathFinder {
 public:
  PathFinder(fs::path run, FoundPaths& found)
      : run_(std::move(run)), start_(start_directory(run_, found.config.run.dir)), found_(found) {}

  /// A directory of data, which is noted as missing if it does not exist.
  void find_data(const std::string& key, std::string& path) {
    if (!find(key, path) && found_.missing.empty()) {
      found_.missing = fmt::format(
          "{}: {} = \"{}\": no such directory {}", (run_ / "config.toml").string(), key, path,
          start_.empty() ? "here; the path begins where the run was started: call this command "
                           "there"
                         : fmt::format("in {}, where the run was started, nor here; put the data "
                                       "back there",
                                       start_.string()));
    }
  }

  /// False: the path is relative and does not exist.
  bool find(const std::string& key, std::string& path) {
    const fs::path given = path;
    if (path.empty() || given.is_absolute()) {
      return true;
    }
    std::error_code ignored;
    const bool is_here = fs::exists(given, ignored);
    const fs::path there = (start_ / given).lexically_normal();
    if (start_.empty() || !fs::exists(there, ignored)) {
      return is_here;
    }
    if (is_here && fs::equivalent(given, there, ignored)) {
      return true;
    }
    if (is_here) {
      found_.notes.push_back(
          fmt::format("{} = \"{}\": read in {}, where the run was started, not here", key, path,
                      start_.string()));
    }
    path = there.string();
    return true;
  }

 private:
  fs::path run_;
  fs::path start_;
  FoundPaths& found_;
};

}  // namespace

FoundPaths find_paths(configs::RunConfig config, const fs::path& run) {
  FoundPaths found{.config = std::move(config)};
  const auto absolute = storage::absolute_path(run);
  if (!absolute) {
    return found;
  }
  const fs::path root = plain_path(*absolute);
  PathFinder finder(root, found);
  configs::RunConfig& paths = found.config;
  finder.find("model.from", paths.model.from);
  finder.find("model.config", paths.model.config);
  finder.find_data("data.dir", paths.data.dir);
  for (configs::DataSource& source : paths.data.sources) {
    finder.find_data("data.sources", source.dir);
  }
  finder.find_data("data.forget_dir", paths.data.forget_dir);
  for (std::string& file : paths.eval.choices) {
    finder.find("eval.choices", file);
  }
  std::error_code ignored;
  if (!fs::equivalent(fs::path(paths.run.dir) / paths.run.name, root, ignored)) {
    paths.run.dir = root.parent_path().string();
    paths.run.name = root.filename().string();
  }
  return found;
}

}  // namespace train::cli
