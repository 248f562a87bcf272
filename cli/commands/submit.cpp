#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/process/descriptor.hpp"
#include "base/process/host_name.hpp"
#include "base/process/own_program.hpp"
#include "base/process/process.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "cli/command.hpp"
#include "cli/submit/submit_script.hpp"
#include "configs/clusters/cluster_profile.hpp"
#include "configs/error_place.hpp"
#include "configs/load_config.hpp"
#include "run/directory/run_directory.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace run;
namespace {

namespace fs = std::filesystem;

/// Directory beside the run file, as for shipped runs, or in the working directory.
fs::path profile_directory_of(const std::string& config) {
  const fs::path beside = fs::path(config).parent_path() / "clusters";
  std::error_code unknown;
  return fs::is_directory(beside, unknown) ? beside : fs::path("configs") / "clusters";
}

/// Profile with the command line's overrides.
Result<configs::ClusterProfile> cluster_for(const SubmitOptions& options) {
  auto cluster = TRAIN_TRY(configs::find_cluster_profile(profile_directory_of(options.config),
                                                         options.profile, host_name("")));
  const auto prefer = [](std::string& target, const std::string& given) {
    if (!given.empty()) {
      target = given;
    }
  };
  prefer(cluster.time, options.time);
  prefer(cluster.account, options.account);
  prefer(cluster.partition, options.partition);
  prefer(cluster.constraint, options.constraint);
  prefer(cluster.gpus, options.gpus);
  prefer(cluster.mem, options.mem);
  cluster.cpus = options.cpus.value_or(cluster.cpus);
  return cluster;
}

/// --set arguments for `run`: the profile's values for keys that the run leaves open, then the
/// user's.
std::vector<std::string> keys_for(const configs::RunConfig& config,
                                  const configs::ClusterProfile& cluster,
                                  const std::vector<std::string>& set) {
  const configs::RunConfig open;
  std::vector<std::string> keys;
  const auto fill = [&keys](const char* key, const std::string& now, const std::string& untouched,
                            const std::string& value) {
    if (!value.empty() && now == untouched) {
      keys.push_back(fmt::format("{}={}", key, value));
    }
  };
  fill("run.dir", config.run.dir, open.run.dir, cluster.run_dir);
  fill("checkpoint.local_dir", config.checkpoint.local_dir, open.checkpoint.local_dir,
       cluster.local_dir);
  fill("parallel.interface", config.parallel.interface, open.parallel.interface, cluster.interface);
  keys.insert(keys.end(), set.begin(), set.end());
  return keys;
}

struct Answer {
  int exit_code = -1;  ///< -1: ended by a signal.
  std::string out;
  std::string errors;
};

std::string content_of(int file) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  text.resize(text.find_last_not_of(" \r\n") + 1);
  return text;
}

/// Runs a program to its end without input. Keeps up to 4 KiB of each of its outputs.
Result<Answer> ask(const std::vector<std::string>& words) {
  const Descriptor out(::memfd_create("out", MFD_CLOEXEC));
  const Descriptor errors(::memfd_create("errors", MFD_CLOEXEC));
  auto process = Process::start(words, {.errors = errors.get(), .output = out.get()});
  if (!process) {
    return failure(
        fmt::format("{}: cannot be started: {}", words.front(), process.error().message));
  }
  const ProcessEnd end = process->reap();
  return Answer{
      .exit_code = end.exit_code, .out = content_of(out.get()), .errors = content_of(errors.get())};
}

std::string lines_joined(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ';');
  return text.empty() ? "it said nothing" : text;
}

