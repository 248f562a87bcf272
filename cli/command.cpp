#include "cli/command.hpp"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>

#include "base/text/text_output.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/words/nearest.hpp"
#include "configs/words/other_words.hpp"
#include "storage/files/input_file.hpp"

namespace train::cli {
namespace {

const std::map<std::string, const char*> kGroups = {
    {"checkpoints", "List, inspect, verify and remove a run's checkpoints."},
    {"config", "Explain run files."},
    {"data", "Prepare training data."},
    {"recipe", "Train recipes, and compare with what they yielded elsewhere."}};

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : fmt::format("{} {}", full_name(*parent), command.get_name());
}

/// "<command>: <error>; ...", one line, with a pointer to help.
Error usage_error(const CLI::App& command, const std::string& what) {
  const std::string name = full_name(command);
  std::string text = fmt::format("{}: {}; \"{} --help\" explains", name, what, name);
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 32; },
      ' ');
  return user_error(std::move(text));
}

// Innermost command named by the beginning of `words`, and the number of words that name it.
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

std::vector<std::string> names_of_commands(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* inner : command.get_subcommands({})) {
    if (!inner->get_group().empty()) {  // Visible in help.
      names.push_back(inner->get_name());
    }
  }
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help") {  // Never suggested for a misspelled option.
        names.push_back(fmt::format("--{}", name));
      }
    }
  }
  return names;
}

// Reports unknown commands and options before CLI11 sees them, as it does not suggest the nearest
// name.
Status check_words(CLI::App& app, const std::vector<std::string>& words) {
  const auto [command, used] = command_of(app, words);
  const std::vector<std::string> inner = names_of_commands(*command);
  if (!inner.empty() && used == words.size()) {
    return usage_error(*command, fmt::format("wants a command: {}", fmt::join(inner, ", ")));
  }
  if (!inner.empty() && !words[used].starts_with("-")) {
    return usage_error(
        *command,
        fmt::format("unknown command \"{}\"{}", words[used],
                    configs::did_you_mean(words[used], inner, command == &app ? "command" : "")));
  }
  return {};
}

/// True if the command takes an argument of this name by its place, such as a checkpoint's step.
bool takes_by_place(const CLI::App& command, const std::string& word) {
  const auto options = command.get_options([&word](const CLI::Option* option) {
    return option->get_positional() && option->get_name(true) == word;
  });
  return !options.empty();
}

/// The command of a group that has this command's name and takes the argument: of `verify` and a
/// step `checkpoints verify`; null: none.
const CLI::App* namesake_taking(const CLI::App& command, const std::string& word) {
  const CLI::App* root = &command;
  while (root->get_parent() != nullptr) {
    root = root->get_parent();
  }
  for (const CLI::App* group : root->get_subcommands({})) {
    for (const CLI::App* inner : group->get_subcommands({})) {
      if (inner->get_name() == command.get_name() && takes_by_place(*inner, word)) {
        return inner;
      }
    }
  }
  return nullptr;
}

/// Hint at the option that is meant, or at the key of a run file.
std::string hint_for(const CLI::App& command, const std::string& name,
                     const std::vector<std::string>& known) {
  const bool sets = std::find(known.begin(), known.end(), "--set") != known.end();
  const std::string word = name.substr(2);
  if (sets && (word == "config" || word == "resume")) {
    return word == "config" ? "; the run file is named without an option"
                            : "; the same command resumes a run, without an option";
  }
  if (takes_by_place(command, word)) {
    return "; it is named without an option";
  }
  if (const CLI::App* other = namesake_taking(command, word); other != nullptr) {
    return fmt::format("; give it to \"{}\"", full_name(*other));
  }
  const std::string key = configs::find_field(word) == nullptr ? configs::key_meant(word) : word;
  const std::string nearest = configs::nearest_name(name, known);
  const bool near = !nearest.empty() && configs::edit_distance(name, nearest) <= 1;
  const bool slip = near && (key.empty() || nearest != "--set");  // "--step" names a key.
  if (sets && !slip && !key.empty()) {
    return fmt::format("; did you mean \"--set {}=...\"?", key);
  }
  const std::string meant = configs::meaning_of("option", name);
  const bool there = std::find(known.begin(), known.end(), meant) != known.end();
  return configs::did_you_mean(name, known, there && !slip ? "option" : "");
}

Error explain(const CLI::App& command, const CLI::ParseError& error,
              const std::vector<std::string>& words) {
  // An unknown option may mean the one that is missing.
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::vector<std::string> known = names_of_options(command);
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (word.starts_with("--") && std::find(known.begin(), known.end(), name) == known.end()) {
        return usage_error(
            command, fmt::format("unknown option \"{}\"{}", name, hint_for(command, name, known)));
      }
    }
  }
  return usage_error(command, error.what());
}

}  // namespace

void CommandSyntax::run_file(std::string& config, std::vector<std::string>& set) {
  text("config", config, "Run file, for example configs/quickstart.toml", "CONFIG")->required();
  app.add_option("--set", set, "Override a key of the run file; may be repeated, the last one wins")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
}

