#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/data_options.hpp"
#include "cli/tokenize_options.hpp"

namespace train::cli {

/// actortrain run CONFIG
struct RunOptions {
  std::string config;            ///< Path of the run file.
  std::vector<std::string> set;  ///< "section.key=value", in order.
  bool dry_run = false;          ///< Check everything, train nothing.
  bool fresh = false;            ///< Set an earlier run of this name aside instead of resuming it.
  bool accept_data = false;      ///< Resume although the data is not what the run was trained on.
  bool profile = false;          ///< Record what every actor did when.
  bool quiet = false;            ///< Print warnings and errors alone.
  bool json = false;             ///< Print metrics and events as JSON lines.
  std::optional<std::int64_t> nodes;  ///< Instead of parallel.nodes; 1 or more.
};

/// actortrain plan CONFIG
struct PlanOptions {
  std::string config;            ///< Path of the run file.
  std::vector<std::string> set;  ///< As in RunOptions.
};

/// actortrain submit CONFIG
struct SubmitOptions {
  std::string config;                 ///< Path of the run file.
  std::vector<std::string> set;       ///< As in RunOptions.
  std::optional<std::int64_t> nodes;  ///< Instead of parallel.nodes; 1 or more.
  std::optional<std::int64_t> cpus;   ///< Per node, instead of the profile's; 1 or more.
  std::string profile;                ///< A name or a path; empty: by the host's name.
  std::string time;                   ///< This and the following: empty: the profile's.
  std::string account;
  std::string partition;
  std::string constraint;
  std::string gpus;      ///< Per node.
  std::string mem;       ///< Per node.
  bool dry_run = false;  ///< Print the script, write and submit nothing.
};

/// actortrain eval RUN_DIRECTORY
struct EvalOptions {
  std::string run_directory;         ///< With `choices` also a published model's directory.
  std::vector<std::string> choices;  ///< Files of questions; none: evaluate as the run does.
  std::string details;               ///< With `choices`: where each question goes; empty: nowhere.
  std::optional<std::int64_t> context;  ///< With `choices`: tokens of a row; 1 or more.
  std::optional<std::int64_t> step;     ///< Of the checkpoint; none: the newest. Not with `follow`.
  std::int64_t ranks = 1;               ///< 1 or more.
  bool follow = false;                  ///< Evaluate every checkpoint as it is published.
  bool ema = false;                     ///< The running average of the weights, not the weights.
  std::optional<std::string> device;    ///< "cpu" or "cuda"; none: the run's.
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
  std::string prompt;                   ///< Empty: start from end-of-text; with `chat`: talk.
  std::string prompts;                  ///< A file with a prompt a line, instead of `prompt`.
  std::int64_t batch = 8;               ///< Of its prompts, continued at a time; 1 or more.
  std::vector<std::string> stops;       ///< Texts that end one; none of them empty.
  bool logprobs = false;                ///< Print them.
  bool chat = false;                    ///< Prompts are what a user says.
  std::string system;                   ///< With `chat`, as the two following: what comes first.
  std::string chat_template;            ///< A name or a path; empty: the model's.
  std::string date;                     ///< YYYY-MM-DD; empty: the templates' own.
  std::int64_t tokens = 200;            ///< At most; 1 or more.
  double temperature = 0.8;             ///< 0: always the likeliest token.
  std::int64_t top_k = 0;               ///< 0: all.
  double top_p = 1.0;                   ///< Above 0, at most 1.
  std::uint64_t seed = 0;               ///< The same seed gives the same text.
  std::optional<std::int64_t> step;     ///< Of the checkpoint; none: the newest.
  std::optional<std::int64_t> context;  ///< Of a published model alone, in tokens; 1 or more.
};

/// actortrain status RUN_DIRECTORY
struct StatusOptions {
  std::string run_directory;
  bool json = false;  ///< For programs.
};

/// actortrain board DIRECTORY
struct BoardCommandOptions {
  std::string directory;  ///< Of a run or of several.
  std::string listen = "127.0.0.1:0";
  std::string token_file;
};

/// actortrain checkpoints list RUN_DIRECTORY
struct ListOptions {
  std::string run_directory;
  bool all = false;   ///< Also retired ones.
  bool json = false;  ///< For programs.
};

/// actortrain checkpoints show|verify RUN_DIRECTORY [STEP]
struct CheckpointOptions {
  std::string run_directory;
  std::optional<std::int64_t> step;  ///< None: show the newest, verify all.
};

/// actortrain checkpoints prune RUN_DIRECTORY
struct PruneOptions {
  std::string run_directory;
  bool dry_run = false;                    ///< Remove nothing.
  std::optional<std::int64_t> keep_last;   ///< Instead of the run's; 1 or more.
  std::optional<std::int64_t> keep_every;  ///< Instead of the run's; 0: off.
  std::optional<std::int64_t> keep_best;   ///< Instead of the run's; 0: off.
};

/// actortrain checkpoints reindex RUN_DIRECTORY
struct ReindexOptions {
  std::string run_directory;
};

/// actortrain checkpoints diff
struct DiffOptions {
  struct Side {
    std::string run_directory;
    std::int64_t step = 0;
  };
  Side a;
  Side b;
};

/// What to do where the run's device is not.
inline constexpr const char* kOtherDevice = "give --device cpu";

/// actortrain replay RUN_DIRECTORY
struct ReplayOptions {
  std::string run_directory;
  std::optional<std::int64_t> from;   ///< First step; none: the one after the newest checkpoint
                                      ///< before `to`. 1 or more, at most `to`.
  std::optional<std::int64_t> to;     ///< Last step; none: the last in the journal.
  std::optional<std::int64_t> ranks;  ///< 1 or more; none: 1, or the run's where bits need that.
  std::optional<std::string> device;  ///< "cpu" or "cuda"; none: the run's.
};

/// actortrain verify RUN_DIRECTORY
struct VerifyOptions {
  std::string run_directory;
};

/// actortrain export RUN_DIRECTORY
struct ExportOptions {
  std::string run_directory;
  std::string out;                                ///< A directory to be made.
  std::optional<std::int64_t> step;               ///< Of the checkpoint; none: the newest.
  std::string dtype = "fp32";                     ///< "fp32", "bf16" or "fp16".
  std::string format = "hf";                      ///< "hf" or "peft".
  bool ema = false;                               ///< The running average of the weights.
  std::uint64_t max_file_bytes = 5'000'000'000U;  ///< Of tensors in a file; 1 or more.
};

/// actortrain convert
struct ConvertOptions {
  std::string in;                                 ///< A model's directory.
  std::string out;                                ///< A directory to be made.
  std::string dtype;                              ///< As ExportOptions has it; empty: as it is.
  std::uint64_t max_file_bytes = 5'000'000'000U;  ///< Of tensors in a file; 1 or more.
};

/// actortrain render
struct RenderOptions {
  std::string model;          ///< A directory or a GGUF file; empty: `chat_template`.
  std::string chat_template;  ///< A built-in one by name, or a file.
  std::string name;   ///< Of several templates; empty: the one that the conversation asks for.
  std::string input;  ///< Empty or "-": standard input.
  std::string date;   ///< YYYY-MM-DD; empty: a fixed one.
  bool add_generation_prompt = false;
  bool lines = false;  ///< A conversation and its text a line.
};

/// actortrain describe
struct DescribeOptions {
  std::string model;  ///< A run file, a config.json, a directory, or a shape; empty: list shapes.
};

/// actortrain scale
struct ScaleOptions {
  std::string arch;                 ///< A rule of the table.
  std::vector<std::int64_t> heads;  ///< At least one.
  std::string optimizer;
  double kappa = 0.85;                 ///< Of optimizers that have one.
  std::string params = "total";        ///< "total" or "non_embedding": what tokens are counted for.
  double tokens_per_parameter = 20.0;  ///< Above 0.
  double omega = 4.0;                  ///< 0 or more.
  std::int64_t batch = 32;             ///< Sequences of a step, 1 or more.
  std::int64_t sequence_length = 2048;  ///< Tokens, 1 or more.
  std::string table;                    ///< File of rules; empty: the built-in ones.
  bool json = false;
};

/// actortrain plot
struct PlotOptions {
  std::vector<std::string> runs;  ///< Directories of runs, at least one.
  std::string out;                ///< Ends in .png, .svg or .csv.
  std::string what = "loss";      ///< loss, val, grad_norm, lr
  std::string x = "steps";        ///< steps, tokens, time
  std::int64_t smooth = 1;        ///< Mean of so many points up to each; 1 or more.
  bool log_x = false;
};

/// actortrain config keys
struct KeysOptions {};

/// actortrain completion
struct CompletionOptions {};

/// actortrain manual
struct ManualOptions {};

/// actortrain version
struct VersionOptions {};

/// `--help`: `text` goes to standard output, exit 0.
struct HelpOptions {
  std::string text;
};

/// A command line understood.
struct Command {
  std::any options;                  ///< Of one command: a struct of this file.
  std::function<Result<int>()> run;  ///< Does it: the exit code, or the error to report. Blocks.
};

/// The command line as a value. Pure: reads no file, prints nothing, never exits.
/// Errors: ErrorKind::user, one line that starts with the command and ends with where help is.
[[nodiscard]] Result<Command> parse(int argc, const char* const* argv);

}  // namespace train::cli
