#include "actors/cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>
#include <utility>

#include "configs/nearest.hpp"

namespace train::actors::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0   finished\n"
    "  1   failure: disk full, damaged file, lost process\n"
    "  2   mistake in the command, the run file or the data; nothing was started\n"
    "  75  stopped by a signal after saving; the same command resumes\n";

// All options of all commands, and the parser that fills them.
struct Parser {
  CLI::App app{"Trains language models: reproducible to the bit, resumable after any stop.",
               "actortrain"};
  RunOptions run;
  PlanOptions plan;
  EvalOptions eval;
  GenerateOptions generate;
  PrepareOptions prepare;
  WorkerOptions worker;
  std::int64_t nodes = 1;
  std::int64_t eval_step = 0;
  std::int64_t step = 0;
  bool show_version = false;

  CLI::App* run_command = nullptr;
  CLI::App* plan_command = nullptr;
  CLI::App* eval_command = nullptr;
  CLI::App* worker_command = nullptr;
  CLI::App* generate_command = nullptr;
  CLI::App* data_command = nullptr;
  CLI::App* prepare_command = nullptr;
  CLI::App* config_command = nullptr;
  CLI::App* keys_command = nullptr;
  CLI::App* version_command = nullptr;
  CLI::Option* nodes_option = nullptr;
  CLI::Option* eval_step_option = nullptr;
  CLI::Option* step_option = nullptr;
};

// An integer option that refuses what does not fit; CLI11's own conversion saturates silently.
template <class Integer>
CLI::Option* add_integer(CLI::App& command, const std::string& name, Integer& target,
                         const std::string& description) {
  return command
      .add_option_function<std::string>(
          name,
          [&target, name](const std::string& text) {
            const char* end = text.data() + text.size();
            const auto [stop, code] = std::from_chars(text.data(), end, target);
            if (code != std::errc() || stop != end) {
              throw CLI::ValidationError(
                  name, fmt::format("wants {} integer, not \"{}\"",
                                    std::is_signed_v<Integer> ? "an" : "a non-negative", text));
            }
          },
          description)
      ->type_name("INT");
}

/// CONFIG and --set, alike for every command that reads a run file.
void add_run_file(CLI::App& command, std::string& config, std::vector<std::string>& set) {
  command.add_option("config", config, "Run file, for example configs/quickstart.toml")
      ->required()
      ->type_name("CONFIG");
  command
      .add_option("--set", set,
                  "Override a key of the run file; may be repeated, the last one wins")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
}

void describe_run(Parser& parser) {
  CLI::App* command = parser.app.add_subcommand(
      "run", "Train what a run file describes, or resume it where it stopped.");
  parser.run_command = command;
  add_run_file(*command, parser.run.config, parser.run.set);
  command->add_flag("--dry-run", parser.run.dry_run,
                    "Check the run file and the data, show the plan, train nothing");
  command->add_flag("--fresh", parser.run.fresh,
                    "Start over: set an earlier run of this name aside instead of resuming it");
  command->add_flag("--profile", parser.run.profile,
                    "Record what every actor did when, in the run's directory");
  parser.nodes_option = add_integer(*command, "--nodes", parser.nodes,
                                    "Machines to spread the ranks over, instead of parallel.nodes");
  command->footer(kExitCodes);
}

void describe_plan(Parser& parser) {
  CLI::App* command = parser.app.add_subcommand(
      "plan", "Show what each rank of a run would keep, compute and send; start nothing.");
  parser.plan_command = command;
  add_run_file(*command, parser.plan.config, parser.plan.set);
}

void describe_eval(Parser& parser) {
  EvalOptions& options = parser.eval;
  CLI::App* command =
      parser.app.add_subcommand("eval", "Evaluate a run's checkpoint on the validation data.");
  parser.eval_command = command;
  command->add_option("run_directory", options.run_directory, "For example runs/quickstart")
      ->required()
      ->type_name("RUN_DIRECTORY");
  parser.eval_step_option =
      add_integer(*command, "--step", parser.eval_step, "Checkpoint to use; the newest by default");
  add_integer(*command, "--ranks", options.ranks, "Ranks that share the work")->default_str("1");
  command->add_flag("--follow", options.follow,
                    "Evaluate every checkpoint as the run publishes it, until the run ends");
}

void describe_worker(Parser& parser) {
  WorkerOptions& options = parser.worker;
  CLI::App* command = parser.app.add_subcommand("worker", "One rank of a run.");
  parser.worker_command = command;
  command->group("");  // Hidden: only the launcher has use for it.
  command->add_option("--head", options.head, "Where the run's head listens")
      ->required()
      ->type_name("HOST:PORT");
  add_integer(*command, "--rank", options.rank, "Which rank")->required();
  command->add_option("--credentials", options.credentials, "What the head knows its ranks by")
      ->required()
      ->type_name("DIR");
}

