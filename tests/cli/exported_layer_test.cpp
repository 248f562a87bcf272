// A kind of layer with tensors that files have otherwise: its checkpoint, what is exported of it,
// and its adapters hold the same bits.

#include <catch2/catch.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/load/reader.hpp"
#include "checkpoint/models/checkpoint_weights.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "cli/checkpoints/adapter_words.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/model/unit_parameters.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/blocks/moving_average.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

namespace train::cli {
namespace {

using checkpoint::WriteOutcome;
using engine::Dialect;
using engine::Parameter;
using engine::TensorOrder;
using engine::TensorRule;
using Tensors = std::map<std::string, std::vector<float>>;

/// The moving average with a projection, and a weight [4, 2, 2] that files have as four tensors.
struct MixedSpec final : engine::testing::MovingAverageSpec {
  MixedSpec() {
    shape = {4, 2, 2};
    init = engine::Initializer::uniform(-1.0, 1.0);
  }
  [[nodiscard]] std::unique_ptr<engine::Block> make(const engine::BlockContext& context,
                                                    const engine::ModelSpec& model) const override {
    (void)engine::LinearBlock(context, "mixed_proj", {.inputs = model.embedding_dim, .outputs = 6});
    return MovingAverageSpec::make(context, model);
  }
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const engine::ModelSpec& /*model*/,
                                                     const engine::BranchSpec& /*branch*/,
                                                     Dialect dialect) const override {
    return dialect == Dialect::hf
               ? std::vector<TensorRule>{{"mix.weight", "mixes.{}.weight", TensorOrder::transposed},
                                         {"mixed_proj", "projections.mixed"}}
               : std::vector<TensorRule>{};
  }
};

engine::ModelSpec mixed_model(std::int64_t rank) {
  engine::ModelSpec spec = engine::testing::small_shape(engine::Architecture::enoki);
  spec.layers[1].branches[0].block = std::make_shared<const MixedSpec>();
  spec.lora = {.rank = rank, .targets = {"mixed_proj"}};
  return spec;
}

/// Initial values of all parameters, adapters with others than 0.
Tensors values_of(const engine::ModelSpec& spec) {
  Tensors all;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (Parameter parameter : unit.parameters) {
      if (parameter.adapter) {
        parameter.init = engine::Initializer::uniform(-1.0, 1.0);
      }
      auto& values = all[parameter.name];
      values.resize(static_cast<std::size_t>(parameter.count()));
      engine::fill_initial_rows(parameter, spec, {.seed = 3, .init_std = 0.5}, 0, parameter.rows(),
                                values);
    }
  }
  return all;
}

std::vector<engine::StateView> views_of(const engine::ModelSpec& spec, Tensors& tensors) {
  std::vector<engine::StateView> views;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const Parameter& parameter : unit.parameters) {
      auto& values = tensors[parameter.name];
      values.resize(static_cast<std::size_t>(parameter.count()));
      views.push_back({engine::weight_name(parameter.name), parameter.shape, 0, parameter.rows(),
                       reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)});
    }
  }
  return views;
}

WriteOutcome saved(const test::TempDirectory& directory, const engine::ModelSpec& spec,
                   Tensors& tensors) {
  const auto views = views_of(spec, tensors);
  const auto outcome = test::write_checkpoint(directory / "checkpoints", test::fields_at(1), views);
  REQUIRE(outcome.ok());
  return *outcome;
}

}  // namespace

TEST_CASE("exported layer: saved, restored, exported and imported with the same bits",
          "[cli][exported_layer]") {
  const test::TempDirectory directory;
  const engine::ModelSpec spec = mixed_model(0);
  Tensors tensors = values_of(spec);
  const WriteOutcome written = saved(directory, spec, tensors);
  Tensors restored;
  auto views = views_of(spec, restored);
  REQUIRE(checkpoint::restore(written.path, written.manifest, views, {}).ok());
  CHECK(restored == tensors);

  const auto report = checkpoint::export_weights(
      written.path, written.manifest,
      {.directory = directory / "out", .tensors = tensors_of(spec), .config_text = "{}\n"});
  INFO((report.ok() ? "" : report.error().message));
  REQUIRE(report.ok());
  const auto file = directory / "out" / "model.safetensors";
  const auto& mix = tensors.at("transformer.h.1.mix.weight");
  CHECK(test::stored_floats(file, "transformer.h.1.mixes.1.weight") ==
        std::vector<float>{mix[4], mix[6], mix[5], mix[7]});
  CHECK(test::stored_floats(file, "transformer.h.1.projections.mixed.weight") ==
        tensors.at("transformer.h.1.mixed_proj.weight"));

  const auto weights = checkpoint::PublishedWeights::open(directory / "out", spec);
  INFO((weights.ok() ? "" : weights.error().message));
  REQUIRE(weights.ok());
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const Parameter& parameter : unit.parameters) {
      CAPTURE(parameter.name);
      std::vector<float> values(static_cast<std::size_t>(parameter.count()));
      REQUIRE((*weights)->read_rows(parameter, 0, parameter.rows(), values).ok());
      CHECK(values == tensors.at(parameter.name));
    }
  }
  // Once more of what was imported, as `convert` does.
  REQUIRE(
      checkpoint::export_tensors(
          {.directory = directory / "again", .tensors = tensors_of(spec), .config_text = "{}\n"},
          **weights)
          .ok());
  CHECK(test::read_bytes(directory / "again" / "model.safetensors") == test::read_bytes(file));
}