/// Cores per node of the partition (empty: of any), the smallest number if they differ. Slurm
/// prints "64" or "64+". Blocks until it has answered.
Result<std::int64_t> node_cores(const std::string& partition) {
  constexpr const char* kOtherwise =
      "give --cpus N, or cpus in the cluster's profile, or set runtime.threads";
  constexpr const char* kWhy = "runtime.threads: 0 means all cores of a node";
  const auto sinfo = find_program("sinfo");
  if (!sinfo) {
    return user_error(
        fmt::format("{}, and there is no program \"sinfo\" in PATH to ask: {}", kWhy, kOtherwise));
  }
  std::vector<std::string> words = {*sinfo, "--noheader", "--format=%c"};
  if (!partition.empty()) {
    words.push_back("--partition=" + partition);
  }
  const auto answer = TRAIN_TRY(ask(words));
  std::int64_t fewest = 0;
  std::istringstream lines(answer.exit_code == 0 ? answer.out : std::string());
  for (std::string line; std::getline(lines, line);) {
    std::int64_t cores = 0;
    const char* const begin = line.data() + std::min(line.find_first_not_of(' '), line.size());
    if (std::from_chars(begin, line.data() + line.size(), cores).ec == std::errc() && cores > 0) {
      fewest = fewest == 0 ? cores : std::min(fewest, cores);
    }
  }
  if (fewest == 0) {
    return user_error(fmt::format("{}, and sinfo did not say how many{}: {}; {}", kWhy,
                                  partition.empty() ? "" : " partition " + partition + " has",
                                  lines_joined(answer.errors), kOtherwise));
  }
  return fewest;
}

Result<std::int64_t> cpus_for(const configs::RunConfig& config,
                              const configs::ClusterProfile& cluster) {
  if (cluster.cpus > 0) {
    return cluster.cpus;
  }
  if (config.runtime.threads == 0) {
    return node_cores(cluster.partition);
  }
  const std::int64_t nodes = config.parallel.nodes;
  return (config.parallel.ranks + nodes - 1) / nodes * config.runtime.threads;
}

/// Resolves the run as its jobs will see it. Errors: those of `run`.
Result<BatchJob> make_job(const SubmitOptions& options) {
  const auto cluster = TRAIN_TRY(cluster_for(options));
  std::vector<std::string> set = options.set;
  set.emplace_back("parallel.nodes=1");  // Several nodes need a network, which the profile may
                                         // name.
  const auto asked = TRAIN_TRY(configs::load_config(options.config, set));
  set.pop_back();
  if (options.nodes) {
    set.push_back(fmt::format("parallel.nodes={}", *options.nodes));
  }
  const std::vector<std::string> keys = keys_for(asked, cluster, set);
  configs::KeyPositions places;
  const auto config = TRAIN_TRY(configs::load_config(options.config, keys, &places));
  auto plan = plan_run(config);
  if (const Status samples = plan ? open_samples(*plan) : plan.error(); !samples) {
    return configs::with_place(samples.error(), config, places);
  }
  const auto directory = TRAIN_TRY(storage::absolute_path(run_root(config)));
  const auto cpus = TRAIN_TRY(cpus_for(config, cluster));

  BatchJob job{.name = config.run.name,
               .nodes = config.parallel.nodes,
               .cpus = cpus,
               .steps = config.run.steps,
               .restarts = can_respawn(config, false) ? config.recovery.max_respawns : 0,
               .run_directory = directory.lexically_normal(),
               .work_directory = fs::current_path(),
               .words = {own_program(), "run"},
               .cluster = cluster};
  for (const std::string& key : keys) {
    job.words.insert(job.words.end(), {"--set", key});
  }
  job.words.insert(job.words.end(), {"--", options.config});
  return job;
}

/// Steps in the marker left by a finished run's jobs; 0 if there is none.
std::int64_t steps_reached(const fs::path& run_directory) {
  std::ifstream file(finished_marker(run_directory));
  std::int64_t steps = 0;
  return file >> steps ? steps : 0;
}

