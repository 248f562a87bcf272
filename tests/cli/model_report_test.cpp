#include "cli/report/model_report.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/balance.hpp"
#include "engine/model/model_shape.hpp"
#include "tests/support/blocks/moving_average.hpp"

namespace train::cli::model_report_test {

TEST_CASE("model report: layers of unlike kinds are described by their blocks",
          "[cli][model_report]") {
  engine::ModelShape shape;
  shape.layers = 3;
  shape.heads = 2;
  shape.head_dim = 8;
  shape.embedding_dim = 16;
  shape.mlp_hidden = 40;
  shape.vocab_size = 41;
  engine::ModelSpec model = shape;
  model.layers[1].branches[0].block = std::make_shared<const engine::testing::MovingAverageSpec>();
  const std::string text = describe_spec(model);
  for (const char* line :
       {"0, 2: attention, then MLP\n",
        "attention: 2 heads of 8, 2 of keys and values, QK norm per head, rope 0, one matrix for "
        "q, k, v; LayerNorm before\n",
        "MLP: gelu MLP of 40; LayerNorm before\n", "1: moving average, then MLP\n",
        "moving average: mean of 3 rows, one weight a column; LayerNorm before\n",
        "generation keeps   256 bytes a token of a text in fp32\n"}) {
    CHECK_THAT(text, Catch::Matchers::Contains(line));
  }
}

TEST_CASE("model report: of experts the router, the losses and what a token uses",
          "[cli][model_report]") {
  engine::ModelShape shape;
  shape.architecture = engine::Architecture::dstar_qwen3;
  shape.layers = 3;
  shape.heads = 2;
  shape.head_dim = 8;
  shape.embedding_dim = 16;
  shape.vocab_size = 41;
  shape.experts = 6;
  shape.experts_per_token = 2;
  shape.expert_hidden = 10;
  shape.shared_expert_hidden = 12;
  engine::ModelSpec model = shape;
  const std::vector<std::string> texts = {"switch:previous_step:0.01", "hf:0.5"};
  const auto balance = engine::parse_balance(texts);
  REQUIRE(balance.ok());
  REQUIRE(engine::set_balance(*balance, model).ok());
  const std::string text = describe_spec(model);
  INFO(text);
  const engine::ParameterCount count = engine::count_parameters(model);
  CHECK(count.total - count.active == 3LL * 4 * 3 * 16 * 10);
  for (const std::string& part :
       {std::string("0 to 2: attention, then experts\n"),
        std::string("2 of 6 gated experts of 10, router softmax, normalised over the chosen"),
        std::string("gated shared expert of 12"),
        std::string("balance switch (previous_step) x 0.01, 1 where uniform"),
        std::string("balance hf (lane) x 0.5, 2 where uniform"),
        fmt::format("{} active, which one token uses\n", count.active)}) {
    CHECK_THAT(text, Catch::Matchers::Contains(part));
  }
}

TEST_CASE("model report: of attention beside a scan what is before each text, and both states",
          "[cli][model_report][state_space]") {
  const auto model = engine::spec_from_config(
      R"({"model_type": "hymba", "vocab_size": 41, "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 64, "num_memory_tokens": 5, "sliding_window": 7,
          "global_attn_idx": [0], "kv_reuse_group": [[1, 2]], "mamba_d_state": 5,
          "mamba_dt_rank": 6, "tie_word_embeddings": true})",
      "c.json", 0);
  REQUIRE(model.ok());
  const std::string text = describe_spec(*model);
  INFO(text);
  const std::string heads = "4 heads of 8, values of 16, 2 of keys and values";
  const std::string scan =
      "beside 64 channels of 5 states, convolution of 4, steps of rank 6, norms; a text's state "
      "2048 bytes a layer";
  // Of keys and values two layers' own: 2 x (8 + 16) elements each.
  for (const std::string& part :
       {std::string("before each text   5 learned tokens\n"), heads + ", rope 0; " + scan,
        heads + ", window 8 and the first 5, rope 0; " + scan,
        heads + ", window 8 and the first 5, rope 0, keys of an earlier layer; " + scan,
        std::string("384 bytes a token of a text and of the 5 before it, in fp32\n")}) {
    CHECK_THAT(text, Catch::Matchers::Contains(part));
  }
}

}  // namespace train::cli::model_report_test
