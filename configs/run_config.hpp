#pragma once

#include <functional>
#include <map>
#include <string>

#include "configs/sections/checkpoint_section.hpp"
#include "configs/sections/data_section.hpp"
#include "configs/sections/lora_section.hpp"
#include "configs/sections/model_section.hpp"
#include "configs/sections/objective_section.hpp"
#include "configs/sections/optimizer_section.hpp"
#include "configs/sections/parallel_section.hpp"
#include "configs/sections/recovery_section.hpp"
#include "configs/sections/run_section.hpp"
#include "configs/sections/scaling_section.hpp"
#include "configs/sections/status_section.hpp"
#include "configs/sections/watchdog_section.hpp"

namespace train::configs {

/// Configuration of one run: the sections in file order.
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

  /// Origin of each key's value: "rule", "file", "--set" or "default". Empty if no scaling rule was
  /// applied; never read back.
  std::map<std::string, std::string, std::less<>> origins;
};

}  // namespace train::configs
