#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/models/gguf_model.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/latent_attention_block.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/blocks/state_space/mamba_block.hpp"
#include "engine/model/unit_parameters.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/fixture_file.hpp"

// GGUF files of every family against the models of transformers that they were made of
// (tests/reference/gguf/make_gguf_model_fixtures.py).
namespace train::checkpoint {
namespace {

using Json = nlohmann::json;
using test::TempDirectory;

GgufModel opened(const TempDirectory& directory, const Json& entry) {
  test::write_bytes(directory / "model.gguf",
                    test::bytes_of_hex(entry.at("file").get_ref<const std::string&>()));
  auto model = GgufModel::open(directory / "model.gguf");
  INFO((model.ok() ? "" : model.error().message));
  REQUIRE(model.ok());
  return std::move(model).value();
}

engine::ModelSpec spec_of(const std::string& config_text) {
  const auto spec = engine::spec_from_config(config_text, "config", 0);
  INFO(config_text);
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  return *spec;
}

void check_rope(const engine::RopeSpec& rope, const Json& wanted) {
  const auto frequencies = wanted.at("frequencies").get<std::vector<double>>();
  CHECK(static_cast<double>(rope.factor) == Approx(wanted.at("factor").get<double>()));
  REQUIRE(rope.frequencies.size() == frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    CHECK(static_cast<double>(rope.frequencies[i]) == Approx(frequencies[i]).epsilon(1e-4));
  }
}

void check_latent_layer(const engine::ModelSpec& spec, const engine::LatentAttentionSpec& latent,
                        const Json& layer, const Json& ropes) {
  CHECK(static_cast<double>(latent.scale) == Approx(layer.at("scale").get<double>()));
  CHECK(layer.at("window").get<std::int64_t>() == 0);
  REQUIRE(latent.rope.has_value());
  check_rope(spec.ropes.at(*latent.rope), ropes.at(layer.at("rope").get_ref<const std::string&>()));
}

void check_layer(const engine::ModelSpec& spec, const engine::AttentionSpec& attention,
                 const Json& layer, const Json& ropes) {
  const double scale = attention.scale == 0.0F
                           ? 1.0 / std::sqrt(static_cast<double>(attention.head_dim))
                           : static_cast<double>(attention.scale);
  CHECK(scale == Approx(layer.at("scale").get<double>()));
  CHECK(attention.window == layer.at("window").get<std::int64_t>());
  REQUIRE(attention.rope.has_value() == !ropes.empty());
  if (attention.rope) {
    check_rope(spec.ropes.at(*attention.rope),
               ropes.at(layer.at("rope").get_ref<const std::string&>()));
  }
}

/// FNV-1a of the elements' bytes.
std::string digest(const std::vector<float>& values) {
  std::uint64_t found = 0xcbf29ce484222325U;
  for (const std::byte byte : std::as_bytes(std::span(values))) {
    found = (found ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
  }
  return fmt::format("{:016x}", found);
}

void check_weights(GgufModel& model, const engine::ModelSpec& spec, const Json& wanted) {
  const Status checked = model.check(spec);
  INFO((checked.ok() ? "" : checked.error().message));
  REQUIRE(checked.ok());
  std::size_t compared = 0;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      INFO(parameter.name);
      std::vector<float> values(static_cast<std::size_t>(parameter.count()));
      REQUIRE(model.read_rows(parameter, 0, parameter.rows(), values).ok());
      CHECK(digest(values) == wanted.at(parameter.name).get<std::string>());
      ++compared;
    }
  }
  CHECK(compared == wanted.size());
}

}  // namespace

TEST_CASE("gguf models: ropes, windows, scales and weights are those of the published models",
          "[checkpoint][gguf_model]") {
  const Json fixture = test::read_fixture("gguf_models.json");
  std::size_t whole = 0;
  for (const Json& entry : fixture.at("cases")) {
    INFO(entry.at("name"));
    const TempDirectory directory;
    GgufModel model = opened(directory, entry);
    const engine::ModelSpec spec = spec_of(model.config_text());
    CHECK(spec.tie_embeddings == entry.at("tied").get<bool>());
    CHECK(static_cast<double>(spec.logit_softcap) == Approx(entry.at("caps").at(1).get<double>()));
    REQUIRE(spec.layers.size() == entry.at("layers").size());
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      if (const auto* latent = engine::find_block<engine::LatentAttentionSpec>(spec.layers[i])) {
        check_latent_layer(spec, *latent, entry.at("layers")[i], entry.at("ropes"));
        continue;
      }
      if (engine::find_block<engine::MambaSpec>(spec.layers[i]) != nullptr ||
          engine::find_block<engine::Mamba2Spec>(spec.layers[i]) != nullptr) {
        continue;
      }
      const auto& attention = engine::block_of<engine::AttentionSpec>(spec.layers[i]);
      check_layer(spec, attention, entry.at("layers")[i], entry.at("ropes"));
      CHECK(static_cast<double>(attention.softcap) == Approx(entry.at("caps").at(0).get<double>()));
    }
    if (entry.contains("weights")) {
      check_weights(model, spec, entry.at("weights"));
      ++whole;
    }
  }
  CHECK(whole == 25);
}

TEST_CASE("gguf models: published files of Gemma 3 give the published models",
          "[checkpoint][gguf_model]") {
  const Json fixture = test::read_fixture("gguf_models.json");
  for (const Json& entry : fixture.at("gemma3")) {
    INFO(entry.at("name"));
    const TempDirectory directory;
    const engine::ModelSpec found = spec_of(opened(directory, entry).config_text());
    const engine::ModelSpec wanted = spec_of(entry.at("config").dump());
    CHECK(found.embedding_scale == wanted.embedding_scale);
    CHECK(found.embedding_dim == wanted.embedding_dim);
    REQUIRE(found.layers.size() == wanted.layers.size());
    REQUIRE(found.ropes.size() == wanted.ropes.size());
    for (std::size_t i = 0; i < found.ropes.size(); ++i) {
      CHECK(found.ropes[i].frequencies == wanted.ropes[i].frequencies);
    }
    for (std::size_t i = 0; i < found.layers.size(); ++i) {
      const auto& one = engine::block_of<engine::AttentionSpec>(found.layers[i]);
      const auto& other = engine::block_of<engine::AttentionSpec>(wanted.layers[i]);
      CHECK(one.scale == other.scale);
      CHECK(one.window == other.window);
      CHECK(one.rope == other.rope);
      CHECK(one.head_dim == other.head_dim);
      CHECK(one.kv_heads == other.kv_heads);
      CHECK(engine::block_of<engine::MlpSpec>(found.layers[i]).hidden ==
            engine::block_of<engine::MlpSpec>(wanted.layers[i]).hidden);
    }
  }
}

}  // namespace train::checkpoint
