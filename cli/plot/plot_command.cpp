#include "cli/plot/plot_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "cli/plot/plot_curves.hpp"
#include "cli/report_error.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;

/// Far more than a picture of millions of points takes.
constexpr std::chrono::minutes kDrawingLimit(5);

/// A hidden directory beside `target`, so that a rename takes what was drawn to its place. It goes
/// with this object.
class Workshop {
 public:
  static Result<Workshop> open_beside(const fs::path& target) {
    const fs::path parent = target.parent_path();
    std::string name =
        (parent / fmt::format(".{}.tmp-XXXXXX", target.filename().string())).string();
    if (::mkdtemp(name.data()) == nullptr) {
      return storage::os_error(storage::Access::write, parent, errno);
    }
    return Workshop(name);
  }
  Workshop(Workshop&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Workshop& operator=(Workshop&&) = delete;
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  ~Workshop() {
    if (!path_.empty()) {
      if (const Status removed = storage::remove_tree(path_); !removed) {
        log_warning(removed.error().message);
      }
    }
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  explicit Workshop(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

/// The first line that gnuplot complained with, without the place in the script.
std::string complaint_of(const ChildEnd& end) {
  if (end.timed_out) {
    return fmt::format("not ready after {} minutes", kDrawingLimit.count());
  }
  const std::size_t begin = std::min(end.errors.find_first_not_of(" \r\n\t"), end.errors.size());
  const std::string line =
      end.errors.substr(begin, end.errors.find_first_of("\r\n", begin) - begin);
  return fmt::format("{} {}{}{}", end.signal != 0 ? "signal" : "exit code",
                     end.signal != 0 ? end.signal : end.exit_code, line.empty() ? "" : ": ", line);
}

Status draw(const std::vector<Curve>& curves, const PlotOptions& options, const fs::path& target) {
  const auto gnuplot = find_program("gnuplot");
  if (!gnuplot) {
    return user_error(
        fmt::format("{}: no program \"gnuplot\", which draws pictures; install the Debian package "
                    "gnuplot-nox, or let --out end in .csv",
                    options.out));
  }
  const auto workshop = Workshop::open_beside(target);
  if (!workshop) {
    return workshop.error();
  }
  const fs::path script = workshop->path() / "script";
  const fs::path picture = workshop->path() / "picture";
  TRAIN_RETURN_IF_ERROR(
      storage::write_file_atomically(script, script_of(curves, options, picture)));
  const auto end = run_child({*gnuplot, "-d", script.string()}, {.timeout = kDrawingLimit});
  if (!end) {
    return end.error();
  }
  std::error_code unknown;
  const auto bytes = fs::file_size(picture, unknown);
  if (end->exit_code != 0 || end->timed_out || unknown || bytes == 0) {
    return failure(fmt::format("{}: not drawn: gnuplot: {}", options.out, complaint_of(*end)));
  }
  TRAIN_RETURN_IF_ERROR(storage::fsync_file(picture));
  return storage::rename_durably(picture, target);
}

}  // namespace

Status write_plot(const PlotOptions& options) {
  std::error_code unknown;
  const fs::path target = fs::absolute(options.out, unknown);
  if (unknown || fs::is_directory(target, unknown)) {
    return user_error(fmt::format("--out {}: is a directory; name a file", options.out));
  }
  const auto curves = read_curves(options);
  if (!curves) {
    return curves.error();
  }
  if (target.extension() == ".csv") {
    return storage::write_file_atomically(target, csv_of(*curves, options));
  }
  return draw(*curves, options, target);
}

int plot_command(const PlotOptions& options) {
  if (const Status written = write_plot(options); !written) {
    return report_error(written.error());
  }
  std::fputs(fmt::format("{}: {} of {} {}\n", options.out, options.what, options.runs.size(),
                         options.runs.size() == 1 ? "run" : "runs")
                 .c_str(),
             stdout);
  return kExitFinished;
}

}  // namespace train::cli
