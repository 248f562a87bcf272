#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [parallel]: division of work and state among ranks; never affects results.
struct ParallelSection {
  std::int64_t ranks = 1;
  std::string strategy = "none";
  std::int64_t group = 0;
  std::string reshard = "after_forward";
  std::vector<std::string> wrapping = {"by_size"};
  std::int64_t wrap_min_parameters = 400'000;
  std::vector<std::string> strategy_by_unit;
  std::int64_t gather_credits = 3;
  std::int64_t prefetch_forward = 1;
  std::int64_t prefetch_backward = 1;
  std::string sync = "auto";
  std::string transport = "auto";
  std::int64_t nodes = 1;
  std::string interface;
  std::int64_t port = 0;
};

/// [precision]: element types.
struct PrecisionSection {
  std::string master = "fp32";
  std::string compute = "fp32";
  std::string reduce = "fp32";
  std::string determinism = "world";
};

/// [memory]: state that is kept or recomputed, and its place.
struct MemorySection {
  std::string activation_checkpointing = "none";
  std::string checkpointed_part = "block";
  std::string offload = "none";
  std::string bf16_weights = "kept";
};

/// [train.stop_after]: end of a run whose evaluations improve no more.
struct StopAfter {
  std::string metric = "val_loss";
  std::int64_t patience = 0;
};

/// [train]: parameters that are trained.
struct TrainSection {
  std::vector<std::string> freeze;
  double ema = 0.0;
  bool ema_warmup = false;
  StopAfter stop_after = {};
};

}  // namespace train::configs
