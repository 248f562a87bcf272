// Tied embeddings against an independent PyTorch implementation in float64 (tests/reference), at
// the level of a Model: loss, every gradient, logits. Tolerance: 1e-5 of a tensor's largest
// element.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/head/head_loss.hpp"
#include "tests/engine/model/model_memory.hpp"
#include "tests/engine/parity/parity_fixture.hpp"

namespace train::engine::tied_parity_test {
namespace {

using Json = nlohmann::json;
using testing::ModelMemory;

using testing::kTolerance;
using testing::read_shape;
using testing::relative_error;

void set_weights(ModelMemory& memory, const Json& weights) {
  for (std::size_t u = 0; u < memory.units.size(); ++u) {
    for (const Parameter& parameter : memory.units[u].parameters) {
      testing::read_weights(weights, parameter, memory.weights[u].data() + parameter.offset);
    }
  }
}

struct Sums {
  std::vector<std::vector<double>> gradients;  ///< Over all lanes, by unit.
  double cross_entropy = 0.0, z_squared = 0.0;
};

/// Forward and backward of all lanes of the fixture.
Sums run_fixture(const Json& fixture, Model& model, ModelMemory& memory) {
  const auto stream = kernels::make_inline_stream(1);
  const auto tokens = fixture.at("tokens").get<std::vector<std::int32_t>>();
  const auto targets = fixture.at("targets").get<std::vector<std::int32_t>>();
  const std::int64_t sequences = fixture.at("sequences");
  const std::int64_t seq_len = fixture.at("seq_len");
  const float scale = 1.0F / static_cast<float>(tokens.size());
  Sums sums;
  for (const auto& flat : memory.gradients) {
    sums.gradients.emplace_back(flat.size(), 0.0);
  }
  for (std::int64_t first = 0; first < std::ssize(tokens); first += sequences * seq_len) {
    kernels::LossSums loss;
    testing::run_lane(*stream, model, memory,
                      {.sequences = sequences,
                       .seq_len = seq_len,
                       .tokens = tokens.data() + first,
                       .targets = targets.data() + first,
                       .sums = &loss,
                       .loss_scale = scale,
                       .z_scale = scale * model.spec().z_loss_coeff});
    sums.cross_entropy += loss.cross_entropy;
    sums.z_squared += loss.z_squared;
    for (std::size_t u = 0; u < memory.units.size(); ++u) {
      for (std::size_t i = 0; i < memory.gradients[u].size(); ++i) {
        sums.gradients[u][i] += static_cast<double>(memory.gradients[u][i]);
      }
    }
  }
  return sums;
}

}  // namespace

TEST_CASE("tied parity: the head has the norm alone, in the reference's order",
          "[engine][parity]") {
  const Json fixture = testing::load_fixture("enoki_tied");
  std::vector<std::string> names;
  for (const UnitParameters& unit : describe_units(read_shape(fixture.at("shape")))) {
    for (const Parameter& parameter : unit.parameters) {
      names.push_back(parameter.name);
    }
  }
  CHECK(names == fixture.at("order").get<std::vector<std::string>>());
  CHECK(names.back() == "transformer.ln_f.weight");
}

TEST_CASE("tied parity: loss and every gradient equal PyTorch's", "[engine][parity]") {
  const Json fixture = testing::load_fixture("enoki_tied");
  const ModelShape shape = read_shape(fixture.at("shape"));
  Model model(shape, kernels::cpu_backend(), fixture.at("sequences"), fixture.at("seq_len"), true,
              {.checkpointing = {.every = GENERATE(0, 1)}});
  ModelMemory memory(shape, 7.0F);
  set_weights(memory, fixture.at("weights_1024ths"));
  const Sums sums = run_fixture(fixture, model, memory);
  const auto count = static_cast<double>(fixture.at("tokens").size());
  const double cross_entropy = sums.cross_entropy / count;
  const double loss =
      cross_entropy + static_cast<double>(shape.z_loss_coeff) * sums.z_squared / count;
  CHECK(cross_entropy == Approx(fixture.at("cross_entropy").get<double>()).epsilon(kTolerance));
  CHECK(loss == Approx(fixture.at("loss").get<double>()).epsilon(kTolerance));
  for (std::size_t u = 0; u < memory.units.size(); ++u) {
    for (const Parameter& parameter : memory.units[u].parameters) {
      CAPTURE(parameter.name);
      CHECK(relative_error(sums.gradients[u].data() + parameter.offset,
                           fixture.at("gradients").at(parameter.name)) < kTolerance);
    }
  }
}

TEST_CASE("tied parity: the logits of the last position equal PyTorch's", "[engine][parity]") {
  const Json fixture = testing::load_fixture("enoki_tied");
  const ModelShape shape = read_shape(fixture.at("shape"));
  const std::int64_t seq_len = fixture.at("seq_len");
  const auto tokens = fixture.at("tokens").get<std::vector<std::int32_t>>();
  const auto stream = kernels::make_inline_stream(1);
  Model model(shape, kernels::cpu_backend(), 1, seq_len + 3, /*with_gradient=*/false);
  ModelMemory memory(shape);
  set_weights(memory, fixture.at("weights_1024ths"));
  const Lane lane{
      .sequences = 1, .seq_len = seq_len, .tokens = tokens.data(), .with_gradient = false};
  testing::run_lane(*stream, model, memory, lane);
  std::vector<float> logits(static_cast<std::size_t>(shape.vocab_size));
  model.row_logits(*stream, memory.of(memory.units.size() - 1), lane.seq_len - 1, 1, logits.data());
  stream->synchronize();
  CHECK(relative_error(logits.data(), fixture.at("last_logits")) < kTolerance);
}

}  // namespace train::engine::tied_parity_test
