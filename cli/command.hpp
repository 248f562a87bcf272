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

// What a command is made of: each is one file of cli/commands/, with its words and what it does,
// and one line in cli/commands/registry.cpp. They rely on what this header includes.
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

/// The words of one command. What they may not be is a usage error, found when all were read.
class CommandSyntax {
 public:
  CommandSyntax(CLI::App& parent, const std::string& name, const char* help)
      : app(*parent.add_subcommand(name, help)) {}

  /// What the command does: its exit code, a Status, or the error to report. Returns the options
  /// that its words fill, which live as long as this.
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

  /// CONFIG and --set, alike for every command that reads a run file.
  void run_file(std::string& config, std::vector<std::string>& set);
  /// The required RUN_DIRECTORY.
  void run_directory(std::string& target);
  /// --device, of commands that compute with a run's model elsewhere than it was trained.
  void device(std::optional<std::string>& target);
  /// --step, of commands that use a checkpoint.
  void step(std::optional<std::int64_t>& target);

  /// --date, of commands that render chat templates.
  void date(std::string& target);

  /// An option that keeps its text.
  CLI::Option* text(const std::string& name, std::string& target, const std::string& help,
                    const std::string& type) {
    return app.add_option(name, target, help)->type_name(type);
  }
  /// An option whose text `read` understands; else it "<wanted>, not "<text>"".
  CLI::Option* read(const std::string& name, std::function<bool(std::string_view)> read,
                    const std::string& wanted, const std::string& help, const std::string& type);
  /// An integer, optional or not, of `least` or more; CLI11's own conversion saturates silently.
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
  /// A number, finite or not, whose value now is its default.
  CLI::Option* number(const std::string& name, double& target, const std::string& help);
  /// What is wrong with all of them together; empty: nothing.
  void check(std::function<std::string()> mistake) { checks_.push_back(std::move(mistake)); }

  /// REQUIRES: the words were read, and runs() was called. Errors: usage errors.
  [[nodiscard]] Result<Command> finish() const;

  CommandSyntax(const CommandSyntax&) = delete;
  CommandSyntax& operator=(const CommandSyntax&) = delete;

  CLI::App& app;

 private:
  std::vector<std::string> mistakes_;
  std::vector<std::function<std::string()>> checks_;
  std::function<Command()> command_;
};

/// All commands while they are described, in the order in which help shows them.
class CommandSyntaxes {
 public:
  explicit CommandSyntaxes(CLI::App& program) : app(program) {}
  /// `name`: "eval", or "data prepare" of a group, which is described with its first command.
  CommandSyntax& add(const std::string& name, const char* help);

  [[nodiscard]] const std::deque<CommandSyntax>& all() const { return all_; }

  CLI::App& app;

 private:
  std::deque<CommandSyntax> all_;
};

/// Describes every command of the registry.
void describe_commands(CommandSyntaxes& commands);
/// Names and explains the program itself, and describes its commands.
void describe_program(CommandSyntaxes& commands);

/// `text` as an integer that is all of it and within these limits.
[[nodiscard]] std::optional<std::int64_t> integer_in(
    std::string_view text, std::int64_t least,
    std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// All of a file; of standard input, if `file` is empty or "-".
[[nodiscard]] Result<std::string> whole_input(const std::string& file);

/// To standard output, at once.
void print(std::string_view text);

}  // namespace train::cli