void describe_generate(Parser& parser) {
  GenerateOptions& options = parser.generate;
  CLI::App* command =
      parser.app.add_subcommand("generate", "Write text with the weights of a run's checkpoint.");
  parser.generate_command = command;
  command->add_option("run_directory", options.run_directory, "For example runs/quickstart")
      ->required()
      ->type_name("RUN_DIRECTORY");
  command->add_option("--prompt", options.prompt, "Text to continue; none: start a document")
      ->type_name("TEXT");
  add_integer(*command, "--tokens", options.tokens, "Tokens to write")->default_str("200");
  command->add_option("--temperature", options.temperature, "0: always the likeliest token")
      ->capture_default_str();
  add_integer(*command, "--top-k", options.top_k, "Choose among the K likeliest tokens; 0: all")
      ->default_str("0");
  command
      ->add_option("--top-p", options.top_p,
                   "Choose among the likeliest tokens that together have this probability")
      ->capture_default_str();
  add_integer(*command, "--seed", options.seed, "The same seed writes the same text")
      ->default_str("0");
  parser.step_option =
      add_integer(*command, "--step", parser.step, "Checkpoint to use; the newest by default");
}

void describe_data(Parser& parser) {
  PrepareOptions& options = parser.prepare;
  parser.data_command = parser.app.add_subcommand("data", "Prepare training data.");
  parser.data_command->require_subcommand(1);
  CLI::App* command = parser.data_command->add_subcommand(
      "prepare", "Turn text files into the token files that runs read.");
  parser.prepare_command = command;
  command
      ->add_option("--input", options.inputs,
                   "Text files, or .jsonl files with a member \"text\" on each line")
      ->required()
      ->type_name("FILE");
  command->add_option("--out", options.out, "Directory to write, created if missing")
      ->required()
      ->type_name("DIR");
  command->add_option("--tokenizer", options.tokenizer, "bytes: a token is a byte")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--val-fraction", options.val_fraction, "Share of the text held out")
      ->capture_default_str();
  command
      ->add_option("--document-separator", options.separator,
                   "Text between two documents of a file; none: a file is one document")
      ->type_name("TEXT");
  add_integer(*command, "--seed", options.seed, "Chooses the documents held out")->default_str("0");
  command->add_flag("--force", options.force, "Replace token files already in DIR");
}

void describe_rest(Parser& parser) {
  parser.config_command = parser.app.add_subcommand("config", "Explain run files.");
  parser.config_command->require_subcommand(1);
  parser.keys_command = parser.config_command->add_subcommand(
      "keys", "Print every key of a run file: type, default, allowed values, meaning.");
  parser.version_command = parser.app.add_subcommand("version", "Print the version.");
  parser.app.add_flag("--version", parser.show_version, "Print the version");
  parser.app.footer(kExitCodes);
}

void describe(Parser& parser) {
  describe_run(parser);
  describe_plan(parser);
  describe_eval(parser);
  describe_generate(parser);
  describe_data(parser);
  describe_rest(parser);
  describe_worker(parser);
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 32; },
      ' ');
  return text;
}

// The innermost command that `words` start with, and how many words name it.
std::pair<CLI::App*, std::size_t> command_of(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* command = &app;
  std::size_t used = 0;
  while (used < words.size()) {
    const std::vector<CLI::App*> all = command->get_subcommands({});
    const auto inner = std::find_if(all.begin(), all.end(), [&](const CLI::App* candidate) {
      return candidate->get_name() == words[used];
    });
    if (inner == all.end()) {
      break;
    }
    command = *inner;
    ++used;
  }
  return {command, used};
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : fmt::format("{} {}", full_name(*parent), command.get_name());
}

Error usage_error(const CLI::App& command, const std::string& what) {
  const std::string name = full_name(command);
  return user_error(one_line(fmt::format("{}: {}; \"{} --help\" explains", name, what, name)));
}

std::vector<std::string> names_of_commands(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* inner : command.get_subcommands({})) {
    if (!inner->get_group().empty()) {  // Not hidden.
      names.push_back(inner->get_name());
    }
  }
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back(fmt::format("--{}", name));
    }
  }
  return names;
}

// A word where a command should be, or an option nobody knows: said before CLI11 sees them, because
// it does not know the nearest right one.
Status check_words(CLI::App& app, const std::vector<std::string>& words) {
  const auto [command, used] = command_of(app, words);
  const std::vector<std::string> inner = names_of_commands(*command);
  if (!inner.empty() && used == words.size()) {
    return usage_error(*command, fmt::format("wants a command: {}", fmt::join(inner, ", ")));
  }
  if (!inner.empty() && !words[used].starts_with("-")) {
    return usage_error(*command, fmt::format("unknown command \"{}\"{}", words[used],
                                             configs::did_you_mean(words[used], inner)));
  }
  return {};
}

Error explain(const CLI::App& command, const CLI::ParseError& error,
              const std::vector<std::string>& words) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> known = names_of_options(command);
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (word.starts_with("--") && std::find(known.begin(), known.end(), name) == known.end()) {
        return usage_error(command, fmt::format("unknown option \"{}\"{}", name,
                                                configs::did_you_mean(name, known)));
      }
    }
  }
  return usage_error(command, error.what());
}

