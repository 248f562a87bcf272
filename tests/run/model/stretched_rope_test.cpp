#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/architectures/architectures.hpp"
#include "run/model/model_files.hpp"

namespace train::run {
namespace {

using Json = nlohmann::json;

const configs::RopeSection kYarn = {.type = "yarn", .factor = 4.0};

ModelConfigText config_of(const Json& more) {
  Json config = {{"model_type", "llama"},   {"hidden_size", 64},
                 {"num_hidden_layers", 2},  {"vocab_size", 96},
                 {"intermediate_size", 96}, {"num_attention_heads", 4},
                 {"rope_theta", 50000.0},   {"max_position_embeddings", 128}};
  config.update(more);
  return {.text = config.dump(), .source = "m/config.json", .directory = {}};
}

Json stretched(const Json& more, const configs::RopeSection& rope = kYarn) {
  const auto text = with_rope(config_of(more), rope);
  INFO((text ? "" : text.error().message));
  REQUIRE(text.ok());
  return Json::parse(*text);
}

}  // namespace

TEST_CASE("stretched rope: config.json has it in the dialect that it is in, with its new context",
          "[run][model]") {
  const Json old = stretched({{"rope_scaling", nullptr}});
  CHECK(old["max_position_embeddings"] == 512);
  CHECK(old["rope_scaling"] ==
        Json({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}}));
  const Json newer =
      stretched({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}});
  CHECK_FALSE(newer.contains("rope_scaling"));
  CHECK(newer["rope_parameters"]["rope_type"] == "yarn");
  CHECK(newer["rope_parameters"]["rope_theta"] == 7.0);
  const Json linear = stretched(Json::object(), {.type = "linear", .factor = 2.0});
  CHECK(linear["rope_scaling"] == Json({{"rope_type", "linear"}, {"factor", 2.0}}));
  CHECK(with_rope(config_of(Json::object()), {}).value() == config_of(Json::object()).text);
}

TEST_CASE("stretched rope: the model is built with it, for its longer context", "[run][model]") {
  const auto text = with_rope(config_of(Json::object()), kYarn);
  REQUIRE(text.ok());
  const auto spec = engine::spec_from_config(*text, "m", 512);
  const auto plain = engine::spec_from_config(config_of(Json::object()).text, "m", 512);
  REQUIRE((spec.ok() && plain.ok()));
  CHECK(spec->max_positions == 512);
  CHECK(plain->max_positions == 128);
  CHECK(spec->rope_keys.find("yarn") != std::string::npos);
  CHECK(plain->rope_keys.find("yarn") == std::string::npos);
}

TEST_CASE("stretched rope: one that is scaled already is refused in one line", "[run][model]") {
  const auto refused = [](const Json& more) {
    const auto text = with_rope(config_of(more), kYarn);
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().kind == ErrorKind::user);
    CHECK(text.error().message.find('\n') == std::string::npos);
    return text.error().message;
  };
  CHECK(refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}) ==
        "model.rope: m/config.json has a rope of type \"linear\" already; leave model.rope out");
  CHECK(refused({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}})
            .find("in different layers") != std::string::npos);
  CHECK(refused({{"max_position_embeddings", nullptr}}).find("stretch") != std::string::npos);
}

TEST_CASE("stretched rope: a model without a rope is refused, but not for its own config.json",
          "[run][model]") {
  const ModelConfigText config =
      config_of({{"model_type", "mamba"}, {"intermediate_size", 128}, {"state_size", 16}});
  const auto text = with_rope(config, kYarn);
  REQUIRE(text.ok());
  const auto spec = engine::spec_from_config(*text, config.source, 0);
  REQUIRE(spec.ok());
  const Status refused = check_rope_read(config, *spec, kYarn);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK(refused.error().message ==
        "model.rope: m/config.json is of model_type mamba, which has no rope that could be "
        "stretched; leave model.rope out");
  CHECK(check_rope_read(config, *spec, {}).ok());
}

}  // namespace train::run
