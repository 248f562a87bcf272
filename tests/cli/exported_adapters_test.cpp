// Adapters of experts and routers, beside those of attention: each is merged into its own map.

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/models/export.hpp"
#include "cli/checkpoints/adapter_words.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/model/tensor_map.hpp"
#include "engine/model/unit_parameters.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/engine/parity/expert_models.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

namespace train::cli::exported_adapters_test {
namespace {

using engine::Parameter;
using Tensors = std::map<std::string, std::vector<float>>;

engine::ModelSpec model_of(const std::string& name) {
  const std::string config =
      engine::testing::expert_models().at("cases").at(name).at("config").dump();
  engine::ModelSpec spec = engine::spec_from_config(config, name, 0).value();
  spec.lora = {.rank = 2, .targets = {"mlp.experts.*", "mlp.gate", "mlp.router", "o_proj"}};
  return spec;
}

std::vector<Parameter> parameters_of(const engine::ModelSpec& spec) {
  std::vector<Parameter> all;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

/// Initial values of all parameters, adapters with others than 0.
Tensors values_of(const engine::ModelSpec& spec, std::uint64_t seed) {
  Tensors all;
  for (Parameter parameter : parameters_of(spec)) {
    if (parameter.adapter) {
      parameter.init = engine::Initializer::uniform(-1.0, 1.0);
    }
    auto& values = all[parameter.name];
    values.resize(static_cast<std::size_t>(parameter.count()));
    engine::fill_initial_rows(parameter, spec, {.seed = seed, .init_std = 0.5}, 0, parameter.rows(),
                              values);
  }
  return all;
}

checkpoint::WriteOutcome saved(const test::TempDirectory& directory, const engine::ModelSpec& spec,
                               Tensors& tensors) {
  std::vector<engine::StateView> views;
  for (const Parameter& parameter : parameters_of(spec)) {
    auto& values = tensors.at(parameter.name);
    views.push_back({engine::weight_name(parameter.name), parameter.shape, 0, parameter.rows(),
                     reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)});
  }
  const auto outcome = test::write_checkpoint(directory / "checkpoints", test::fields_at(1), views);
  REQUIRE(outcome.ok());
  return *outcome;
}

/// Adds scale B A to the weight of each adapter.
void merge(const std::vector<checkpoint::ExportAdapter>& adapters, Tensors& tensors) {
  for (const checkpoint::ExportAdapter& adapter : adapters) {
    const std::vector<float>& a = tensors.at(adapter.a.name);
    const std::vector<float>& b = tensors.at(adapter.b.name);
    const auto inputs = static_cast<std::size_t>(adapter.a.cols());
    std::vector<float>& weight = tensors.at(adapter.weight);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const std::size_t row = i / inputs, column = i % inputs;
      const double added =
          static_cast<double>(b[2 * row]) * static_cast<double>(a[column]) +
          static_cast<double>(b[2 * row + 1]) * static_cast<double>(a[inputs + column]);
      weight[i] = static_cast<float>(static_cast<double>(weight[i]) + adapter.scale * added);
    }
  }
}

}  // namespace

TEST_CASE("exported adapters: experts, routers and attention are merged each with its own",
          "[cli][exported_adapters]") {
  const std::string name = GENERATE("gpt_oss", "deepseek_v3", "qwen3_moe");
  const auto seed = GENERATE(as<std::uint64_t>(), 3, 4);
  CAPTURE(name, seed);
  const test::TempDirectory directory;
  const engine::ModelSpec spec = model_of(name);
  Tensors tensors = values_of(spec, seed);
  const checkpoint::WriteOutcome written = saved(directory, spec, tensors);
  const auto adapters = adapters_of(spec);
  for (const checkpoint::ExportAdapter& adapter : adapters) {
    const std::string map = adapter.weight.substr(0, adapter.weight.rfind('.'));
    CHECK(adapter.a.name == map + ".lora_A.weight");
    CHECK(adapter.b.name == map + ".lora_B.weight");
  }
  const auto report = checkpoint::export_weights(
      written.path, written.manifest,
      {.directory = directory / "merged", .tensors = tensors_of(spec), .config_text = "{}\n"},
      adapters);
  INFO((report.ok() ? "" : report.error().message));
  REQUIRE(report.ok());
  merge(adapters, tensors);
  const auto read = [&](const std::string& stored, std::int64_t first, std::span<float> to) {
    const auto all = test::stored_floats(directory / "merged" / "model.safetensors", stored);
    std::copy_n(all.begin() + first, to.size(), to.begin());
    return Status();
  };
  for (const engine::MappedParameter& map : engine::tensor_map(spec, engine::Dialect::hf)) {
    CAPTURE(map.parameter.name);
    std::vector<float> values(static_cast<std::size_t>(map.parameter.count()));
    REQUIRE(engine::read_rows(map, 0, map.parameter.rows(), read, values).ok());
    CHECK(values == tensors.at(map.parameter.name));
  }
}

TEST_CASE("exported adapters: those that PEFT does not read are refused by name",
          "[cli][exported_adapters]") {
  engine::ModelSpec spec = model_of("gpt_oss");
  const Status refused = check_peft(spec);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK_THAT(refused.error().message, Catch::Contains("model.layers.0.mlp.router.weight has an"));
  spec.lora.targets = {"all-linear"};
  CHECK(check_peft(spec).ok());
  spec = model_of("qwen3_moe");
  CHECK(check_peft(spec).ok());
  for (const char* map : {"down_proj", "gate_proj", "up_proj"}) {
    spec.lora.targets = {std::string("mlp.experts.*.") + map};
    CHECK_THAT(check_peft(spec).error().message,
               Catch::Contains(std::string("mlp.experts.0.") + map + " has an adapter and"));
  }
}

}  // namespace train::cli::exported_adapters_test
