#pragma once

#include "configs/checkpoint_section.hpp"
#include "configs/data_section.hpp"
#include "configs/model_section.hpp"
#include "configs/optimizer_section.hpp"
#include "configs/parallel_section.hpp"
#include "configs/run_section.hpp"

namespace train::configs {

/// One run, whole: the sections in the order of the file.
struct RunConfig {
  RunSection run;
  ModelSection model;
  DataSection data;
  BatchSection batch;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  EvalSection eval;
  CheckpointSection checkpoint;
  ParallelSection parallel;
  PrecisionSection precision;
  MemorySection memory;
  TrainSection train;
  RuntimeSection runtime;
};

}  // namespace train::configs
