#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "cli/audit_options.hpp"
#include "cli/export_options.hpp"
#include "cli/plot_options.hpp"
#include "cli/scale_options.hpp"
#include "cli/submit_options.hpp"

namespace train::cli {

/// actortrain run CONFIG
struct RunOptions {
  std::string config;            ///< Path of the run file.
  std::vector<std::string> set;  ///< "section.key=value", in order.
  bool dry_run = false;          ///< Check everything, train nothing.
  bool fresh = false;            ///< Set an earlier run of this name aside instead of resuming it.
  bool accept_data = false;      ///< Resume although the data is not what the run was trained on.
  bool profile = false;          ///< Record what every actor did when.
  std::optional<std::int64_t> nodes;  ///< Instead of parallel.nodes; 1 or more.
};

/// actortrain plan CONFIG
struct PlanOptions {
  std::string config;            ///< Path of the run file.
  std::vector<std::string> set;  ///< As in RunOptions.
};

/// actortrain eval RUN_DIRECTORY
struct EvalOptions {
  std::string run_directory;
  std::optional<std::int64_t> step;   ///< Of the checkpoint; none: the newest. Not with `follow`.
  std::int64_t ranks = 1;             ///< 1 or more.
  bool follow = false;                ///< Evaluate every checkpoint as it is published.
  std::optional<std::string> device;  ///< "cpu" or "cuda"; none: the run's.
};

/// actortrain worker: one rank of a run, started by the run's launcher and not meant for people
/// (help does not show it).
struct WorkerOptions {
  std::string head;                 ///< HOST:PORT of the run's head.
  std::int64_t rank = 0;            ///< 0 or more.
  std::string credentials;          ///< Directory of what the head knows its own ranks by.
  std::int64_t memory = -1;         ///< Descriptor of the node's snapshots, to write; -1: none.
  std::int64_t memory_before = -1;  ///< The same of an earlier number of ranks, to read.
  std::int64_t memory_buddy_before = -1;  ///< And of the node before's ranks then.
};

/// actortrain generate RUN_DIRECTORY
struct GenerateOptions {
  std::string run_directory;
  std::string prompt;                ///< Empty: start from end-of-text.
  std::int64_t tokens = 200;         ///< 1 or more.
  double temperature = 0.8;          ///< 0: always the likeliest token.
  std::int64_t top_k = 0;            ///< 0: all.
  double top_p = 1.0;                ///< Above 0, at most 1.
  std::uint64_t seed = 0;            ///< The same seed gives the same text.
  std::optional<std::int64_t> step;  ///< Of the checkpoint; none: the newest.
};

/// actortrain status RUN_DIRECTORY
struct StatusOptions {
  std::string run_directory;
  bool json = false;  ///< For programs.
};

/// actortrain checkpoints list|show|verify|prune|reindex|diff
struct CheckpointsOptions {
  enum class Action : std::uint8_t { list, show, verify, prune, reindex, diff };
  struct Side {
    std::string run_directory;
    std::int64_t step = 0;
  };

  Action action = Action::list;
  std::string run_directory;
  bool all = false;                        ///< list: also retired ones.
  bool json = false;                       ///< list: for programs.
  std::optional<std::int64_t> step;        ///< show: none is the newest. verify: none is all.
  bool dry_run = false;                    ///< prune: remove nothing.
  std::optional<std::int64_t> keep_last;   ///< prune: instead of the run's; 1 or more.
  std::optional<std::int64_t> keep_every;  ///< prune: instead of the run's; 0: off.
  std::optional<std::int64_t> keep_best;   ///< prune: instead of the run's; 0: off.
  std::vector<Side> sides;                 ///< diff: the two to compare.
};

/// actortrain data prepare
struct PrepareOptions {
  std::vector<std::string> inputs;  ///< At least one.
  std::string tokenizer = "bytes";
  std::string out;
  double val_fraction = 0.05;  ///< Above 0, below 1.
  std::string separator;       ///< Empty: a file is one document.
  std::uint64_t seed = 0;      ///< Chooses the validation documents.
  bool force = false;          ///< Replace token files already there.
};

/// actortrain config keys
struct KeysOptions {};

/// actortrain version
struct VersionOptions {};

/// `--help`: `text` goes to standard output, exit 0.
struct HelpOptions {
  std::string text;
};

using Command = std::variant<RunOptions, PlanOptions, EvalOptions, GenerateOptions, PrepareOptions,
                             KeysOptions, VersionOptions, HelpOptions, WorkerOptions,
                             CheckpointsOptions, ExportOptions, ScaleOptions, PlotOptions,
                             SubmitOptions, StatusOptions, ReplayOptions, VerifyOptions>;

/// The command line as a value. Pure: reads no file, prints nothing, never exits.
/// Errors: ErrorKind::user, one line that starts with the command and ends with where help is.
[[nodiscard]] Result<Command> parse(int argc, const char* const* argv);

}  // namespace train::cli
