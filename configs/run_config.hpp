#pragma once

#include <functional>
#include <map>
#include <string>

#include "configs/checkpoint_section.hpp"
#include "configs/data_section.hpp"
#include "configs/lora_section.hpp"
#include "configs/model_section.hpp"
#include "configs/objective_section.hpp"
#include "configs/optimizer_section.hpp"
#include "configs/parallel_section.hpp"
#include "configs/recovery_section.hpp"
#include "configs/run_section.hpp"
#include "configs/scaling_section.hpp"
#include "configs/status_section.hpp"
#include "configs/watchdog_section.hpp"

namespace train::configs {

/// One run, whole: the sections in the order of the file.
struct RunConfig {
  RunSection run;
  ModelSection model;
  DataSection data;
  BatchSection batch;
  ObjectiveSection objective;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  ScalingSection scaling;
  EvalSection eval;
  CheckpointSection checkpoint;
  RecoverySection recovery;
  WatchdogSection watchdog;
  StatusSection status;
  ParallelSection parallel;
  PrecisionSection precision;
  MemorySection memory;
  TrainSection train;
  LoraSection lora;
  RuntimeSection runtime;

  /// By key, where its value is from: "rule", "file", "--set" or "default". Empty where no scaling
  /// rule was applied; never read back.
  std::map<std::string, std::string, std::less<>> origins;
};

}  // namespace train::configs
