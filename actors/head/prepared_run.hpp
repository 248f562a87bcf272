#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/cluster/nodes/node_position.hpp"
#include "actors/cluster/recovery/node_memory.hpp"
#include "actors/head/checkpoint_store.hpp"
#include "actors/head/report/run_events.hpp"
#include "actors/head/report/run_status.hpp"
#include "actors/head/run_directory.hpp"
#include "actors/head/run_plan.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/training_system.hpp"

// What the launcher notes of a run beside its log; the run does not depend on it.
namespace train::actors {

/// A run that is ready to start: everything but its ranks and actors. Held by the launcher.
struct PreparedRun {
  RunPlan plan;
  RunDirectory directory;
  std::unique_ptr<CheckpointStore> store;
  std::optional<checkpoint::Candidate> checkpoint;  ///< To resume from; none: initial weights.
  NodeMemory memory;                                ///< Or from here, if it has a start.
  std::int64_t references_done = 0;         ///< Of its reference's sweep, at the first step.
  bool evaluation_missed = false;           ///< Of the first step, before the stop.
  bool choices_missed = false;              ///< The same of its answers.
  std::int64_t job_first_step = 0;          ///< Of the first generation of ranks.
  double peak_flops = 0.0;                  ///< measure_peak_flops(); 0: not measured.
  NodePosition position;                    ///< The head's, among those that take part.
  std::vector<std::int64_t> members = {0};  ///< Nodes that take part, as they were first numbered.
  std::int64_t ranks_at_start = 1;          ///< Of all nodes, when all took part,
  std::int64_t nodes_at_start = 1;          ///< which were so many.
  std::size_t nodes_awaited = 0;            ///< That do not take part yet and are to come.
  bool profile = false;                     ///< Record what ran when.
  Output output = Output::lines;            ///< Output::live where that is possible.
  bool accept_data = false;                 ///< StartChoices::accept_data
  std::string data_accepted = {};  ///< Other data than the checkpoint's, on purpose; empty: not so.
  std::uint32_t generation = 0;    ///< Starts of all ranks before this one, in this process.
  std::shared_ptr<RunFiles> files = {};     ///< What it writes for those who watch it.
  std::shared_ptr<StatusFile> status = {};  ///< Where the run says how it is; none: nowhere.

  [[nodiscard]] const configs::RunConfig& config() const { return plan.config; }
  [[nodiscard]] std::int64_t first_step() const;
  [[nodiscard]] bool nothing_to_do() const;
};

/// How the user wants a start to treat what an earlier one left.
struct StartChoices {
  bool fresh = false;        ///< Begin another run, see open_run_directory().
  bool accept_data = false;  ///< Go on although data.dir holds other tokens than before.
};

/// Opens the run's directory, checkpoints and index, and finds where to go on. Blocking. The
/// checkpoint to resume from is verified by the ranks that restore it; one of a run that has
/// nothing to do any more, which nobody restores, is verified here. Errors: those of the parts,
/// each one line; (user) the checkpoint to resume from was trained on other data, and that was not
/// accepted: the run's configuration then stays what it was.
[[nodiscard]] Result<PreparedRun> prepare_run(
    RunPlan plan, const StartChoices& choices,
    const CheckpointStore::Surroundings& surroundings = {});

/// The run as one of `nodes` nodes with the largest number of ranks that its configuration allows,
/// up to so many on each as now, or, of more nodes than now, as when it started. Blocks (reads the
/// data's headers). Errors: none is allowed; why the last was not.
[[nodiscard]] Result<RunPlan> plan_of_nodes(const PreparedRun& run, std::int64_t nodes);

/// The GEMM peak of all ranks of this node together, for the report. Blocks while it measures.
[[nodiscard]] double measure_peak_flops(const configs::RunConfig& config);

/// Finds again where to go on, after ranks have ended in disorder: from the newest snapshot in
/// memory, local or published checkpoint; `reported`: steps that the run's report has; `elsewhere`:
/// what other nodes have in memory. REQUIRES: no rank runs any more. Blocking. Errors: those of
/// CheckpointStore; (user) it is an older checkpoint than the start began with, of other data, and
/// that was not accepted.
[[nodiscard]] Status find_start_again(PreparedRun& run, std::int64_t reported,
                                      std::span<const NodeSteps> elsewhere = {});

/// Says before the first step if a disk that checkpoints go to has no room for one, even without
/// the old ones that a save lets go of. Blocks.
void warn_of_small_disk(const PreparedRun& run);

/// How many steps a start that resumes from `first_step` may still do when the job began at
/// `job_first_step`: ranks that were lost as its part ended leave none (0). Nothing: all of the
/// run's, for run.steps_per_job = 0. Pure.
[[nodiscard]] std::optional<std::int64_t> steps_left_of_job(std::int64_t steps_per_job,
                                                            std::int64_t job_first_step,
                                                            std::int64_t first_step);

[[nodiscard]] Result<std::unique_ptr<RunReport>> open_report(const PreparedRun& run);

/// The launcher's actors of this run; `disk` publishes its checkpoints. Borrows `run`.
[[nodiscard]] HeadParts head_parts(const PreparedRun& run, std::shared_ptr<RunReport> report,
                                   std::shared_ptr<kernels::Stream> disk);

/// Appends an event to the run's events.jsonl, which a simulated run has not. Blocks while it is
/// written; a failure is logged.
void note_event(const PreparedRun& run, const RunEvent& event);

/// Adds an event to the run's index and to its events.jsonl. The same.
void log_event(const PreparedRun& run, const char* kind, const std::string& text);

/// The run's status where no observer is there to write it; `outcome`: none, it is starting. The
/// same.
void write_status(const PreparedRun& run, std::optional<RunFinished> outcome);

}  // namespace train::actors
