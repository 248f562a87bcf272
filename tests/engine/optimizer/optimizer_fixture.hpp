#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "configs/fields/optimizer_table.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "engine/optimizer/registry.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::engine::testing {

using kernels::testing::Values;

/// One parameter, its optimizer and its state, updated as a rank does it, in pieces of rows.
class OneParameter {
 public:
  OneParameter(configs::OptimizerSection section, Parameter parameter, Values weights,
               std::int64_t run_steps = 1000)
      : section_(std::move(section)),
        parameter_(std::move(parameter)),
        optimizer_(make_optimizer(section_, run_steps)),
        weights_(std::move(weights)),
        states_(optimizer_->states(parameter_).size(), Values(weights_.size(), 0.0F)),
        sums_(static_cast<std::size_t>(parameter_.rows()) * optimizer_->row_sums().size()),
        scratch_(optimizer_->scratch_bytes(parameter_, /*knows_bf16=*/false), "scratch") {}

  struct Step {
    std::int64_t step = 1;
    double lr = 1e-2;
    kernels::UpdateGuard guard = {};
    std::int64_t rows_of_a_piece = 0;  ///< 0: all at once.
    bool diagnosed = false;
    int threads = 2;
  };

  void update(Values gradient, const Step& step) {
    OptimizerGroup group(kernels::cpu_backend(), *optimizer_, parameter_.group);
    const std::int64_t most = step.rows_of_a_piece > 0 ? step.rows_of_a_piece : parameter_.rows();
    for (std::int64_t row = 0; row < parameter_.rows(); row += most) {
      const std::int64_t offset = row * parameter_.cols();
      OptimizerSlice slice{.parameter = &parameter_,
                           .rows = std::min(most, parameter_.rows() - row),
                           .weights = weights_.data() + offset,
                           .gradient = gradient.data() + offset};
      for (std::size_t i = 0; i < states_.size(); ++i) {
        slice.states[i] = states_[i].data() + offset;
      }
      slice.row_sums = sums_.data() + static_cast<std::size_t>(row) * optimizer_->row_sums().size();
      group.add(slice);
    }
    kernels::testing::run(
        [&](kernels::Stream& stream) {
          group.update(stream, {.step = step.step,
                                .lr = step.lr,
                                .peak_lr = section_.lr,
                                .guard = &step.guard,
                                .scratch = scratch_.data(),
                                .diagnosed = step.diagnosed});
        },
        step.threads);
  }

  [[nodiscard]] const Values& weights() const { return weights_; }
  [[nodiscard]] const std::vector<Values>& states() const { return states_; }
  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }
  [[nodiscard]] const Optimizer& optimizer() const { return *optimizer_; }
  /// Weights and state, one after the other.
  [[nodiscard]] Values all() const {
    Values values = weights_;
    for (const Values& state : states_) {
      values.insert(values.end(), state.begin(), state.end());
    }
    return values;
  }

 private:
  configs::OptimizerSection section_;
  Parameter parameter_;
  std::unique_ptr<Optimizer> optimizer_;
  Values weights_;
  std::vector<Values> states_;
  std::vector<double> sums_;
  kernels::Buffer scratch_;
};

inline Parameter matrix_of(std::int64_t rows, std::int64_t cols) {
  return {.name = "transformer.h.0.mlp.c_fc.weight", .shape = {rows, cols}, .muon = true};
}

}  // namespace train::engine::testing