TEST_CASE("exported layer: a tensor of several that is missing, misshapen or too many is named",
          "[cli][exported_layer]") {
  const test::TempDirectory directory;
  const engine::ModelSpec spec = mixed_model(0);
  const auto mistake = [&](const auto& change) {
    std::vector<checkpoint::ExportTensor> tensors = tensors_of(spec);
    change(tensors);
    std::vector<std::vector<float>> zeros;
    std::vector<test::TensorBytes> bytes;
    for (const checkpoint::ExportTensor& tensor : tensors) {
      zeros.emplace_back(checkpoint::element_count(tensor));
      bytes.push_back({tensor.name, tensor.shape, std::as_bytes(std::span(zeros.back()))});
    }
    REQUIRE(test::write_safetensors(directory / "model.safetensors", bytes).ok());
    const auto opened = checkpoint::PublishedWeights::open(directory.path(), spec);
    return opened.ok() ? "whole" : opened.error().message;
  };
  const auto one = [](auto& tensors) -> checkpoint::ExportTensor& {
    return *std::find_if(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return tensor.name == "transformer.h.1.mixes.2.weight";
    });
  };
  CHECK(mistake([](auto&) {}) == "whole");
  CHECK_THAT(mistake([&](auto& all) { one(all).name = "transformer.h.1.mixes.4.weight"; }),
             Catch::Contains("tensor transformer.h.1.mixes.2.weight is missing"));
  CHECK_THAT(mistake([&](auto& all) { one(all).shape = {4}; }),
             Catch::Contains("mixes.2.weight has shape [4], but config.json says [2, 2]"));
  CHECK_THAT(mistake([&](auto& all) {
               all.push_back({"transformer.h.1.mixes.4.weight", {2, 2}});
             }),
             Catch::Contains("mixes.4.weight is not part of"));
}

TEST_CASE("exported layer: adapters of its projection are written as PEFT's and read again",
          "[cli][exported_layer]") {
  const test::TempDirectory directory;
  const engine::ModelSpec spec = mixed_model(2);
  Tensors tensors = values_of(spec);
  const WriteOutcome written = saved(directory, spec, tensors);
  const auto adapters = adapters_of(spec);
  REQUIRE(adapters.size() == 1);
  CHECK(adapters[0].weight == "transformer.h.1.mixed_proj.weight");
  REQUIRE(checkpoint::export_tensors({.directory = directory / "adapters",
                                      .tensors = tensors_of(spec, Dialect::peft),
                                      .config_text = {},
                                      .file = "adapter_model"},
                                     checkpoint::CheckpointWeights(written.path, written.manifest))
              .ok());
  const auto file = directory / "adapters" / "adapter_model.safetensors";
  const auto map = engine::tensor_map(spec, Dialect::peft);
  REQUIRE(map.size() == 2);
  CHECK(map[0].parts.front().name ==
        "base_model.model.transformer.h.1.projections.mixed.lora_A.weight");
  for (const engine::MappedParameter& adapter : map) {
    const Parameter& parameter = adapter.parameter;
    std::vector<float> values(static_cast<std::size_t>(parameter.count()));
    const auto read = [&](const std::string& name, std::int64_t first, std::span<float> to) {
      const auto all = test::stored_floats(file, name);
      std::copy_n(all.begin() + first, to.size(), to.begin());
      return Status();
    };
    REQUIRE(engine::read_rows(adapter, 0, parameter.rows(), read, values).ok());
    CHECK(values == tensors.at(parameter.name));
  }
  REQUIRE(checkpoint::export_weights(
              written.path, written.manifest,
              {.directory = directory / "merged", .tensors = tensors_of(spec), .config_text = {}},
              adapters)
              .ok());
  const auto& a = tensors.at("transformer.h.1.mixed_proj.lora_A.weight");
  const auto& b = tensors.at("transformer.h.1.mixed_proj.lora_B.weight");
  const double added = static_cast<double>(spec.lora.scale()) *
                       (static_cast<double>(b[0]) * static_cast<double>(a[0]) +
                        static_cast<double>(b[1]) * static_cast<double>(a[16]));
  CHECK(static_cast<double>(test::stored_floats(directory / "merged" / "model.safetensors",
                                                "transformer.h.1.projections.mixed.weight")[0]) ==
        Approx(static_cast<double>(tensors.at("transformer.h.1.mixed_proj.weight")[0]) + added));
  configs::RunConfig config;
  config.lora.rank = 2;
  const auto text = nlohmann::json::parse(adapter_config(config, spec));
  CHECK(text.at("target_modules") == nlohmann::json{"mixed"});
}

}  // namespace train::cli
