#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

/// [parallel]: division of work and state among ranks; never affects results.
struct ParallelSection {
  std::int64_t ranks = 1;         ///< Ranks of the run, at most batch.lanes.
  std::string strategy = "none";  ///< none|optimizer|gradient|full|hybrid.
  std::int64_t group = 0;  ///< hybrid: ranks that share one copy of the weights; divides `ranks`.
  /// Gathered weights after the forward pass: "after_forward" frees them, "never" keeps them to the
  /// end of the step, a number N reshards them over N neighbouring ranks.
  std::string reshard = "after_forward";
  /// "per_block", "by_size" (neighbours up to wrap_min_parameters), or patterns of unit names: each
  /// matching unit is a group, the others form one.
  std::vector<std::string> wrapping = {"by_size"};
  std::int64_t wrap_min_parameters = 400'000;
  /// "pattern = strategy" for parts of the model; the first match of a unit's name applies.
  std::vector<std::string> strategy_by_unit;
  std::int64_t gather_credits = 3;     ///< Groups whose weights are gathered at a time.
  std::int64_t prefetch_forward = 1;   ///< Groups prefetched in the forward pass.
  std::int64_t prefetch_backward = 1;  ///< Groups prefetched in the backward pass.
  /// When gradients are reduced: "every_lane", "last_lane", or every k lanes of a rank; "auto":
  /// every lane if a strategy shards gradients, otherwise the last.
  std::string sync = "auto";
  /// "tcp" ("gloo" is its old name): one process per rank, host memory; "nccl": one process per
  /// rank, device memory; "auto": one of these, by the device; "inproc": all in one process.
  std::string transport = "auto";
  std::int64_t nodes = 1;  ///< Number of nodes for the ranks.
  std::string interface;   ///< Network interface for data and control; empty: loopback.
  std::int64_t port = 0;   ///< Port of the control connection; 0: any free port.
};

/// [precision]: element types.
struct PrecisionSection {
  std::string master = "fp32";        ///< Master weights and optimizer state.
  std::string compute = "fp32";       ///< Weights as gathered and read by layers.
  std::string reduce = "fp32";        ///< Gradients in transit; "bf16" gives up P1.
  std::string determinism = "world";  ///< "world": equal bits at any number of ranks; "run": at
                                      ///< this one.
};

/// [memory]: state that is kept or recomputed, and its place.
struct MemorySection {
  std::string activation_checkpointing = "none";  ///< "none", "all", or every N-th block.
  std::string checkpointed_part = "block";        ///< Part of those: "block", "attention" or "mlp".
  std::string offload = "none";       ///< State in host memory: "optimizer" or "parameters".
  std::string bf16_weights = "kept";  ///< With a device: "kept" beside the fp32 ones, or "made" at
                                      ///< each use.
};

/// [train]: parameters that are trained.
struct TrainSection {
  std::vector<std::string> freeze;  ///< Patterns of parameter or unit names to freeze.
  double ema = 0.0;                 ///< Decay of a moving average of the weights; 0: none.
  bool ema_warmup = false;          ///< Limit the decay to (1 + t) / (10 + t) after update t.
};

}  // namespace train::configs
