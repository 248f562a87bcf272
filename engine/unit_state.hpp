#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"
#include "engine/state_view.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// What a rank keeps of one unit between steps: flat fp32 master weights and AdamW moments.
class UnitState {
 public:
  UnitState(const UnitParameters& unit);
  /// Weights from the seed, moments zero, blocking.
  void initialise(const ModelShape& shape, const InitOptions& options);

  [[nodiscard]] float* weights() const { return weights_.as<float>(); }
  [[nodiscard]] float* exp_avg() const { return exp_avg_.as<float>(); }
  [[nodiscard]] float* exp_avg_sq() const { return exp_avg_sq_.as<float>(); }
  [[nodiscard]] const UnitParameters& unit() const { return unit_; }

  /// "model.<name>", "optimizer.exp_avg.<name>", "optimizer.exp_avg_sq.<name>" of each parameter.
  /// Views borrow this object's memory.
  [[nodiscard]] std::vector<StateView> state_views() const;

 private:
  UnitParameters unit_;
  kernels::Buffer weights_, exp_avg_, exp_avg_sq_;
};

/// Digest of weights: sum modulo 2^64 over all rows of all parameters of XXH3-64(row's bytes,
/// seeded with the parameter's name and the row index). A sum does not depend on who holds which
/// rows, so ranks add their parts. Host memory, blocking: call it in stream order.
[[nodiscard]] std::uint64_t weights_digest(const UnitParameters& unit, const float* weights);
/// The same value from the views of a checkpoint; views of other tensors than "model.*" are
/// ignored.
[[nodiscard]] std::uint64_t weights_digest(std::span<const StateView> state);

}  // namespace train::engine
