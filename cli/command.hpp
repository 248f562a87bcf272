#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"

// Building blocks of commands. Each command is one file of cli/commands/, with its arguments and
// its action, and one line in cli/commands/registry.cpp; it relies on what this header includes.
namespace train::cli {

inline constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0   finished\n"
    "  1   failure: disk full, damaged file, lost process\n"
    "  2   mistake in the command, the run file or the data; nothing was started\n"
    "  75  stopped by a signal after saving; the same command resumes\n";

template <class Target>
struct IntegerOf {
  using type = Target;
};
template <class Integer>
struct IntegerOf<std::optional<Integer>> {
  using type = Integer;
};

/// Arguments of one command. Invalid values are usage errors, found after all were parsed.
class CommandSyntax {
 public:
  CommandSyntax(CLI::App& parent, const std::string& name, const char* help)
      : app(*parent.add_subcommand(name, help)) {}

  /// Sets the command's action, which returns its exit code, a Status, or the error to report.
  /// Returns the options struct that the arguments fill; it lives as long as this object.
  template <class Outcome, class Options>
  Options& runs(Outcome (*action)(const Options&)) {
    const auto options = std::make_shared<Options>();
    command_ = [options, action] {
      return Command{*options, [options, action]() -> Result<int> {
                       if constexpr (std::is_same_v<Outcome, Status>) {
                         TRAIN_RETURN_IF_ERROR(action(*options));
                         return kExitFinished;
                       } else {
                         return action(*options);
                       }
                     }};
    };
    return *options;
  }

  /// CONFIG and --set, shared by all commands that read a run file.
  void run_file(std::string& config, std::vector<std::string>& set);
  /// Required argument RUN_DIRECTORY.
  void run_directory(std::string& target);
  /// --device, for commands that compute with a run's model.
  void device(std::optional<std::string>& target);
  /// --step, for commands that use a checkpoint.
  void step(std::optional<std::int64_t>& target);

  /// --date, for commands that render chat templates.
  void date(std::string& target);

  /// Option with a text value.
  CLI::Option* text(const std::string& name, std::string& target, const std::string& help,
                    const std::string& type) {
    return app.add_option(name, target, help)->type_name(type);
  }
  /// Option whose text is parsed by `read`; on failure the error "<wanted>, not "<text>"".
  CLI::Option* read(const std::string& name, std::function<bool(std::string_view)> read,
                    const std::string& wanted, const std::string& help, const std::string& type);
  /// Option with an integer value of at least `least`; CLI11's own conversion saturates silently.
  template <class Target>
  CLI::Option* integer(const std::string& name, Target& target, const std::string& help,
                       std::int64_t least = std::numeric_limits<std::int64_t>::min()) {
    using Integer = typename IntegerOf<Target>::type;
    const auto take = [this, &target, name, least](const std::string& text) {
      Integer value{};
      const char* end = text.data() + text.size();
      const auto [stop, code] = std::from_chars(text.data(), end, value);
      if (code != std::errc() || stop != end) {
        throw CLI::ValidationError(
            name, fmt::format("wants {} integer, not \"{}\"",
                              std::is_signed_v<Integer> ? "an" : "a non-negative", text));
      }
      if (std::cmp_less(value, least)) {
        mistakes_.push_back(fmt::format("{} must be {} or more, not {}", name, least, value));
      }
      target = value;
    };
    return app.add_option_function<std::string>(name, take, help)->type_name("INT");
  }
  /// Option with a number, finite or not; the current value is its default.
  CLI::Option* number(const std::string& name, double& target, const std::string& help);
  /// Adds a check of all options together; it returns an error text, or empty.
  void check(std::function<std::string()> mistake) { checks_.push_back(std::move(mistake)); }

  /// REQUIRES: the arguments were parsed, and runs() was called. Errors: usage errors.
  [[nodiscard]] Result<Command> finish() const;

  CommandSyntax(const CommandSyntax&) = delete;
  CommandSyntax& operator=(const CommandSyntax&) = delete;

  CLI::App& app;

 private:
  std::vector<std::string> mistakes_;
  std::vector<std::function<std::string()>> checks_;
  std::function<Command()> command_;
};

/// All commands under construction, in the order of help.
class CommandSyntaxes {
 public:
  explicit CommandSyntaxes(CLI::App& program) : app(program) {}
  /// `name`: "eval", or "data prepare" for one of a group, which is created with its first command.
  CommandSyntax& add(const std::string& name, const char* help);

  [[nodiscard]] const std::deque<CommandSyntax>& all() const { return all_; }

  CLI::App& app;

 private:
  std::deque<CommandSyntax> all_;
};

/// Adds every command of the registry.
void describe_commands(CommandSyntaxes& commands);
/// Sets the program's own name and help, and adds its commands.
void describe_program(CommandSyntaxes& commands);

/// `text` as an integer, if all of it is one within these limits.
[[nodiscard]] std::optional<std::int64_t> integer_in(
    std::string_view text, std::int64_t least,
    std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// Step of a checkpoint, kBestStep for "best"; nullopt: neither.
[[nodiscard]] std::optional<std::int64_t> step_in(std::string_view text);

/// Whole content of a file, or of standard input if `file` is empty or "-".
[[nodiscard]] Result<std::string> whole_input(const std::string& file);

/// Prints to standard output, unbuffered.
void print(std::string_view text);

}  // namespace train::cli
