#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "actors/head/report/metrics_file.hpp"
#include "actors/head/report/run_events.hpp"
#include "storage/tensorboard_writer.hpp"

namespace train::actors {

/// What a run writes beside its checkpoints for those who watch it, through all of its generations
/// in this process. No failure of it ends a run or a generation: what cannot be written now is
/// written when it can be (storage::AppendFile).
/// Threading: `events` of any thread; the rest of one at a time.
struct RunFiles {
  explicit RunFiles(const std::filesystem::path& directory)
      : metrics(directory), events(directory) {}

  MetricsFile metrics;
  std::optional<storage::TensorboardWriter> tensorboard;  ///< None: run.tensorboard is off.
  EventLog events;
};

}  // namespace train::actors