void CommandSyntax::run_directory(std::string& target) {
  text("run_directory", target, "For example runs/quickstart", "RUN_DIRECTORY")->required();
}

void CommandSyntax::device(std::optional<std::string>& target) {
  const auto take = [&target](const std::string& text) {
    if (text != "cpu" && text != "cuda") {
      throw CLI::ValidationError("--device", fmt::format("must be cpu or cuda, not \"{}\"", text));
    }
    target = text;
  };
  app.add_option_function<std::string>("--device", take,
                                       "Device that computes; the run's by default")
      ->type_name("cpu|cuda");
}

void CommandSyntax::step(std::optional<std::int64_t>& target) {
  const auto take = [&target](std::string_view text) {
    target = step_in(text);
    return target.has_value();
  };
  read("--step", take, "--step must be 0 or more, or best",
       "Checkpoint to use; best: the one with the lowest validation loss; the newest by default",
       "STEP|best");
}

void CommandSyntax::date(std::string& target) {
  const auto take = [&target](std::string_view text) {
    target = text;  // Whether the day exists is checked by the template.
    return text.size() == 10 && text[4] == '-' && text[7] == '-' &&
           text.find_first_not_of("0123456789-") == std::string_view::npos;
  };
  read("--date", take, "--date must be YYYY-MM-DD",
       "Date that templates see as today; by default 2024-07-26", "YYYY-MM-DD");
}

CLI::Option* CommandSyntax::read(const std::string& name,
                                 std::function<bool(std::string_view)> read,
                                 const std::string& wanted, const std::string& help,
                                 const std::string& type) {
  const auto take = [this, read = std::move(read), wanted](const std::string& text) {
    if (!read(text)) {
      mistakes_.push_back(fmt::format("{}, not \"{}\"", wanted, text));
    }
  };
  return app.add_option_function<std::string>(name, take, help)->type_name(type);
}

CLI::Option* CommandSyntax::number(const std::string& name, double& target,
                                   const std::string& help) {
  const auto take = [&target, name](const std::string& text) {
    const char* end = text.data() + text.size();
    const auto [stop, code] = std::from_chars(text.data(), end, target);
    if (code != std::errc() || stop != end) {
      throw CLI::ValidationError(name, fmt::format("wants a number, not \"{}\"", text));
    }
  };
  return app.add_option_function<std::string>(name, take, help)
      ->type_name("NUMBER")
      ->default_str(fmt::format("{}", target));
}

Result<Command> CommandSyntax::finish() const {
  for (const std::string& mistake : mistakes_) {
    return usage_error(app, mistake);
  }
  for (const auto& check : checks_) {
    if (const std::string mistake = check(); !mistake.empty()) {
      return usage_error(app, mistake);
    }
  }
  return command_();
}

CommandSyntax& CommandSyntaxes::add(const std::string& name, const char* help) {
  const std::size_t space = name.find(' ');
  if (space == std::string::npos) {
    return all_.emplace_back(app, name, help);
  }
  const std::string group = name.substr(0, space);
  const auto groups =
      app.get_subcommands([&group](CLI::App* inner) { return inner->get_name() == group; });
  CLI::App* const parent =
      groups.empty() ? app.add_subcommand(group, kGroups.at(group)) : groups.front();
  parent->require_subcommand(1);
  return all_.emplace_back(*parent, name.substr(space + 1), help);
}

void describe_program(CommandSyntaxes& commands) {
  commands.app.name("actortrain");
  commands.app.description(
      "Trains language models: bitwise reproducible, resumable after any stop.");
  describe_commands(commands);
  commands.app.footer(kExitCodes);
  commands.app.require_subcommand(0, 1);  // Words after a command belong to it.
  const std::string version = "Print the version";
  commands.app.add_flag("--version", version);
}

std::optional<std::int64_t> integer_in(std::string_view text, std::int64_t least,
                                       std::int64_t most) {
  std::int64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits =
      code == std::errc() && stop == text.data() + text.size() && value >= least && value <= most;
  return fits ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> step_in(std::string_view text) {
  return text == "best" ? kBestStep : integer_in(text, 0);
}

Result<std::string> whole_input(const std::string& file) {
  if (file.empty() || file == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 32;
  const auto opened = TRAIN_TRY(storage::InputFile::open(file));
  return opened.read_text(kLargest);
}

void print(std::string_view text) { standard_output().write(text); }

Result<Command> parse(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  CLI::App app;
  CommandSyntaxes commands(app);
  describe_program(commands);
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  TRAIN_RETURN_IF_ERROR(check_words(app, words));
  const CLI::App& command = *command_of(app, words).first;
  try {
    // In the order that CLI11 expects.
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    const HelpOptions help{app.help()};
    return Command{help, [help] {
                     print(help.text);
                     return kExitFinished;
                   }};
  } catch (const CLI::ParseError& error) {
    return explain(command, error, words);
  }
  for (const CommandSyntax& syntax : commands.all()) {
    const bool asked = app.count("--version") > 0 && syntax.app.get_name() == "version";
    if (syntax.app.parsed() || asked) {
      return syntax.finish();
    }
  }
  return usage_error(app, "wants a command");
}

}  // namespace train::cli
