#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/engine/rank/small_model.hpp"

// Runs of small models, whatever their layers are.
namespace train::engine::testing {

struct Trace {
  std::vector<double> losses;
  std::vector<std::uint64_t> digests;
  std::vector<double> metrics;  ///< Of all steps, then of the evaluation.

  friend bool operator==(const Trace&, const Trace&) = default;
};

inline Trace run(const WorldStep::Options& options, int steps = 3) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    const StepResult result = world.run(*stream, step, repeating_text(options));
    REQUIRE_FALSE(result.nonfinite);
    trace.losses.push_back(result.loss);
    trace.digests.push_back(world.digest());
    trace.metrics.insert(trace.metrics.end(), result.metrics.begin(), result.metrics.end());
  }
  const auto evaluated = world.evaluate(*stream, repeating_text(options)).metrics;
  trace.metrics.insert(trace.metrics.end(), evaluated.begin(), evaluated.end());
  return trace;
}

/// A model, its weights, and a lane of one text.
class Text {
 public:
  explicit Text(ModelSpec spec, std::uint64_t seed = 3)
      : spec_(std::move(spec)), model_(spec_, kernels::cpu_backend(), 1, kLength, true) {
    for (const UnitParameters& unit : describe_units(spec_)) {
      weights_.emplace_back(static_cast<std::size_t>(unit.element_count));
      gradients_.emplace_back(static_cast<std::size_t>(unit.gradient_count()));
      for (const Parameter& parameter : unit.parameters) {
        fill_initial_rows(parameter, spec_, {.seed = seed, .init_std = 0.5}, 0, parameter.rows(),
                          std::span(weights_.back())
                              .subspan(static_cast<std::size_t>(parameter.offset),
                                       static_cast<std::size_t>(parameter.count())));
      }
    }
    for (std::int32_t i = 0; i < kLength; ++i) {
      tokens_.push_back((i * i * 3 + i) % 41);
      targets_.push_back((i * 5 + 2) % 41);
      positions_.push_back(i < 5 ? i : i - 5);  // Two documents.
    }
  }

  /// The loss, and unless `forward_only` the gradients too.
  double loss(bool forward_only) {
    const auto stream = kernels::make_inline_stream(1);
    kernels::LossSums sums;
    const Lane lane{.sequences = 1,
                    .seq_len = kLength,
                    .tokens = tokens_.data(),
                    .positions = positions_.data(),
                    .targets = targets_.data(),
                    .sums = &sums,
                    .with_gradient = !forward_only};
    const auto memory = [&](std::size_t unit) {
      return UnitMemory{.weights = weights_[unit].data(), .gradient = gradients_[unit].data()};
    };
    for (std::size_t unit = 0; unit < model_.unit_count(); ++unit) {
      model_.unit(unit).forward(*stream, memory(unit), lane);
    }
    for (std::size_t unit = model_.unit_count(); !forward_only && unit > 0; --unit) {
      model_.unit(unit - 1).backward(*stream, memory(unit - 1), lane);
    }
    return sums.cross_entropy;
  }

  /// Along the gradient of the unit `index`: what it says of the loss, and what the loss does.
  std::pair<double, double> slopes(std::size_t index) {
    (void)loss(false);
    const std::vector<float> gradient = gradients_[index];
    double square = 0.0;
    for (const float value : gradient) {
      square += static_cast<double>(value) * static_cast<double>(value);
    }
    const double step = 2e-3 / std::sqrt(square);
    const std::vector<float> weights = weights_[index];
    const auto moved = [&](double by) {
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights_[index][i] = weights[i] + static_cast<float>(by) * gradient[i];
      }
      return loss(true);
    };
    const double difference = moved(step) - moved(-step);
    weights_[index] = weights;
    return {square, difference / (2.0 * step)};
  }

 private:
  static constexpr std::int64_t kLength = 12;
  ModelSpec spec_;
  Model model_;
  std::vector<std::vector<float>> weights_, gradients_;
  std::vector<std::int32_t> tokens_, targets_, positions_;
};

}  // namespace train::engine::testing
