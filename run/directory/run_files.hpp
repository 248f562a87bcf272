#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "run/directory/metrics_file.hpp"
#include "run/directory/run_events.hpp"
#include "storage/tensorboard_writer.hpp"

namespace train::run {

/// Files of a run beside its checkpoints, for observers, across all generations in this process.
/// Their failures end neither a run nor a generation: lines that cannot be written now are written
/// later (storage::AppendFile). Threading: `events` from any thread; the rest from one thread at a
/// time.
struct RunFiles {
  explicit RunFiles(const std::filesystem::path& directory)
      : metrics(directory), events(directory) {}

  MetricsFile metrics;
  std::optional<storage::TensorboardWriter> tensorboard;  ///< None: run.tensorboard is off.
  EventLog events;
};

}  // namespace train::run
