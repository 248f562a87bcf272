#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "cli/syntax.hpp"
#include "configs/nearest.hpp"

namespace train::cli {
namespace {

/// The commands that explain the program itself.
void describe_rest(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* config = app.add_subcommand("config", "Explain run files.");
  config->require_subcommand(1);
  syntaxes.push_back(
      {config->add_subcommand(
           "keys", "Print every key of a run file: type, default, allowed values, meaning."),
       []() -> Result<Command> { return Command(KeysOptions{}); }});
  syntaxes.push_back({app.add_subcommand("version", "Print the version."),
                      []() -> Result<Command> { return Command(VersionOptions{}); }});
  app.footer(kExitCodes);
}

CommandSyntaxes describe(CLI::App& app) {
  CommandSyntaxes syntaxes;
  describe_training(app, syntaxes);
  describe_submit(app, syntaxes);
  describe_using(app, syntaxes);
  describe_checkpoints(app, syntaxes);
  describe_audit(app, syntaxes);
  describe_export(app, syntaxes);
  describe_scale(app, syntaxes);
  describe_plot(app, syntaxes);
  describe_data(app, syntaxes);
  describe_rest(app, syntaxes);
  describe_worker(app, syntaxes);
  return syntaxes;
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

}  // namespace

Error usage_error(const CLI::App& command, const std::string& what) {
  const std::string name = full_name(command);
  return user_error(one_line(fmt::format("{}: {}; \"{} --help\" explains", name, what, name)));
}

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

void add_run_directory(CLI::App& command, std::string& target) {
  command.add_option("run_directory", target, "For example runs/quickstart")
      ->required()
      ->type_name("RUN_DIRECTORY");
}

void add_device(CLI::App& command, std::optional<std::string>& device) {
  command
      .add_option_function<std::string>(
          "--device",
          [&device](const std::string& text) {
            if (text != "cpu" && text != "cuda") {
              throw CLI::ValidationError("--device",
                                         fmt::format("must be cpu or cuda, not \"{}\"", text));
            }
            device = text;
          },
          "Device that computes; the run's by default")
      ->type_name("cpu|cuda");
}

Result<Command> parse(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  CLI::App app{"Trains language models: reproducible to the bit, resumable after any stop.",
               "actortrain"};
  bool show_version = false;
  const CommandSyntaxes syntaxes = describe(app);
  app.add_flag("--version", show_version, "Print the version");
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  TRAIN_RETURN_IF_ERROR(check_words(app, words));
  const CLI::App& command = *command_of(app, words).first;
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return Command(HelpOptions{app.help()});
  } catch (const CLI::ParseError& error) {
    return explain(command, error, words);
  }
  for (const CommandSyntax& syntax : syntaxes) {
    if (syntax.command->parsed()) {
      return syntax.finish();
    }
  }
  return show_version ? Result<Command>(Command(VersionOptions{}))
                      : Result<Command>(usage_error(app, "wants a command"));
}

}  // namespace train::cli
