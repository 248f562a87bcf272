#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/text/terminal.hpp"
#include "base/text/text_output.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "data/lanes/lane_source.hpp"
#include "engine/objective/objective.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "run/directory/run_events.hpp"
#include "run/directory/run_files.hpp"
#include "run/events/rank_reports.hpp"
#include "run/model/sample_set.hpp"
#include "run/report/progress_block.hpp"
#include "run/report/step_rate.hpp"

namespace train::run {

/// Terminal output of a run while it trains.
enum class Output : std::uint8_t {
  lines,  ///< Occasional progress, evaluations, checkpoints.
  live,   ///< As lines, with a live status block at the bottom of a terminal.
  json,   ///< Lines of metrics.jsonl and events.jsonl.
  nothing,
};

struct ReportOptions {
  std::filesystem::path directory;  ///< Directory of the run.
  std::int64_t first_step = 0;      ///< Steps already done (resume).
  /// Step of the newest checkpoint; 0: none. Ranks that resume from memory are ahead of it.
  std::int64_t saved_step = 0;
  std::int64_t total_steps = 0;
  std::int64_t log_interval = 1;     ///< Steps per metrics line.
  std::int64_t tokens_per_step = 0;  ///< Includes padding of packed rows.
  /// Steps between evaluations, between answers to eval.choices, and between samples; 0: there are
  /// none.
  std::int64_t eval_interval = 0, choices_interval = 0, samples_interval = 0;
  /// Row counts of a step (from 0); none: every token has a target.
  std::function<engine::RowCount(std::int64_t step)> rows = {};
  double flops_per_token = 0.0;
  double peak_flops = 0.0;  ///< Highest measured GEMM peak, for MFU; 0: unknown.
  /// Takes the FLOP/s of the newest steps at the end, where a peak is known; may be empty.
  std::function<void(double flops)> keep_rate = {};
  std::optional<double> bytes_per_token = {};         ///< For bits per byte.
  std::shared_ptr<const data::LaneSource> data = {};  ///< Has the questions of evaluations, if any.
  std::shared_ptr<const SampleSet> samples = {};      ///< Words of sampled texts; null: none.
  std::vector<std::string> units = {};  ///< Names for the norms of the units' gradients.
  std::shared_ptr<const engine::Optimizer> optimizer = {};  ///< Interprets the optimizer's sums.
  /// Names of RowWeighting::metrics(), and of the losses of sources.
  std::vector<std::string> objective_metrics = {};
  std::vector<std::string> source_names = {};   ///< LaneFacts::source_names() of `data`.
  std::int64_t sequence_length = 0;             ///< Tokens of a row, for sources.
  std::vector<std::string> block_metrics = {};  ///< engine::block_metrics().
  bool tensorboard = true;
  std::int64_t ranks = 1;
  Output output = Output::lines;
  TextOutput* out = nullptr;  ///< None: as Output::nothing. Outlives the report.
  /// Files of the run, shared by its generations; none: files of this report alone.
  std::shared_ptr<RunFiles> files = {};
};

/// Progress of a run, for queries while it is on.
struct RunProgress {
  std::int64_t step = 0;
  double tokens_per_second = 0.0;  ///< Over StepRate's window; 0: this start has no finished step.
  double window_s = 0.0;           ///< Duration of the window's steps.
  double remaining_s = 0.0;        ///< Estimate for the rest of the run, once a step is done.
  std::int64_t step_ns = 0;        ///< End of the newest step, steady clock.
  std::int64_t saved_step = -1;    ///< Newest checkpoint of this start; -1: none.
  std::int64_t saved_ns = 0;       ///< Steady clock.
  std::string saved_directory = {};
  std::string save_failure = {};  ///< Failure of the newest save; empty: it succeeded.
};

/// Writes metrics.jsonl, TensorBoard events and progress lines of one start of a run's ranks.
///
/// Threading: one owner at a time (the report stream); progress() from any thread. All other calls
/// block on the disk.
class RunReport {
 public:
  /// Opens the files; a resume drops their content after `first_step`, which will be computed
  /// again. Errors: a file may not be written (user).
  static Result<std::unique_ptr<RunReport>> open(const ReportOptions& options);
  RunReport(const RunReport&) = delete;
  RunReport& operator=(const RunReport&) = delete;

  /// `now_ns`: arrival of the event at the head, steady clock.
  void step(const StepFinished& event, std::int64_t now_ns);
  /// Writes a step of an earlier start from the journal, without its times, if its line is due.
  /// Returns whether the line was due. REQUIRES: no later step has a line.
  bool restore(const checkpoint::StepRecord& record);
  void evaluation(const EvaluationFinished& event);
  /// Texts that events.jsonl has of the same step already, as after a loss of ranks, are not
  /// written there again.
  void samples(const TextsSampled& event);
  void checkpoint(const CheckpointWritten& event);
  void checkpoint_failed(const CheckpointFailed& event);
  void stop_requested(int signal);
  /// Sets the wait chain to show until the stall is over (empty). Any thread.
  void stalled(const std::string& text);
  /// Ends the live block, and tells ReportOptions::keep_rate.
  void close();
  [[nodiscard]] RunProgress progress() const;

 private:
  explicit RunReport(const ReportOptions& options);
  /// True if the step has a line regardless of its values.
  [[nodiscard]] bool line_due(std::int64_t step) const;
  /// Starts a step's line with the fields that the journal also has.
  [[nodiscard]] nlohmann::ordered_json begin_line(
      std::int64_t step, double loss, double grad_norm,
      const std::vector<std::uint64_t>& unit_norms) const;
  void append(const std::string& line);
  void scalars(std::int64_t step, std::initializer_list<std::pair<const char*, double>> values);
  void choices(const EvaluationFinished& event);
  void unit_norms(const StepFinished& event);
  /// Objective metrics of an event, without unknown ones.
  [[nodiscard]] std::vector<std::pair<std::string, double>> objective_metrics(
      const std::vector<std::uint64_t>& bits) const;
  /// Writes the objective's metrics to TensorBoard, under `prefix`.
  void objective_scalars(std::int64_t step, const std::string& prefix,
                         const std::vector<std::pair<std::string, double>>& metrics);
  /// Adds tokens and epochs that the run has read of each source.
  void sources(std::int64_t step, nlohmann::ordered_json& line);
  void diagnostics(std::int64_t step, const std::vector<engine::OptimizerDiagnostic>& values);
  /// Model FLOP/s over StepRate's window.
  [[nodiscard]] double reached_flops() const {
    return options_.flops_per_token * rate_.tokens_per_second();
  }
  /// Share of the peak; 0: unknown, or more than all of it, as when other load slowed the peak's
  /// measurement.
  [[nodiscard]] double reached_share() const;
  void show(const StepFinished& event);
  void show_block();
  void print_line(const std::string& text);
  void note(const RunEvent& event);
  /// Notes a sampled text unless an earlier start has.
  void note_sample(const RunEvent& event);

  ReportOptions options_;
  StepRate rate_;
  /// Texts of earlier starts, of steps that this one does again.
  std::set<SampledText> sampled_before_;
  std::unique_ptr<LiveBlock> block_;  ///< None: Output has no live block.
  std::mutex view_mutex_;
  ProgressView view_;
  mutable std::mutex progress_mutex_;
  RunProgress progress_;
};

}  // namespace train::run
