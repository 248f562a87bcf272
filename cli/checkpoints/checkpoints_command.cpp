#include "cli/checkpoints/checkpoints_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "checkpoint/layout.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"
#include "cli/report_error.hpp"

namespace train::cli {
namespace checkpoints {

namespace fs = std::filesystem;

Result<Run> open_run(const std::string& directory) {
  const Run run{directory};
  std::error_code ignored;
  if (!fs::exists(run.root / "config.toml", ignored) && !fs::is_directory(run.placed(), ignored)) {
    return user_error(fmt::format(
        "{}: not a run directory (no config.toml); give the directory that `actortrain run` made",
        directory));
  }
  return run;
}

Error none_yet(const Run& run) {
  return user_error(fmt::format("{}: no checkpoints", run.placed().string()));
}

Result<fs::path> directory_of(const Run& run, std::int64_t step) {
  const auto found = checkpoint::list_checkpoints(run.placed());
  if (!found) {
    return found.error();
  }
  if (found->empty()) {
    return none_yet(run);
  }
  const auto nearest = std::min_element(found->begin(), found->end(), [&](auto& a, auto& b) {
    return std::abs(a.step - step) < std::abs(b.step - step);
  });
  if (nearest->step != step) {
    return user_error(fmt::format("{}: no checkpoint of step {}; the nearest is step {}",
                                  run.placed().string(), step, nearest->step));
  }
  return nearest->path;
}

Result<checkpoint::IndexView> look(const Run& run) {
  auto view = checkpoint::view_index(run.index(), run.placed());
  if (view && !view->without_index.empty() && !view->entries.empty()) {
    log_warning(fmt::format("index_not_used {}: showing what the manifests in place say",
                            view->without_index));
  }
  return view;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace checkpoints

namespace {

Result<int> act(const CheckpointsOptions& options) {
  using Action = CheckpointsOptions::Action;
  switch (options.action) {
    case Action::list:
      return checkpoints::list(options);
    case Action::show:
      return checkpoints::show(options);
    case Action::verify:
      return checkpoints::verify(options);
    case Action::prune:
      return checkpoints::prune(options);
    case Action::reindex:
      return checkpoints::reindex(options);
    case Action::diff:
      return checkpoints::diff(options);
  }
  return failure("no such action");
}

}  // namespace

int checkpoints_command(const CheckpointsOptions& options) {
  allow_signals();  // whatever is cut short is finished at the next start
  const Result<int> code = act(options);
  if (!code) {
    return report_error(code.error());
  }
  return *code;
}

}  // namespace train::cli