Status check_run(const Parser& parser) {
  if (parser.nodes < 1) {
    return usage_error(*parser.run_command,
                       fmt::format("--nodes must be 1 or more, not {}", parser.nodes));
  }
  return {};
}

Status check_eval(const Parser& parser) {
  const EvalOptions& options = parser.eval;
  const CLI::App& command = *parser.eval_command;
  if (options.ranks < 1) {
    return usage_error(command, fmt::format("--ranks must be 1 or more, not {}", options.ranks));
  }
  if (parser.eval_step < 0) {
    return usage_error(command, fmt::format("--step must be 0 or more, not {}", parser.eval_step));
  }
  if (options.follow && parser.eval_step_option->count() > 0) {
    return usage_error(command, "--follow takes every checkpoint, --step one; give one of them");
  }
  return {};
}

Status check_worker(const Parser& parser) {
  const WorkerOptions& options = parser.worker;
  const CLI::App& command = *parser.worker_command;
  if (options.rank < 0) {
    return usage_error(command, fmt::format("--rank must be 0 or more, not {}", options.rank));
  }
  const std::size_t colon = options.head.rfind(':');
  std::uint16_t port = 0;
  const std::string_view digits =
      colon == std::string::npos ? "" : std::string_view(options.head).substr(colon + 1);
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (colon == std::string::npos || colon == 0 || code != std::errc() || port == 0 ||
      stop != digits.data() + digits.size()) {
    return usage_error(command, fmt::format("--head wants HOST:PORT, not \"{}\"", options.head));
  }
  return {};
}

Status check_generate(const Parser& parser) {
  const GenerateOptions& options = parser.generate;
  const CLI::App& command = *parser.generate_command;
  if (options.tokens < 1) {
    return usage_error(command, fmt::format("--tokens must be 1 or more, not {}", options.tokens));
  }
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return usage_error(command,
                       fmt::format("--temperature must be 0 or more, not {}", options.temperature));
  }
  if (options.top_k < 0) {
    return usage_error(command, fmt::format("--top-k must be 0 or more, not {}", options.top_k));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return usage_error(command,
                       fmt::format("--top-p must be above 0 and at most 1, not {}", options.top_p));
  }
  if (parser.step < 0) {
    return usage_error(command, fmt::format("--step must be 0 or more, not {}", parser.step));
  }
  return {};
}

Status check_prepare(const Parser& parser) {
  const PrepareOptions& options = parser.prepare;
  const CLI::App& command = *parser.prepare_command;
  if (!(options.val_fraction > 0 && options.val_fraction < 1)) {
    return usage_error(command, fmt::format("--val-fraction must be above 0 and below 1, not {}",
                                            options.val_fraction));
  }
  if (options.tokenizer != "bytes") {
    return usage_error(command, fmt::format("--tokenizer \"{}\" is not known; there is \"bytes\"",
                                            options.tokenizer));
  }
  if (options.out.empty()) {
    return usage_error(command, "--out is empty");
  }
  return {};
}

Result<Command> command_from(const Parser& parser) {
  if (parser.run_command->parsed()) {
    TRAIN_RETURN_IF_ERROR(check_run(parser));
    RunOptions options = parser.run;
    if (parser.nodes_option->count() > 0) {
      options.nodes = parser.nodes;
    }
    return Command(std::move(options));
  }
  if (parser.plan_command->parsed()) {
    return Command(parser.plan);
  }
  if (parser.eval_command->parsed()) {
    TRAIN_RETURN_IF_ERROR(check_eval(parser));
    EvalOptions options = parser.eval;
    if (parser.eval_step_option->count() > 0) {
      options.step = parser.eval_step;
    }
    return Command(std::move(options));
  }
  if (parser.worker_command->parsed()) {
    TRAIN_RETURN_IF_ERROR(check_worker(parser));
    return Command(parser.worker);
  }
  if (parser.generate_command->parsed()) {
    TRAIN_RETURN_IF_ERROR(check_generate(parser));
    GenerateOptions options = parser.generate;
    if (parser.step_option->count() > 0) {
      options.step = parser.step;
    }
    return Command(std::move(options));
  }
  if (parser.prepare_command->parsed()) {
    TRAIN_RETURN_IF_ERROR(check_prepare(parser));
    return Command(parser.prepare);
  }
  if (parser.keys_command->parsed()) {
    return Command(KeysOptions{});
  }
  return Command(VersionOptions{});
}

}  // namespace

Result<Command> parse(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  Parser parser;
  describe(parser);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  TRAIN_RETURN_IF_ERROR(check_words(parser.app, words));
  const CLI::App& command = *command_of(parser.app, words).first;
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
    parser.app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return Command(HelpOptions{parser.app.help()});
  } catch (const CLI::ParseError& error) {
    return explain(command, error, words);
  }
  if (parser.app.get_subcommands().empty() && !parser.show_version) {
    return usage_error(parser.app, "wants a command");
  }
  return command_from(parser);
}

}  // namespace train::actors::cli
