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

/// Step that stands for the checkpoint with the lowest validation loss: "best".
inline constexpr std::int64_t kBestStep = -1;

/// actortrain run CONFIG
struct RunOptions {
  std::string config;            ///< Path of the run file.
  std::vector<std::string> set;  ///< "section.key=value", in order.
  bool dry_run = false;          ///< Check everything, train nothing.
  bool fresh = false;            ///< Set an earlier run of this name aside instead of resuming it.
  bool accept_data = false;      ///< Resume although the data differs from that of the run.
  std::vector<std::string> accept_config;  ///< Keys that may have other values than so far.
  bool profile = false;                    ///< Record the times of every actor's work.
  bool quiet = false;                      ///< Print only warnings and errors.
  bool json = false;                       ///< Print metrics and events as JSON lines.
  std::optional<std::int64_t> nodes;       ///< Overrides parallel.nodes; 1 or more.
};

/// actortrain quickstart [DIRECTORY]
struct QuickstartOptions {
  std::string directory = "quickstart";  ///< New, empty, or of an earlier quickstart.
  std::string text;                      ///< File to train on; empty: the text of the package.
  std::vector<std::string> set;          ///< As in RunOptions.
};

/// actortrain recipe list
struct RecipeListOptions {};

/// actortrain recipe check NAME
struct RecipeCheckOptions {
  std::string name;                   ///< Recipe's name; with a slash its folder.
  std::string out;                    ///< Directory to train in; empty: a temporary one.
  std::string model;                  ///< Directory of SmolLM2; empty: none.
  std::optional<std::int64_t> steps;  ///< Compare only so many; 1 or more.
  std::vector<std::string> set;       ///< As in RunOptions.
  bool record = false;                ///< Write the digests, not with `steps`.
};

/// actortrain plan CONFIG
struct PlanOptions {
  std::string config;                 ///< Path of the run file.
  std::vector<std::string> set;       ///< As in RunOptions.
  bool tensors = false;               ///< Show the rows of each tensor.
  std::optional<std::int64_t> vocab;  ///< Plan without data, for so many tokens; 1 or more.
};

/// actortrain submit CONFIG
struct SubmitOptions {
  std::string config;                 ///< Path of the run file.
  std::vector<std::string> set;       ///< As in RunOptions.
  std::optional<std::int64_t> nodes;  ///< Overrides parallel.nodes; 1 or more.
  std::optional<std::int64_t> cpus;   ///< Per node, overrides the profile's; 1 or more.
  std::string profile;                ///< Name or path; empty: selected by host name.
  std::string time;                   ///< This and the following: empty: the profile's value.
  std::string account;
  std::string partition;
  std::string constraint;
  std::string gpus;      ///< Per node.
  std::string mem;       ///< Per node.
  bool dry_run = false;  ///< Print the script only; write and submit nothing.
};

/// actortrain eval RUN_DIRECTORY
struct EvalOptions {
  std::string run_directory;         ///< With `choices` also a published model's directory.
  std::vector<std::string> choices;  ///< Files of questions; empty: evaluate as the run does.
  std::string details;  ///< With `choices`: output file for each question; empty: none.
  std::optional<std::int64_t> context;  ///< With `choices`: tokens per row; 1 or more.
  std::optional<std::int64_t> step;     ///< Or kBestStep; default: the newest. Not with `follow`.
  std::int64_t ranks = 1;               ///< 1 or more.
  bool follow = false;                  ///< Evaluate every checkpoint as it is published.
  bool ema = false;                     ///< Use the running average of the weights.
  std::optional<std::string> device;    ///< "cpu" or "cuda"; default: the run's.
};

/// actortrain generate RUN_DIRECTORY
struct GenerateOptions {
  std::string run_directory;
  std::string prompt;                ///< Empty: start from end-of-text; with `chat`: interactive.
  std::string prompts;               ///< File with one prompt per line, instead of `prompt`.
  std::int64_t batch = 8;            ///< Prompts of the file continued at a time; 1 or more.
  std::vector<std::string> stops;    ///< Stop texts, non-empty.
  bool logprobs = false;             ///< Print log-probabilities.
  bool chat = false;                 ///< Prompts are user messages.
  std::string system;                ///< System message; like the two following, only with `chat`.
  std::string chat_template;         ///< Name or path; empty: the model's.
  std::string date;                  ///< YYYY-MM-DD; empty: the templates' default.
  std::int64_t tokens = 200;         ///< Largest number; 1 or more.
  double temperature = 0.8;          ///< 0: greedy.
  std::int64_t top_k = 0;            ///< 0: off.
  double top_p = 1.0;                ///< Above 0, at most 1.
  std::uint64_t seed = 0;            ///< Equal seeds give equal texts.
  bool latent_cache = false;         ///< Keep latents, not keys and values (engine::CacheForm).
  std::optional<std::int64_t> step;  ///< Or kBestStep; default: the newest.
  bool ema = false;                  ///< Use the running average of the weights.
  std::optional<std::int64_t> context;  ///< Context length for a published model, in tokens; 1 or
                                        ///< more.
};

/// actortrain status RUN_DIRECTORY
struct StatusOptions {
  std::string run_directory;
  bool json = false;  ///< Output JSON.
};

/// actortrain board DIRECTORY
struct BoardCommandOptions {
  std::string directory;  ///< Directory of a run, or of several.
  std::string listen = "127.0.0.1:0";
  std::string token_file;
  std::string frame_ancestors;  ///< Origins whose pages may show it in a frame; empty: none.
};

/// actortrain checkpoints list RUN_DIRECTORY
struct ListOptions {
  std::string run_directory;
  bool all = false;   ///< Include retired ones.
  bool json = false;  ///< Output JSON.
};

