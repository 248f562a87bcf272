#pragma once

#include <array>
#include <filesystem>
#include <string_view>

namespace train::run {

/// Kind of file in a run's directory, and the effects of its failures on the run. docs/recovery.md
/// shows the table; a test compares it with the files of real runs.
struct RunFileRow {
  std::string_view pattern;  ///< Path below the run's directory; * stands for part of one name.
  std::string_view content;
  std::string_view on_refusal;  ///< A write fails: disk full, quota, I/O error.
  std::string_view on_tear;     ///< The process or the machine ends during a write.
  std::string_view on_delay;    ///< The write takes long.
};

inline constexpr std::array<RunFileRow, 20> kRunFiles = {{
    {"config.toml", "resolved configuration",
     "the start ends with 1 (2: no permission); a resume that changes nothing writes nothing",
     "old or new content, never half", "the start waits"},
    {"identity", "the run's own number, and which checkpoints of earlier versions are its own",
     "the start ends with 1 (2: no permission)", "old or new content, never half",
     "the start waits"},
    {"run.lock", "lock of the directory; says who has it, and that this one lives",
     "the start ends with 2; later beats are missing, and after a minute another machine may take "
     "the run over",
     "released by the kernel when the process ends; another machine waits 10 s", "the start waits"},
    {"checkpoints/step-*", "published checkpoint",
     "the save fails and is reported; old checkpoints are retired first if the disk is full; "
     "training goes on",
     "absent: the rename publishes it whole (CK-1)",
     "training goes on; a later save waits for this one"},
    {"checkpoints/.incoming-*", "checkpoint under construction", "as checkpoints/step-*",
     "removed by the next start", "as checkpoints/step-*"},
    {"checkpoints/.retired-*", "checkpoint that is being removed",
     "one warning; the next removal takes it too", "removed with the next one that is",
     "as checkpoints/step-*"},
    {"checkpoints/damaged-*", "checkpoint whose bytes did not match their digests; set aside",
     "the start ends with 1", "old or new name", "the start waits"},
    {"index/*", "RocksDB: checkpoints, step journal, events",
     "one warning; the store is closed and opened anew before its next use; steps, losses and "
     "events wait in memory; no checkpoint is published before its steps are in the journal",
     "RocksDB drops the torn end; an index that lost a promised entry is made anew from the "
     "manifests",
     "training goes on; up to 100,000 steps wait"},
    {"index.aside-*", "index that was damaged, kept for inspection", "the start ends with 1",
     "old or new name", "the start waits"},
    {"metrics.jsonl", "metrics, a line a step",
     "one warning; lines wait in memory (64 MiB) and follow when there is room",
     "the next start cuts off half a line", "training goes on"},
    {"events.jsonl", "what happened to the run, a line an event", "as metrics.jsonl",
     "the next event begins a new line", "training goes on"},
    {"tensorboard/*", "TensorBoard event file of one start", "as metrics.jsonl",
     "TensorBoard reads up to the torn record; the next start has a file of its own",
     "training goes on"},
    {"status.json", "state of the run for `actortrain status` and the board",
     "one warning; the next one replaces it", "old or new content, never half",
     "fewer updates; training goes on"},
    {"control/*", "credentials, endpoint and exit code of the head",
     "the first start ends with 1; later generations keep the credentials; without an endpoint "
     "other nodes are waited for (recovery.node_wait_s); without an exit code they end with 75",
     "old or new content, never half", "nodes are waited for"},
    {"model/*", "copy of the model's configuration and tokenizer", "the start ends with 1",
     "old or new content, never half", "the start waits"},
    {"reference.log_probs*", "log-probabilities of the reference model",
     "the run ends with 1; the part that is there is used by the next start",
     "old or new content, never half", "the step waits"},
    {"weights.digest", "digest of the weights that `model.from` has, for the reference model",
     "one warning; the next start reads the weights again", "old or new content, never half",
     "the start waits"},
    {"profile/*", "trace of `--profile`",
     "logged; the run's exit code is 1 if the trace was asked for", "no trace", "the end waits"},
    {"slurm-*", "output and exit code of a Slurm job (`actortrain submit`)",
     "srun's exit code decides whether the job is queued again", "as a failed write",
     "the job waits"},
    {"finished", "last step of a chain of jobs", "a message; the next job finds nothing to do",
     "old or new content, never half", "the job waits"},
}};

/// Finds the row of a file by its path below a run's directory; nullptr: none. A path below a
/// matching directory belongs to its row, and a temporary name (storage::AtomicFile, .NAME.tmp...)
/// to the row of NAME.
[[nodiscard]] const RunFileRow* row_of(const std::filesystem::path& path);

}  // namespace train::run
