#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/host_state.hpp"
#include "kernels/activation/elementwise.hpp"
#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/harness/fixture_file.hpp"

// Losses and gradients of the tiny models of every published family, with any kernels, and how far
// bf16 takes them: ours and those of transformers (fixtures/models_bf16.json).
namespace train::engine::testing {

using Json = nlohmann::json;
using Gradients = std::map<std::string, std::vector<float>>;

/// How far transformers in bf16 is from float64.
inline const Json& published_in_bf16() {
  static const Json fixture = test::read_fixture("models_bf16.json");
  return fixture;
}

inline void set_by_formula(WorldStep& world, const Json& entry) {
  HostState rows(world.rank(0).device(), world.rank(0).state().views());
  rows.load();
  for (const UnitParameters& unit : world.rank(0).plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      const auto view = std::find_if(
          rows.views().begin(), rows.views().end(),
          [&](const StateView& each) { return each.name == "model." + parameter.name; });
      REQUIRE(view != rows.views().end());
      fill_by_formula(parameter, is_gemma(entry),
                      {reinterpret_cast<float*>(view->data), view->size_bytes / sizeof(float)});
    }
  }
  rows.store();
  world.rank(0).state().finalize_restored();
}

inline Gradients gradients_of(const kernels::KernelTable& kernels, const RankEngine& rank) {
  const auto stream = kernels.device->make_stream("gradients", 1);
  Gradients gradients;
  for (const GradientShard& shard : testing::gradients_of(rank)) {
    std::vector<float>& values = gradients[shard.name];
    values.resize(static_cast<std::size_t>(shard.rows * shard.cols));
    kernels.copy(*stream, {.out = values.data(),
                           .in = shard.data,
                           .size_bytes = std::ssize(values) * std::int64_t{sizeof(float)}});
  }
  stream->synchronize();
  return gradients;
}

struct Trained {
  std::vector<double> losses;  ///< Of two steps, and of an evaluation.
  Gradients gradients;         ///< Of the first step.
};

inline Trained train(const kernels::KernelTable& kernels, const Json& entry,
                     const std::string& compute) {
  WorldStep::Options options = published_options(entry);
  options.precision.compute = compute;
  options.eval_lanes = 1;
  options.optimizer.lr = 1e-3;
  const auto tokens = tokens_by_formula(entry);
  const auto stream = kernels.device->make_stream("compute", 2);
  WorldStep world(kernels, options);
  set_by_formula(world, entry);
  Trained trained;
  for (std::int64_t step = 0; step < 2; ++step) {
    const StepResult result = world.run(*stream, step, tokens);
    REQUIRE_FALSE(result.nonfinite);
    trained.losses.push_back(result.loss);
    if (step == 0) {
      trained.gradients = gradients_of(kernels, world.rank(0));
    }
  }
  trained.losses.push_back(world.evaluate(*stream, tokens).cross_entropy);
  return trained;
}

inline double norm_of(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

inline std::vector<float> difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<float> result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    result[i] = a[i] - b[i];
  }
  return result;
}

inline double largest_of(const std::vector<float>& values) {
  double largest = 0.0;
  for (const float value : values) {
    largest = std::isnan(value) ? std::numeric_limits<double>::infinity()
                                : std::max(largest, std::abs(static_cast<double>(value)));
  }
  return largest;
}

/// The largest difference of an element, in its tensor's largest one; of tensors whose gradient is
/// noise in exact arithmetic, in a hundredth of the model's.
inline double worst_element(const Gradients& found, const Gradients& expected) {
  double of_model = 0.0;
  for (const auto& [name, values] : expected) {
    of_model = std::max(of_model, largest_of(values));
  }
  double worst = 0.0;
  for (const auto& [name, values] : expected) {
    const double counts = std::max(largest_of(values), 0.01 * of_model);
    worst = std::max(worst, largest_of(difference(found.at(name), values)) / counts);
  }
  return worst;
}

struct Roundings {
  double ours = 0.0, theirs = 0.0;  ///< Roots of the mean squared relative errors of all tensors.
  double worst_ratio = 0.0;         ///< Of ours to theirs, of a tensor.
  std::string worst;
};

/// Of tensors whose gradient is no noise.
inline Roundings compare_roundings(const Gradients& found, const Gradients& expected,
                                   const Json& theirs) {
  double of_model = 0.0;
  for (const auto& [name, values] : expected) {
    of_model = std::max(of_model, norm_of(values));
  }
  Roundings r;
  double tensors = 0.0;
  for (const auto& [name, values] : expected) {
    const double norm = norm_of(values);
    if (norm < 1e-4 * of_model) {
      continue;
    }
    const double our_error = norm_of(difference(found.at(name), values)) / norm;
    const double their_error = theirs.at(name).get<double>() / norm;
    r.ours += our_error * our_error;
    r.theirs += their_error * their_error;
    tensors += 1.0;
    if (our_error / their_error > r.worst_ratio) {
      r.worst_ratio = our_error / their_error;
      r.worst = name;
    }
  }
  r.ours = std::sqrt(r.ours / tensors);
  r.theirs = std::sqrt(r.theirs / tensors);
  return r;
}

/// One line, and that ours are at most 1.2 times as far off as theirs over all tensors, and of each
/// at most twice.
inline void check_roundings(const std::string& name, const Trained& bf16, const Trained& expected) {
  const Json& theirs = published_in_bf16().at("cases").at(name);
  const Roundings r = compare_roundings(bf16.gradients, expected.gradients, theirs.at("gradients"));
  fmt::print("{:<20} bf16: loss {:.1e} ({:.1e}), gradients {:.2e} ({:.2e}), worst {:.2f} of {}\n",
             name, std::abs(bf16.losses[0] - expected.losses[0]), theirs.at("loss").get<double>(),
             r.ours, r.theirs, r.worst_ratio, r.worst);
  CHECK(r.ours <= 1.2 * r.theirs);
  CHECK(r.worst_ratio <= 2.0);
  CHECK(r.ours > 1e-4);  // It is bf16.
}

}  // namespace train::engine::testing