/// actortrain checkpoints show|verify RUN_DIRECTORY [STEP]
struct CheckpointOptions {
  std::string run_directory;
  std::optional<std::int64_t> step;  ///< Or kBestStep. Default: show the newest, verify all.
};

/// actortrain checkpoints prune RUN_DIRECTORY
struct PruneOptions {
  std::string run_directory;
  bool dry_run = false;                    ///< List only; remove nothing.
  std::optional<std::int64_t> keep_last;   ///< Overrides the run's; 1 or more.
  std::optional<std::int64_t> keep_every;  ///< Overrides the run's; 0: off.
  std::optional<std::int64_t> keep_best;   ///< Overrides the run's; 0: off.
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

/// Advice if the run's device is not available.
inline constexpr const char* kOtherDevice = "give --device cpu";

/// actortrain replay RUN_DIRECTORY
struct ReplayOptions {
  std::string run_directory;
  std::optional<std::int64_t> from;   ///< First step; default: the one after the newest checkpoint
                                      ///< before `to`. 1 or more, at most `to`.
  std::optional<std::int64_t> to;     ///< Last step; default: the last in the journal.
  std::optional<std::int64_t> ranks;  ///< 1 or more; default: 1, or the run's number if its bits
                                      ///< depend on it.
  std::optional<std::string> device;  ///< "cpu" or "cuda"; default: the run's.
};

/// actortrain verify RUN_DIRECTORY
struct VerifyOptions {
  std::string run_directory;
};

/// actortrain export RUN_DIRECTORY
struct ExportOptions {
  std::string run_directory;
  std::string out;                   ///< Directory to create.
  std::optional<std::int64_t> step;  ///< Or kBestStep; default: the newest.
  std::string dtype = "fp32";        ///< "fp32", "bf16", "fp16"; of gguf "q8_0" or "q4_k_m", too.
  std::string format = "hf";         ///< "hf", "peft", "gguf" or "gguf-lora".
  bool no_tokenizer = false;         ///< Leave the tokenizer out of a GGUF file.
  bool ema = false;                  ///< Export the running average of the weights.
  std::string mtp;                   ///< A model's directory, or "none"; empty: model.from.
  /// Bytes of tensors per file; 1 or more. Default: 5 GB, a GGUF file is one.
  std::optional<std::uint64_t> max_file_bytes;
};

/// actortrain convert
struct ConvertOptions {
  std::string in;             ///< Directory of a model.
  std::string out;            ///< Directory to create.
  std::string dtype;          ///< As in ExportOptions; empty: unchanged.
  std::string format = "hf";  ///< "hf" or "gguf".
  bool no_tokenizer = false;  ///< As in ExportOptions.
  /// Bytes of tensors per file; 1 or more. Default: 5 GB, a GGUF file is one.
  std::optional<std::uint64_t> max_file_bytes;
};

/// actortrain merge
struct MergeOptions {
  std::vector<std::string> inputs;              ///< Directories of models, or one run.
  std::optional<std::int64_t> last;             ///< That many checkpoints of the run.
  std::vector<double> weights;                  ///< One for each model; empty: equal.
  std::string out;                              ///< Directory to create.
  std::string dtype;                            ///< As in ConvertOptions.
  std::optional<std::uint64_t> max_file_bytes;  ///< As in ExportOptions.
};

/// actortrain render
struct RenderOptions {
  std::string model;          ///< Directory or GGUF file; empty: use `chat_template`.
  std::string chat_template;  ///< Name of a built-in template, or a file.
  std::string name;           ///< Name among several templates; empty: chosen by the conversation.
  std::string input;          ///< Empty or "-": standard input.
  std::string date;           ///< YYYY-MM-DD; empty: a fixed date.
  bool add_generation_prompt = false;
  bool lines = false;  ///< One conversation, and its text, per line.
};

/// actortrain describe
struct DescribeOptions {
  std::string model;  ///< Run file, config.json, directory, or shape; empty: list shapes.
};

/// actortrain scale
struct ScaleOptions {
  std::string arch;                 ///< Name of a rule in the table.
  std::vector<std::int64_t> heads;  ///< At least one.
  std::string optimizer;
  double kappa = 0.85;                  ///< For optimizers that have one.
  std::string params = "total";         ///< "total" or "non_embedding": the weights that
                                        ///< tokens_per_parameter counts.
  double tokens_per_parameter = 20.0;   ///< Above 0.
  double omega = 4.0;                   ///< 0 or more.
  std::int64_t batch = 32;              ///< Sequences per step, 1 or more.
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
  std::int64_t smooth = 1;        ///< Window of the moving average, in points; 1 or more.
  bool log_x = false;
};

/// actortrain log
struct LogOptions {
  std::string run_directory;
  std::string to;  ///< wandb, mlflow, trackio
  std::string project;
  bool once = false;
};

/// actortrain config keys
struct KeysOptions {
  std::string prefix;  ///< Empty: all keys, as the documentation's table.
};

/// actortrain config schema
struct SchemaOptions {};

/// actortrain completion
struct CompletionOptions {};

/// actortrain manual
struct ManualOptions {};

/// actortrain version
struct VersionOptions {};

/// `--help`: `text` is printed to standard output, exit 0.
struct HelpOptions {
  std::string text;
};

/// Parsed command line.
struct Command {
  std::any options;                  ///< Options struct of the command, from this file.
  std::function<Result<int>()> run;  ///< Runs the command; returns the exit code, or the error to
                                     ///< report. Blocks.
};

/// Parses the command line. Pure: reads no file, prints nothing, never exits. Errors:
/// ErrorKind::user, one line that starts with the command and ends with a pointer to its help.
[[nodiscard]] Result<Command> parse(int argc, const char* const* argv);

}  // namespace train::cli
