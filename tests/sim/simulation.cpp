#include "tests/sim/simulation.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "base/exit_codes.hpp"
#include "run/recovery/generations.hpp"
#include "tests/sim/generation.hpp"

namespace train::sim {
namespace {

constexpr int kMostStarts = 40;

/// One run from its first start to its last step.
class Simulation {
 public:
  Simulation(const SeedPlan& plan, Bug bug) : scene_(plan, bug) {}

  void run();
  [[nodiscard]] Scene& scene() { return scene_; }

 private:
  bool start();
  bool run_started(run::PreparedRun& run);
  Result<run::PreparedRun> prepare();
  void judge(const actors::RunFinished& outcome);
  void recover(const LauncherGone& gone);
  void throw_if_gone();

  Scene scene_;
  std::int64_t tags_ = 0;
};

void Simulation::run() {
  bool finished = false;
  for (int starts = 0; !finished; ++starts) {
    if (starts == kMostStarts) {
      throw Violation(fmt::format("not finished after {} starts", starts));
    }
    try {
      finished = start();
    } catch (const LauncherGone& gone) {
      recover(gone);
    }
  }
  recover({.power = scene_.random() % 2 == 0});  // it ended well, and then the light goes out
  const auto run = prepare();
  if (!run || run->first_step() != scene_.plan.config.run.steps) {
    throw Violation(fmt::format(
        "a finished run is not finished when it is started again: {} (P3)",
        run ? fmt::format("it goes on from step {}", run->first_step()) : run.error().message));
  }
}

Result<run::PreparedRun> Simulation::prepare() {
  scene_.disk.start();
  scene_.signalled = false;
  ++scene_.tally.starts;
  auto plan = run::plan_run(scene_.plan.config);
  if (!plan) {
    return plan.error();
  }
  return run::prepare_run(
      std::move(plan).value(), {},
      {.open_index = [this](const auto&, const auto& checkpoints, auto,
                            const auto& identity) -> Result<checkpoint::OpenedIndex> {
         auto store = scene_.index.open(scene_.disk);
         auto index = checkpoint::CheckpointIndex::open(*store, checkpoints, identity);
         if (!index) {
           return index.error();
         }
         return checkpoint::OpenedIndex{std::move(store), std::move(index).value()};
       },
       .make_tag = [this] { return fmt::format("sim-{}", ++tags_); },
       .make_run_id = [] { return std::string(32, '5'); },
       .rsync = {.copy = copy_on_disk}});
}

/// True: the run has come to its end.
bool Simulation::start() {
  auto run = prepare();
  throw_if_gone();
  if (!run) {
    if (!scene_.disk.was_full()) {
      throw Violation(fmt::format("a start failed: {} (P3)", run.error().message));
    }
    return false;
  }
  scene_.checks.look_into(run->directory.checkpoints());
  scene_.checks.begin(run->first_step(), run->config().parallel.ranks);
  scene_.checks.begin_job(run->first_step(), run->config().run.steps_per_job);
  return run->nothing_to_do() || run_started(*run);
}

bool Simulation::run_started(run::PreparedRun& run) {
  const auto outcome = run::run_generations(run, [this](const run::PreparedRun& prepared) {
    throw_if_gone();
    return Generation(scene_, prepared).run();
  });
  throw_if_gone();
  scene_.checks.look_into(run.directory.checkpoints());
  if (!outcome) {
    if (!scene_.disk.was_full()) {
      throw Violation(fmt::format("a run failed: {}", outcome.error().message));
    }
    return false;
  }
  judge(*outcome);
  return outcome->exit_code == kExitFinished;
}

void Simulation::judge(const actors::RunFinished& outcome) {
  const bool slow_saves = outcome.text.find("publishing took longer") != std::string::npos;
  switch (outcome.exit_code) {
    case kExitFinished:
      if (outcome.step != scene_.plan.config.run.steps) {
        throw Violation(fmt::format("a run of {} steps finished at step {}",
                                    scene_.plan.config.run.steps, outcome.step));
      }
      return scene_.checks.promise(outcome.step);
    case kExitStopped:
      if (!scene_.signalled && scene_.plan.config.run.steps_per_job == 0) {
        throw Violation(fmt::format("stopped, and nobody asked for it: {}", outcome.text));
      }
      return scene_.checks.promise(outcome.step);
    default:
      // Of a hybrid run there may be none of fewer ranks.
      const bool given_up = outcome.end == run::GenerationEnd::rank_lost &&
                            scene_.plan.config.parallel.strategy == "hybrid";
      if (!scene_.disk.was_full() && !slow_saves && !given_up) {
        throw Violation(fmt::format("a run failed: {}", outcome.text));
      }
  }
}

void Simulation::recover(const LauncherGone& gone) {
  scene_.disk.end(kEverybody);
  if (gone.power) {
    scene_.disk.power_cut(scene_.random);
    scene_.index.power_cut(scene_.random);
  }
}

void Simulation::throw_if_gone() {
  if (const auto ended = scene_.disk.take_ended_in_call(); ended && *ended < 0) {
    const bool power = *ended == kEverybody;
    scene_.hit(power ? FaultKind::power_cut_in_call : FaultKind::kill_launcher_in_call);
    throw LauncherGone{.power = power};
  }
}

/// The text without what differs from one process to the next.
std::string repeatable(std::string text, const std::string& directory) {
  for (std::size_t at = 0; (at = text.find(directory, at)) != std::string::npos;) {
    text.replace(at, directory.size(), "<runs>");
  }
  return text;
}

}  // namespace

Outcome simulate(std::uint64_t seed, Bug bug, const std::string& tokens) {
  if (bug == Bug::ends_process) {
    std::_Exit(0);
  }
  SeedPlan plan = plan_of_seed(seed);
  const bool unlearns = !describe_objective(plan.config).empty();
  plan.config.data.dir = tokens + (unlearns ? "/retain" : "");
  plan.config.data.forget_dir = unlearns ? tokens + "/forget" : "";
  Outcome outcome;
  Simulation simulation(plan, bug);
  Scene& scene = simulation.scene();
  const std::string directory = scene.disk.root().string();
  plan.config.run.dir = directory;
  if (plan.config.checkpoint.local_dir != "none") {
    plan.config.checkpoint.local_dir = directory + "/local";
  }
  try {
    simulation.run();
  } catch (const Violation& violation) {
    outcome.violation = violation.what();
  } catch (const std::exception& error) {
    outcome.violation = fmt::format("exception: {}", error.what());
  }
  outcome.violation = repeatable(std::move(outcome.violation), directory);
  outcome.trace = scene.trace;
  outcome.tally = scene.tally;
  outcome.tally.seeds = 1;
  outcome.tally.published = scene.checks.published();
  return outcome;
}

}  // namespace train::sim
