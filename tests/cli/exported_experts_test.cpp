#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/models/export.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/balance.hpp"
#include "storage/files/input_file.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::exported_experts_test {
namespace {

namespace fs = std::filesystem;

/// Weights of their own for each parameter: waves whose steps its name decides.
class Waves final : public engine::WeightSource {
 public:
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override {
    double step = 0.1;
    for (const char letter : parameter.name) {
      step = std::fmod(step * 31.0 + static_cast<double>(letter), 7.0);
    }
    const auto first = static_cast<double>(first_row * parameter.cols());
    CHECK(static_cast<std::int64_t>(out.size()) == rows * parameter.cols());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(std::sin(step * (first + static_cast<double>(i) + 1.0)));
    }
    return {};
  }
};

std::string export_to(const fs::path& directory, std::vector<checkpoint::ExportTensor> tensors,
                      const engine::WeightSource& source) {
  checkpoint::ExportRequest request;
  request.directory = directory;
  request.tensors = std::move(tensors);
  const auto report = checkpoint::export_tensors(request, source);
  INFO((report ? "" : report.error().message));
  REQUIRE(report);
  const auto file = storage::InputFile::open(directory / "model.safetensors");
  REQUIRE(file.ok());
  return file->read_text(std::uint64_t{1} << 24).value();
}

}  // namespace

TEST_CASE(
    "exported experts: files of a tensor for each expert come back byte by byte, stacked ones "
    "become such",
    "[cli][export]") {
  const std::string type = GENERATE("mixtral", "olmoe", "qwen2_moe", "qwen3_moe");
  CAPTURE(type);
  const std::string config = fmt::format(
      R"({{"model_type": "{}", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6,
          "moe_intermediate_size": 5, "shared_expert_intermediate_size": 4, "{}": 3,
          "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 1}})",
      type, type == "mixtral" ? "num_local_experts" : "num_experts");
  const engine::ModelSpec spec = engine::spec_from_config(config, "test", 0).value();
  const test::TempDirectory root;
  const std::string apart = export_to(root / "apart", tensors_of(spec), Waves());
  const std::string name = type == "mixtral" ? "model.layers.1.block_sparse_moe.experts.2.w3.weight"
                                             : "model.layers.1.mlp.experts.2.up_proj.weight";
  CHECK(apart.find('"' + name + '"') != std::string::npos);
  const std::string stacked =
      export_to(root / "stacked", tensors_of(spec, engine::Dialect::stacked), Waves());
  CHECK(stacked.find("\"model.layers.1.mlp.experts.gate_up_proj\"") != std::string::npos);
  for (const char* const from : {"apart", "stacked"}) {
    const auto opened = checkpoint::PublishedWeights::open(root / from, spec);
    INFO((opened.ok() ? "" : opened.error().message));
    REQUIRE(opened.ok());
    CHECK(export_to(root / (std::string("again ") + from), tensors_of(spec), **opened) == apart);
  }
}

TEST_CASE("exported experts: what the model counts is no tensor of a file", "[cli][export]") {
  engine::ModelSpec spec =
      engine::spec_from_config(
          R"({"model_type": "olmoe", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6,
              "num_experts": 3, "num_experts_per_tok": 2, "num_hidden_layers": 2,
              "num_attention_heads": 2})",
          "test", 0)
          .value();
  CHECK(counts_of(spec).empty());
  const std::size_t tensors = tensors_of(spec).size();
  REQUIRE(
      engine::set_balance({{.scope = kernels::BalanceScope::previous_step, .coeff = 1.0F}}, spec)
          .ok());
  CHECK(counts_of(spec) == std::vector<std::string>{"model.layers.0.mlp.gate.previous_load",
                                                    "model.layers.1.mlp.gate.previous_load"});
  CHECK(tensors_of(spec).size() == tensors);
}

}  // namespace train::cli::exported_experts_test
