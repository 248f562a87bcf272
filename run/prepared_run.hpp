#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/directory/run_directory.hpp"
#include "run/directory/run_events.hpp"
#include "run/events/outcome.hpp"
#include "run/memory/node_memory.hpp"
#include "run/plan/node_position.hpp"
#include "run/plan/run_plan.hpp"
#include "run/program/run_program.hpp"
#include "run/report/run_status.hpp"
#include "run/store/checkpoint_store.hpp"

namespace train::run {

/// State that the next ranks resume from, and what an earlier start left undone there.
struct StartPoint {
  std::optional<checkpoint::Candidate> checkpoint = {};  ///< None: initial weights.
  std::int64_t references_done = 0;    ///< Commands of the reference sweep already done.
  bool evaluation_missed = false;      ///< First step's, due before the last stop.
  bool choices_missed = false;         ///< First step's answers to eval.choices.
  bool samples_missed = false;         ///< First step's samples.
  EarlyStop early_stop = EarlyStop();  ///< Has heard the evaluations up to the first step.
};

/// Nodes of a run, now and at its start.
struct RunNodes {
  NodePosition position = {};               ///< Position of the head among the members.
  std::vector<std::int64_t> members = {0};  ///< Members, by their original numbers.
  std::int64_t ranks_at_start = 1;          ///< Ranks of all nodes, with none lost.
  std::int64_t nodes_at_start = 1;          ///< Nodes of the run, with none lost.
  std::size_t awaited = 0;                  ///< Nodes that are expected to join.
};

/// Settings of what a start of the run shows and records.
struct Reporting {
  bool profile = false;           ///< Record a profile.
  Output output = Output::lines;  ///< Output::live if possible.
  double peak_flops = 0.0;        ///< measure_peak_flops(); 0: not measured.
};

/// Data that differ from those of the checkpoint.
struct DataChange {
  bool accept = false;        ///< StartChoices::accept_data
  std::string accepted = {};  ///< Accepted change; empty: none.
};

/// Run that is ready to start, without its ranks and actors. Held by the launcher.
struct PreparedRun {
  RunPlan plan;
  RunDirectory directory;
  std::unique_ptr<CheckpointStore> store;
  StartPoint start = {};
  NodeMemory memory = {};           ///< Resumes from memory instead, if that has a start.
  std::int64_t job_first_step = 0;  ///< First step of the first generation.
  RunNodes nodes = {};
  Reporting reporting = {};
  DataChange data = {};
  std::uint32_t generation = 0;             ///< Earlier starts of all ranks in this process.
  std::shared_ptr<RunFiles> files = {};     ///< Files for observers.
  std::shared_ptr<StatusFile> status = {};  ///< Status file; none: not written.

  [[nodiscard]] const configs::RunConfig& config() const { return plan.config; }
  [[nodiscard]] std::int64_t first_step() const;
  [[nodiscard]] bool nothing_to_do() const;
};

/// Choices of the user about state left by an earlier start.
struct StartChoices {
  bool fresh = false;                           ///< Begin another run, see open_run_directory().
  bool accept_data = false;                     ///< Resume although data.dir holds other tokens.
  std::vector<std::string> accept_config = {};  ///< Fixed keys that may have other values.
};

/// Opens the run's directory, checkpoints and index, and finds the state to resume from. Blocking.
/// The checkpoint to resume from is verified by the ranks that restore it; for a finished run,
/// without such ranks, it is verified here. Errors: those of the parts, each one line; (user) the
/// checkpoint was trained on other data without acceptance: the run's configuration then stays
/// unchanged.
[[nodiscard]] Result<PreparedRun> prepare_run(
    RunPlan plan, const StartChoices& choices,
    const CheckpointStore::Surroundings& surroundings = {});

/// Plans the run on `nodes` nodes with the largest allowed number of ranks: up to as many per node
/// as now, or, for more nodes than now, as at the run's start. Blocks (reads the data's headers).
/// Errors: no number is allowed; says why the last was not.
[[nodiscard]] Result<RunPlan> plan_of_nodes(const PreparedRun& run, std::int64_t nodes);

/// Finds the state to resume from after ranks have failed: the newest of snapshots in memory, local
/// and published checkpoints. `reported`: steps in the run's report; `elsewhere`: snapshots in
/// other nodes' memory. REQUIRES: no rank runs any more. Blocking. Errors: those of
/// CheckpointStore; (user) the checkpoint is older than the one this start began with, and was
/// trained on other data without acceptance.
[[nodiscard]] Status find_start_again(PreparedRun& run, std::int64_t reported,
                                      std::span<const NodeSteps> elsewhere = {});

/// Warns before the first step if a disk for checkpoints has no room for one, even without the old
/// ones that a save retires, or not for as many as the run keeps at a time. Blocks.
void warn_of_small_disk(const PreparedRun& run);

/// Steps that a start resuming from `first_step` may do when the job began at `job_first_step`; 0
/// if ranks were lost as the job's part ended. Nullopt: all of the run's, for run.steps_per_job =
/// 0. Pure.
[[nodiscard]] std::optional<std::int64_t> steps_left_of_job(std::int64_t steps_per_job,
                                                            std::int64_t job_first_step,
                                                            std::int64_t first_step);

[[nodiscard]] Result<std::unique_ptr<RunReport>> open_report(const PreparedRun& run);

/// Commands that the run's next ranks are to execute.
[[nodiscard]] RunProgram::Options program_of(const PreparedRun& run);

/// Appends an event to the run's events.jsonl; a simulated run has none. Blocks during the write; a
/// failure is logged.
void note_event(const PreparedRun& run, const RunEvent& event);

/// Adds an event to the run's index and to its events.jsonl. Blocks; a failure is logged.
void log_event(const PreparedRun& run, const char* kind, const std::string& text);

/// Writes the run's status while there is no observer; `outcome`: none while starting. Blocks; a
/// failure is logged.
void write_status(const PreparedRun& run, std::optional<RunFinished> outcome);

}  // namespace train::run