Status submit(const BatchJob& job, const std::string& script) {
  const auto sbatch = find_program("sbatch");
  if (!sbatch) {
    return user_error(
        "submit: no program \"sbatch\" in PATH; call it on a login node of a Slurm cluster, or see "
        "the script with --dry-run");
  }
  if (const std::int64_t reached = steps_reached(job.run_directory); reached >= job.steps) {
    return user_error(fmt::format("{}: all {} steps are done; raise run.steps to train on",
                                  finished_marker(job.run_directory).string(), reached));
  }
  TRAIN_RETURN_IF_ERROR(storage::make_directory(job.run_directory));
  fs::path file = job.run_directory;
  file += ".sbatch";
  TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(file, script));
  const auto answer = TRAIN_TRY(ask({*sbatch, "--parsable", file.string()}));
  if (answer.exit_code != 0) {
    return failure(fmt::format("{}: sbatch did not take it (exit code {}): {}", file.string(),
                               answer.exit_code, lines_joined(answer.errors)));
  }
  if (!answer.errors.empty()) {
    log_warning(fmt::format("sbatch: {}", lines_joined(answer.errors)));
  }
  const std::string number = answer.out.substr(0, answer.out.find_first_of(";\n"));
  print(fmt::format("job {} submitted: {}\noutput: {}\n", number, file.string(),
                    (job.run_directory / fmt::format("slurm-{}.out", number)).string()));
  return {};
}

/// Checks the run as `run` does, writes <run.dir>/<run.name>.sbatch and submits it with sbatch, or
/// prints it. Blocks until sbatch has answered.
Status submit_run(const SubmitOptions& options) {
  allow_signals();  // Also for sbatch.
  const auto job = TRAIN_TRY(make_job(options));
  const auto script = TRAIN_TRY(batch_script(job));
  if (options.dry_run) {
    print(script);
    return {};
  }
  return submit(job, script);
}

using configs::is_plain_word;

bool is_time(std::string_view text) { return configs::seconds_of_job_time(text).has_value(); }

/// Argument for the batch script: its rule, with the rule's text.
struct BatchWord {
  const char* option;
  std::string SubmitOptions::*target;
  const char* type;
  const char* help;
  bool (*holds)(std::string_view);
  const char* wanted;
};

constexpr const char* kPlain = "a word without spaces and quotes";
constexpr BatchWord kWords[] = {
    {"--time", &SubmitOptions::time, "TIME", "Time limit of one job, as 4:00:00 or 1-12", is_time,
     "a time as 4:00:00 or 1-12"},
    {"--account", &SubmitOptions::account, "NAME", "Slurm account", is_plain_word, kPlain},
    {"--partition", &SubmitOptions::partition, "NAME", "Slurm partition", is_plain_word, kPlain},
    {"--constraint", &SubmitOptions::constraint, "TEXT",
     "Slurm constraint: features that nodes must have", is_plain_word, kPlain},
    {"--gpus", &SubmitOptions::gpus, "N", "GPUs per node, as 4 or h100:4", is_plain_word, kPlain},
    {"--mem", &SubmitOptions::mem, "SIZE", "Memory per node, as 320G; 0: all of it",
     configs::is_memory, "an amount as 320G"}};

}  // namespace

void describe_submit(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "submit",
      "Write a Slurm batch script that trains to the last step, job after job; submit it.");
  SubmitOptions& options = command.runs(submit_run);
  command.run_file(options.config, options.set);
  command.integer("--nodes", options.nodes,
                  "Machines to spread the ranks over, instead of parallel.nodes", 1);
  command.integer("--cpus", options.cpus,
                  "Cores per node; by default the threads of its ranks, or all cores", 1);
  for (const BatchWord& word : kWords) {
    const auto take = [&word, &options](std::string_view text) {
      options.*word.target = text;
      return word.holds(text);
    };
    command.read(word.option, take, fmt::format("{} wants {}", word.option, word.wanted), word.help,
                 word.type);
  }
  command.text("--profile", options.profile,
               "Cluster profile: a file of configs/clusters/; by default the one for this host",
               "NAME|FILE");
  command.app.add_flag("--dry-run", options.dry_run,
                       "Check everything and print the script; write and submit nothing");
  command.app.footer(kExitCodes);
}

}  // namespace train::cli
