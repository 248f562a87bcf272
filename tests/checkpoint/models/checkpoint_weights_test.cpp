#include "checkpoint/models/checkpoint_weights.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::stored_floats;
using train::test::TempDirectory;

namespace {

namespace fs = std::filesystem;
using Values = std::vector<float>;

/// Weights of one map [2 outputs, 3 inputs], its adapter of rank 2, and a norm; in a file.
struct Stored {
  Values map = {1, 2, 3, 4, 5, 6};
  Values transposed = {1, 4, 2, 5, 3, 6};
  Values a = {1, 0, 2, 0, 1, 1};
  Values b = {1, 2, -1, 3};
  Values average = {5, 5, 5, 5};
  Values norm = {7, 8};

  WriteOutcome write(const fs::path& checkpoints) {
    std::vector<engine::StateView> views;
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, Values& values) {
      views.push_back({name, shape, 0, shape.front(), reinterpret_cast<std::byte*>(values.data()),
                       values.size() * sizeof(float)});
    };
    add("model.map.weight", {2, 3}, map);
    add("model.turned.weight", {3, 2}, transposed);
    add("model.map.lora_A.weight", {2, 3}, a);
    add("model.map.lora_B.weight", {2, 2}, b);
    add("model.turned.lora_A.weight", {2, 3}, a);
    add("model.turned.lora_B.weight", {2, 2}, b);
    add("model.norm.weight", {2}, norm);
    add("optimizer.ema.map.lora_B.weight", {2, 2}, average);
    const auto outcome = test::write_checkpoint(checkpoints, test::fields_at(1), views);
    REQUIRE(outcome);
    return *outcome;
  }
};

std::vector<ExportAdapter> adapters() {
  const auto adapter = [](const std::string& map, bool transposed) {
    return ExportAdapter{.weight = map + ".weight",
                         .transposed = transposed,
                         .scale = 0.5,
                         .a = {map + ".lora_A.weight", {2, 3}},
                         .b = {map + ".lora_B.weight", {2, 2}}};
  };
  return {adapter("map", false), adapter("turned", true)};
}

ExportRequest request_to(const fs::path& directory) {
  return {.directory = directory,
          .tensors = {{"norm.weight", {2}}, {"turned.weight", {3, 2}}, {"map.weight", {2, 3}}},
          .config_text = "{}\n"};
}

}  // namespace

TEST_CASE("adapters: a merged export has W + scale B A, also of a transposed matrix",
          "[checkpoint][adapters]") {
  const TempDirectory temp;
  const WriteOutcome written = Stored().write(temp.path() / "checkpoints");
  const auto report =
      export_weights(written.path, written.manifest, request_to(temp.path() / "out"), adapters());
  REQUIRE(report);
  CHECK(report->tensors == 3);
  // B A = [[1, 2, 4], [-1, 3, 1]]
  const fs::path file = temp.path() / "out" / "model.safetensors";
  CHECK(stored_floats(file, "map.weight") == Values{1.5F, 3, 5, 3.5F, 6.5F, 6.5F});
  CHECK(stored_floats(file, "turned.weight") == Values{1.5F, 3.5F, 3, 6.5F, 5, 6.5F});
  CHECK(stored_floats(file, "norm.weight") == Values{7, 8});
}

TEST_CASE("adapters: a merged export that leaves a tensor of the checkpoint out is refused",
          "[checkpoint][adapters]") {
  const TempDirectory temp;
  const WriteOutcome written = Stored().write(temp.path() / "checkpoints");
  auto some = adapters();
  some.pop_back();
  const auto refused =
      export_weights(written.path, written.manifest, request_to(temp.path() / "out"), some);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("turned.lora_A.weight") != std::string::npos);
  CHECK_FALSE(fs::exists(temp.path() / "out"));
}

TEST_CASE("adapters: alone they have PEFT's names and files, or are their running average",
          "[checkpoint][adapters]") {
  const TempDirectory temp;
  const WriteOutcome written = Stored().write(temp.path() / "checkpoints");
  const auto tensor = [](const std::string& weight) {
    const engine::Parameter parameter{.name = weight,
                                      .shape = {2, weight == "map.lora_A.weight" ? 3 : 2}};
    const std::vector<engine::TensorRule> rules = {{weight, "base_model.model." + weight}};
    const auto part = engine::parts_of(parameter, rules).front();
    return ExportTensor{part.name, part.shape, {{parameter, part}}};
  };
  const auto report =
      export_tensors({.directory = temp.path() / "out",
                      .tensors = {tensor("map.lora_A.weight"), tensor("map.lora_B.weight"),
                                  tensor("turned.lora_B.weight")},
                      .config_text = {},
                      .file = "adapter_model",
                      .texts = {{"adapter_config.json", "{}\n"}}},
                     CheckpointWeights(written.path, written.manifest, {}, "optimizer.ema."));
  REQUIRE(report);
  CHECK(test::names_in(temp.path() / "out") ==
        std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors"});
  const fs::path file = temp.path() / "out" / "adapter_model.safetensors";
  CHECK(stored_floats(file, "base_model.model.map.lora_A.weight") == Values{1, 0, 2, 0, 1, 1});
  CHECK(stored_floats(file, "base_model.model.map.lora_B.weight") == Values{5, 5, 5, 5});
  CHECK(stored_floats(file, "base_model.model.turned.lora_B.weight") == Values{1, 2, -1, 3});
}
