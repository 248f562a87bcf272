// Latent attention whose queries, keys and values are made again from the latents.

#include "engine/model/blocks/latent_attention_block.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "engine/model/model.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "tests/engine/parity/expert_models.hpp"
#include "tests/engine/parity/published_models.hpp"

namespace train::engine::latent_attention_block_test {
namespace {

using Options = WorldStep::Options;

Options options_of(const std::string& name, const std::string& part) {
  Options options = testing::published_options(testing::expert_models().at("cases").at(name));
  if (!part.empty()) {
    options.memory.activation_checkpointing = "all";
    options.memory.checkpointed_part = part;
  }
  return options;
}

std::size_t activations_of(const std::string& name, const std::string& part) {
  const Options options = options_of(name, part);
  return planned_activation_bytes(trained_model(options), options.batch.micro_batch,
                                  options.seq_len, /*with_gradient=*/true,
                                  {.checkpointing = checkpointing_of(options.memory)});
}

}  // namespace

TEST_CASE("latent attention: latents alone are kept, which takes less memory than their expansion",
          "[engine][latent_attention]") {
  const std::string name = GENERATE("deepseek_v3", "deepseek_v3_plain");
  CAPTURE(name);
  const std::size_t whole = activations_of(name, "");
  const std::size_t latents = activations_of(name, "latent");
  CHECK(activations_of(name, "attention") < latents);
  // Queries, keys and values of two layers; those of the third are scratch that all share.
  const Options options = options_of(name, "");
  const auto& spec = block_of<LatentAttentionSpec>(options.model.layers.front());
  const auto rows = static_cast<std::size_t>(options.batch.micro_batch * options.seq_len);
  const auto width =
      static_cast<std::size_t>(spec.heads * (2 * spec.plain_dim + spec.rope_dim + spec.value_dim));
  CHECK(whole >= latents + 2 * rows * width * sizeof(float));
}

TEST_CASE("latent attention: a model without latents refuses to make them again",
          "[engine][latent_attention]") {
  const auto plan = plan_of(options_of("glm4_moe", "latent"));
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().kind == ErrorKind::user);
  CHECK_THAT(plan.error().message, Catch::Contains("memory.checkpointed_part is \"latent\""));
  CHECK(plan_of(options_of("deepseek_v3", "latent")).ok());
}

}  // namespace train::engine::latent_attention_block_test
