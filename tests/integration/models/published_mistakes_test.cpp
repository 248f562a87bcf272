// Directories of models that are damaged, incomplete, or say what is not supported: each is one
// line and exit code 2, before anything is started.

#include <cstring>
#include <functional>

#include "storage/safetensors_header.hpp"
#include "storage/safetensors_writer.hpp"
#include "storage/weight_files/weight_directory.hpp"
#include "tests/integration/sites/published_site.hpp"

using namespace train;
using namespace train::test;

namespace {

using Json = nlohmann::json;
using storage::TensorHeading;

/// The model's directory once more, in `damaged`.
void copy_model(const RunSite& site) {
  fs::remove_all(site / "damaged");
  fs::copy(site / "model", site / "damaged", fs::copy_options::recursive);
}

void check_refused(const RunSite& site, const Words& parts) {
  check_mistake(site, {"run", "tiny.toml", "--set", "run.name=none", "--set", "model.from=damaged"},
                parts);
  check_one_line(site.call({"convert", "damaged", "--out", "converted"}), 2, parts);
}

/// A model whose config.json has these keys besides or instead.
void check_config_refused(const RunSite& site, const Json& changes, const Words& parts) {
  INFO(changes.dump());
  copy_model(site);
  Json config = Json::parse(read_bytes(site / "damaged/config.json"));
  config.update(changes);
  write_bytes(site / "damaged/config.json", config.dump());
  check_refused(site, parts);
}

/// One whose tensors have other headings, and zeros.
void check_tensors_refused(const RunSite& site, const std::function<void(TensorHeading&)>& change,
                           const Words& parts) {
  copy_model(site);
  const auto opened = storage::WeightDirectory::open(site / "model");
  REQUIRE(opened.ok());
  std::vector<TensorHeading> headings;
  std::size_t size = 0;
  for (const std::string& name : opened->names()) {
    const storage::TensorEntry& entry = *opened->find(name);
    TensorHeading& heading = headings.emplace_back(TensorHeading{name, entry.shape, entry.dtype});
    change(heading);
    size += storage::tensor_size_bytes(heading.dtype, heading.shape).value();
  }
  auto writer = storage::SafetensorsWriter::create(site / "damaged/model.safetensors", headings);
  REQUIRE(writer.ok());
  REQUIRE(writer->write(std::vector<std::byte>(size)).ok());
  REQUIRE(writer->commit().ok());
  check_refused(site, parts);
}

/// The model in several files, in `damaged`.
void split_model(const RunSite& site) {
  fs::remove_all(site / "damaged");
  const Ended ended =
      site.call({"convert", "model", "--out", "damaged", "--max-shard-size", "20KB"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  REQUIRE(fs::exists(site / "damaged/model-00002-of-00003.safetensors"));
}

}  // namespace

TEST_CASE("published: settings that change the maths and are not supported are one line each",
          "[integration][published][mistakes]") {
  const RunSite& site = published_site();
  const auto refused = [&](const Json& changes, const Words& parts) {
    check_config_refused(site, changes, parts);
  };
  refused({{"num_attention_heads", 0}}, {"damaged/config.json", "num_attention_heads is 0"});
  refused({{"num_key_value_heads", 3}}, {"4 is not a multiple of num_key_value_heads 3"});
  refused({{"hidden_act", "mish"}}, {"hidden_act is \"mish\"", "silu, gelu"});
  refused({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}},
          {"rope_type \"dynamic\" is not supported"});
  refused({{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}, {"vocab_size", 301}},
          {"but config.json says [301, 32]", "before they were quantised"});
  refused({{"is_causal", false}}, {"is_causal is false", "attention is causal here"});
  refused({{"vocab_size", 301}},
          {"model.embed_tokens.weight has shape [300, 32], but config.json says [301, 32]"});
}

TEST_CASE("published: files that are cut short, missing or of another kind are one line each",
          "[integration][published][mistakes]") {
  const RunSite& site = published_site();
  check_tensors_refused(
      site,
      [](TensorHeading& heading) {
        if (heading.name == "model.norm.weight") {
          heading.dtype = "I8";
        }
      },
      {"tensor model.norm.weight is of type I8", "F32, BF16, F16 and, with their scales, FP8"});
  check_tensors_refused(
      site,
      [](TensorHeading& heading) {
        if (heading.name == "model.layers.0.mlp.down_proj.weight") {
          std::swap(heading.shape[0], heading.shape[1]);
        }
      },
      {"model.layers.0.mlp.down_proj.weight has shape [48, 32], but config.json says [32, 48]"});
  split_model(site);
  const fs::path shard = site / "damaged/model-00002-of-00003.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  check_refused(site,
                {shard.filename().string(), "not a usable safetensors file", "fetch it again"});
  fs::remove(shard);
  check_refused(site, {shard.filename().string()});
  // A header of 2 GB, in a file that is long enough. It is sparse, and would take long to compare.
  const std::uint64_t header_bytes = std::uint64_t{2} << 30;
  std::string begin(sizeof(header_bytes), ' ');
  std::memcpy(begin.data(), &header_bytes, sizeof(header_bytes));
  write_bytes(shard, begin + "{");
  fs::resize_file(shard, header_bytes + 1000);
  check_one_line(site.call({"convert", "damaged", "--out", "converted"}), 2,
                 {shard.filename().string(), "not a usable safetensors file"});
  fs::remove_all(site / "damaged");
}

TEST_CASE("published: mistakes are one line each, and nothing is started",
          "[integration][published][mistakes]") {
  const RunSite& site = published_site();
  const auto set = [](const std::string& assignment) {
    return Words{"run", "tiny.toml", "--set", "run.name=none", "--set", assignment};
  };
  check_mistake(site, set("model.from=nowhere"), {"nowhere", "no such config.json"});
  check_mistake(site, set("model.config=smollm2-135m"), {"model.config", "model.from"});
  check_mistake(site, set("model.heads=2"), {"model.heads", "belongs to model.arch"});
  fs::remove_all(site / "damaged");
  fs::create_directory(site / "damaged");
  write_bytes(site / "damaged/config.json", kTinyQwen3);
  check_mistake(site, set("model.from=damaged"), {"damaged: neither model.safetensors nor"});
  std::string wider = kTinyQwen3;
  wider.replace(wider.find("\"intermediate_size\": 48"), 23, "\"intermediate_size\": 64");
  write_bytes(site / "damaged/config.json", wider);
  fs::copy(site / "model/model.safetensors", site / "damaged/model.safetensors");
  check_mistake(
      site, set("model.from=damaged"),
      {"model.layers.0.mlp.gate_proj.weight has shape [48, 32], but config.json says [64, 32]",
       "more like it"});
  fs::resize_file(site / "damaged/model.safetensors", 3000);
  check_mistake(site, set("model.from=damaged"), {"damaged/model.safetensors", "not a usable"});
}
