#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"

// How the command line is put together: each group of commands describes its own in a file of its
// own. For options.cpp and those files alone.
namespace train::cli {

/// One command: CLI11's description of it, and what turns the words it took into a value. `finish`
/// is called once, after the words were parsed; its errors are usage errors.
struct CommandSyntax {
  CLI::App* command = nullptr;
  std::function<Result<Command>()> finish;
};

/// In the order in which help shows them.
using CommandSyntaxes = std::vector<CommandSyntax>;

void describe_training(CLI::App& app, CommandSyntaxes& syntaxes);     ///< run, plan
void describe_submit(CLI::App& app, CommandSyntaxes& syntaxes);       ///< submit
void describe_using(CLI::App& app, CommandSyntaxes& syntaxes);        ///< status, eval, generate
void describe_checkpoints(CLI::App& app, CommandSyntaxes& syntaxes);  ///< checkpoints …
void describe_audit(CLI::App& app, CommandSyntaxes& syntaxes);        ///< replay, verify
void describe_export(CLI::App& app, CommandSyntaxes& syntaxes);       ///< export
void describe_scale(CLI::App& app, CommandSyntaxes& syntaxes);        ///< scale
void describe_plot(CLI::App& app, CommandSyntaxes& syntaxes);         ///< plot
void describe_data(CLI::App& app, CommandSyntaxes& syntaxes);         ///< data prepare
void describe_worker(CLI::App& app, CommandSyntaxes& syntaxes);       ///< worker

inline constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0   finished\n"
    "  1   failure: disk full, damaged file, lost process\n"
    "  2   mistake in the command, the run file or the data; nothing was started\n"
    "  75  stopped by a signal after saving; the same command resumes\n";

/// "<command>: <what>; …", one line, with where help is.
[[nodiscard]] Error usage_error(const CLI::App& command, const std::string& what);

/// CONFIG and --set, alike for every command that reads a run file.
void add_run_file(CLI::App& command, std::string& config, std::vector<std::string>& set);

/// The required RUN_DIRECTORY.
void add_run_directory(CLI::App& command, std::string& target);

/// --device, of commands that compute with a run's model elsewhere than it was trained.
void add_device(CLI::App& command, std::optional<std::string>& device);

/// An integer option that refuses what does not fit; CLI11's own conversion saturates silently.
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

}  // namespace train::cli
