#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/exit_codes.hpp"
#include "base/process/own_program.hpp"
#include "base/process/process.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "checkpoint/format/layout.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "cli/commands/run.hpp"
#include "cli/recipes/recipe.hpp"
#include "configs/load_config.hpp"
#include "run/directory/run_directory.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/copy_file.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostDigests = 16 << 20;         // bytes
constexpr std::uint64_t kMostRecipeMetrics = 256 << 20;  // bytes

bool exists_here(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

/// The variable that names the directory of temporary files, in the library's order.
std::string temporary_variable() {
  for (const char* const name : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
    if (std::getenv(name) != nullptr) {
      return name;
    }
  }
  return "TMPDIR";
}

/// Where the recipe is checked. A directory that was not named is removed with this object, unless
/// it is to be kept.
class Workplace {
 public:
  static Result<Workplace> make(const RecipeCheckOptions& options, const Recipe& recipe) {
    if (!options.out.empty()) {
      auto directory = TRAIN_TRY(storage::absolute_path(options.out));
      TRAIN_RETURN_IF_ERROR(check_empty(directory, recipe));
      TRAIN_RETURN_IF_ERROR(storage::make_directory(directory));
      return Workplace(std::move(directory), /*owned=*/false);
    }
    std::error_code failed;
    const fs::path above = fs::temp_directory_path(failed);
    if (failed) {
      const std::string name = temporary_variable();
      const char* const value = std::getenv(name.c_str());
      return user_error(fmt::format("{}={}: {}; set it to a directory, or name one by --out", name,
                                    value == nullptr ? "" : value, failed.message()));
    }
    std::string name = (above / ("actortrain-" + recipe.name + "-XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) {
      Error error = storage::os_error(storage::Access::write, name, errno);
      error.message += fmt::format(" by {} or --out", temporary_variable());
      return error;
    }
    return Workplace(name, /*owned=*/true);
  }
  Workplace(Workplace&& other) noexcept
      : directory_(std::move(other.directory_)), owned_(std::exchange(other.owned_, false)) {}
  Workplace& operator=(Workplace&&) = delete;
  ~Workplace() {
    if (owned_) {
      std::error_code left;
      fs::current_path("/", left);
      (void)storage::remove_tree(directory_);  // What stays is in a directory for that.
    }
  }

  [[nodiscard]] const fs::path& directory() const { return directory_; }
  /// Keeps the directory. Returns whether the user has not named it, so a line is to name it.
  bool keep() { return std::exchange(owned_, false); }

 private:
  Workplace(fs::path directory, bool owned) : directory_(std::move(directory)), owned_(owned) {}

  /// Allows what an earlier check of the recipe has left, whose run is resumed.
  static Status check_empty(const fs::path& directory, const Recipe& recipe) {
    std::error_code failed;
    if (!fs::exists(directory, failed) || fs::is_empty(directory, failed)) {
      return {};
    }
    const fs::path run_file = directory / kRecipeRunFile;
    const fs::path own = recipe.directory / kRecipeRunFile;
    if (exists_here(run_file) && TRAIN_TRY(storage::read_file(run_file, configs::kLargestFile)) ==
                                     TRAIN_TRY(storage::read_file(own, configs::kLargestFile))) {
      return {};
    }
    return user_error(
        fmt::format("--out {}: it has files that are not of this recipe; name a new "
                    "directory",
                    directory.string()));
  }

  fs::path directory_;
  bool owned_;
};

/// The script that fetches the model: of a package, or of the source tree.
fs::path fetch_script(const Recipe& recipe) {
  const fs::path packed = recipe.directory.parent_path() / "smollm2.sh";
  return exists_here(packed) ? packed
                             : recipe.directory.parent_path().parent_path() / "scripts/smollm2.sh";
}

/// Links the published model into the directory, where the run file looks for it.
Status link_model(const RecipeCheckOptions& options, const Recipe& recipe,
                  const std::string& wanted) {
  if (wanted != kRecipeModel) {
    return options.model.empty()
               ? Status()
               : user_error(fmt::format("--model {}: the recipe {} starts from no published model; "
                                        "leave it out",
                                        options.model, recipe.name));
  }
  const fs::path model = options.model.empty() ? kRecipeModel : options.model.c_str();
  if (options.model.empty() && !exists_here(model)) {
    return user_error(fmt::format(
        "{}: the recipe starts from SmolLM2-135M-Instruct, --model DIRECTORY; `{} SmolLM2` fetches "
        "it into the directory SmolLM2",
        recipe.name, fetch_script(recipe).string()));
  }
  std::error_code failed;
  if (!fs::is_directory(model, failed)) {
    return user_error(fmt::format("--model {0}: {1}; `{2} {0}` fetches it", model.string(),
                                  exists_here(model) ? "not a directory" : "no such directory",
                                  fetch_script(recipe).string()));
  }
  if (options.model.empty()) {
    return {};
  }
  fs::remove(kRecipeModel, failed);
  fs::create_directory_symlink(options.model, kRecipeModel, failed);
  return failed ? Status(storage::os_error(storage::Access::write, kRecipeModel, failed.value()))
                : Status();
}

/// The last line of what a script has said.
std::string last_line(std::string text) {
  text.erase(text.find_last_not_of(" \r\n") + 1);
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

/// Runs the recipe's script in this directory. Returns the exit code of a stop, or 0.
Result<int> make_recipe_data(const Recipe& recipe) {
  std::optional<std::string> python;
  for (const std::string& name : python_programs()) {
    python = python ? python : find_program(name);
  }
  if (!python) {
    return user_error(
        fmt::format("{}: its script {} needs python3, which is not on the PATH; install it",
                    recipe.name, kRecipeScript));
  }
  const fs::path script = recipe.directory / kRecipeScript;
  log_info(fmt::format("recipe_data script={}", script.string()));
  const StopOnSignal stop;
  const auto end =
      TRAIN_TRY(run_child({*python, "-B", script.string(), own_program()}, {.stop = stop.token()}));
  if (end.stopped || stop_signal() != 0) {
    print(
        fmt::format("{}: stopped by signal {} in {}, before the first step; the same command "
                    "starts again\n",
                    recipe.name, stop_signal(), kRecipeScript));
    return kExitStopped;
  }
  if (end.exit_code != 0) {
    const std::string text =
        fmt::format("{}: {}: {}", script.string(), end.text(), last_line(end.errors));
    return end.exit_code == kExitUserError ? user_error(text) : failure(text);
  }
  return kExitFinished;
}

Status record_digests(const Recipe& recipe, const StepDigests& found) {
  if (found.empty()) {
    return user_error(
        fmt::format("{}: the run has written no digests; set "
                    "run.digest_interval_steps",
                    recipe.name));
  }
  const fs::path file = recipe.directory / kRecipeDigests;
  const RecordedDigests recorded = {.inputs = TRAIN_TRY(inputs_digest(recipe)), .steps = found};
  TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(file, digests_text(recorded)));
  print(fmt::format("{}: digests of {} steps\n", file.string(), found.size()));
  return {};
}

/// Prints a line a step and the verdict. Returns the exit code.
int show_comparison(const Recipe& recipe, const RecipeComparison& comparison,
                    Workplace& workplace) {
  for (const std::string& line : comparison.lines) {
    print(line + "\n");
  }
  if (comparison.equal()) {
    print(fmt::format("{}: equal at {} of {} steps\n", recipe.name, comparison.compared,
                      comparison.compared));
    return kExitFinished;
  }
  workplace.keep();
  print(fmt::format("{}: differs from step {} on; the run is in {}\n", recipe.name,
                    comparison.first_difference, workplace.directory().string()));
  return kExitFailure;
}

Result<StepDigests> recorded_digests(const RecipeCheckOptions& options, const Recipe& recipe) {
  const fs::path file = recipe.directory / kRecipeDigests;
  if (options.record) {
    return StepDigests();
  }
  if (!exists_here(file)) {
    return user_error(fmt::format("{}: no such file; --record writes it", file.string()));
  }
  const auto text = TRAIN_TRY(storage::read_file(file, kMostDigests));
  auto digests = TRAIN_TRY(parse_digests(text, file.string()));
  if (options.steps && *options.steps < digests.steps.begin()->first) {
    return user_error(fmt::format("--steps {}: the first recorded digest is of step {}",
                                  *options.steps, digests.steps.begin()->first));
  }
  if (digests.inputs.empty()) {
    log_warning(fmt::format(
        "recipe_inputs {}: does not say of which run file and script it is; --record does",
        file.string()));
  } else if (digests.inputs != TRAIN_TRY(inputs_digest(recipe))) {
    return user_error(fmt::format(
        "{}: is of another run file, script or JSON file than lies beside it: one has changed "
        "since; --record writes it anew",
        file.string()));
  }
  return std::move(digests.steps);
}

/// Trains the recipe, of --steps those that the run of an earlier check lacks. Returns the exit
/// code of a run.
Result<int> train_recipe(const RecipeCheckOptions& options, const Recipe& recipe,
                         const configs::RunConfig& config) {
  RunOptions run;
  run.config = kRecipeRunFile;
  run.set = options.set;
  if (options.steps) {
    const fs::path root = run::run_root(config);
    const auto saved = TRAIN_TRY(checkpoint::list_checkpoints(StoredRun{root}.placed()));
    const std::int64_t trained = saved.empty() ? 0 : saved.front().step;
    if (trained >= *options.steps) {
      print(
          fmt::format("{}: the run in {} has {} steps already: nothing is trained, its digests "
                      "are compared\n",
                      recipe.name, fs::absolute(root).string(), trained));
      return kExitFinished;
    }
    run.set.push_back(fmt::format("run.steps_per_job={}", *options.steps - trained));
  }
  return run_training(run);
}

Result<int> check_recipe(const RecipeCheckOptions& given) {
  RecipeCheckOptions options = given;
  if (!options.model.empty()) {
    options.model = TRAIN_TRY(storage::absolute_path(options.model)).string();
  }
  const bool own = options.name.find('/') != std::string::npos;
  const fs::path recipes = own ? fs::path() : TRAIN_TRY(recipes_directory());
  const auto recipe = TRAIN_TRY(find_recipe(recipes, options.name));
  const auto recorded = TRAIN_TRY(recorded_digests(options, recipe));
  const fs::path run_file = recipe.directory / kRecipeRunFile;
  const auto config = TRAIN_TRY(configs::load_config(run_file.string(), options.set));
  auto workplace = TRAIN_TRY(Workplace::make(options, recipe));
  std::error_code failed;
  fs::current_path(workplace.directory(), failed);  // The run file's paths begin here.
  if (failed) {
    return storage::os_error(storage::Access::read, workplace.directory(), failed.value());
  }
  TRAIN_RETURN_IF_ERROR(link_model(options, recipe, config.model.from));
  TRAIN_RETURN_IF_ERROR(storage::copy_file(run_file, kRecipeRunFile));
  if (const int code = TRAIN_TRY(make_recipe_data(recipe)); code != kExitFinished) {
    return code;
  }
  const int code = TRAIN_TRY(train_recipe(options, recipe, config));
  // --steps ends a run as a signal does.
  if (code != kExitFinished && !(code == kExitStopped && options.steps && stop_signal() == 0)) {
    if (workplace.keep()) {
      print(fmt::format("{}: the run is in {}; the same command resumes it with --out {}\n",
                        recipe.name, workplace.directory().string(),
                        workplace.directory().string()));
    }
    return code;
  }
  const auto metrics = run::run_root(config) / "metrics.jsonl";
  const StepDigests found =
      digests_of_metrics(TRAIN_TRY(storage::read_file(metrics, kMostRecipeMetrics)));
  if (options.record) {
    TRAIN_RETURN_IF_ERROR(record_digests(recipe, found));
    return kExitFinished;
  }
  const std::int64_t last = options.steps.value_or(std::numeric_limits<std::int64_t>::max());
  return show_comparison(recipe, compare_digests(recorded, found, last), workplace);
}

}  // namespace

void describe_recipe_check(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "recipe check",
      "Make a recipe's data, train it, and compare the digests of its weights with those recorded, "
      "a line a step.");
  RecipeCheckOptions& options = command.runs(check_recipe);
  command.text("name", options.name, "Recipe of `recipe list`, or a folder, as ./mine", "NAME")
      ->required();
  command.text("--out", options.out,
               "Directory to train in, which is kept and from where a stopped check resumes; by "
               "default a temporary one",
               "DIRECTORY");
  command.text("--model", options.model, "SmolLM2-135M-Instruct, for recipes that start from it",
               "DIRECTORY");
  command.integer("--steps", options.steps, "Train and compare only so many steps", 1);
  command.app.add_option("--set", options.set, "Override a key of the run file, as `run` does")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
  command.app.add_flag("--record", options.record,
                       "Write this run's digests into the recipe's folder instead");
  command.check([&options] {
    return options.record && options.steps ? "--record and --steps exclude each other"
           : options.name.empty()          ? "the recipe's name is empty"
                                           : "";
  });
  command.app.footer(
      "Exit codes:\n"
      "  0   every compared step has the recorded digest\n"
      "  1   a step differs, or the run failed\n"
      "  2   mistake in the command or the recipe; nothing was trained\n"
      "  75  stopped by a signal after saving; the same command with --out resumes, with the\n"
      "      directory that the last line names where none was given\n");
}

}  // namespace train::cli
