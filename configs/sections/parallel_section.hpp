#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

/// [parallel]: who computes and keeps what; never what is computed.
struct ParallelSection {
  std::int64_t ranks = 1;         ///< Ranks of the run, at most batch.lanes.
  std::string strategy = "none";  ///< none|optimizer|gradient|full|hybrid.
  std::int64_t group = 0;         ///< hybrid: ranks that share one copy; divides `ranks`.
  /// Of gathered weights after the forward pass: "after_forward" frees them, "never" keeps them to
  /// the end of the step, a number N keeps them split over N neighbouring ranks.
  std::string reshard = "after_forward";
  /// "per_block", "by_size" (neighbours until wrap_min_parameters), or patterns of unit names: each
  /// unit that one matches stands alone, the others form one group.
  std::vector<std::string> wrapping = {"by_size"};
  std::int64_t wrap_min_parameters = 400'000;
  /// "pattern = strategy" for parts of the model, the first that matches a unit's name wins.
  std::vector<std::string> strategy_by_unit;
  std::int64_t gather_credits = 3;     ///< Groups whose weights are gathered at a time.
  std::int64_t prefetch_forward = 1;   ///< Groups gathered ahead in the forward pass.
  std::int64_t prefetch_backward = 1;  ///< The same in the backward pass.
  /// When gradients are sent: "every_lane", "last_lane", or every k lanes of a rank; "auto": every
  /// lane where a strategy splits gradients, else the last.
  std::string sync = "auto";
  /// "tcp" ("gloo" is its old name): a process per rank, which move memory of the host; "nccl": the
  /// same, and memory of their devices; "auto": one of these, by the device; "inproc": all in one
  /// process.
  std::string transport = "auto";
  std::int64_t nodes = 1;  ///< Nodes the ranks are spread over.
  std::string interface;   ///< Network interface of data and control; empty: loopback.
  std::int64_t port = 0;   ///< Port of the control connection; 0: any free one.
};

/// [precision]: element types, apart from each other.
struct PrecisionSection {
  std::string master = "fp32";        ///< Weights that the optimizer updates, and its state.
  std::string compute = "fp32";       ///< Weights as layers read them (and as they are gathered).
  std::string reduce = "fp32";        ///< Gradients on the wire; "bf16" gives up P1.
  std::string determinism = "world";  ///< "world": same bits at any number of ranks; "run".
};

/// [memory]: what is kept, where, and what is computed again.
struct MemorySection {
  std::string activation_checkpointing = "none";  ///< "none", "all", or every k-th block.
  std::string checkpointed_part = "block";        ///< Of those: "block", "attention" or "mlp".
  std::string offload = "none";  ///< What a device leaves to the host: "optimizer", "parameters".
  std::string bf16_weights = "kept";  ///< Of a device: "kept" beside the fp32 ones, or "made".
};

/// [train]: what is trained.
struct TrainSection {
  std::vector<std::string> freeze;  ///< Patterns of parameter or unit names that do not change.
  double ema = 0.0;                 ///< beta of a running average of the weights; 0: there is none.
  bool ema_warmup = false;          ///< beta at most (1 + t) / (10 + t) after update t.
};

}  // namespace train::configs
