#include "cli/report/model_report.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

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

}  // namespace train::cli::model_report_test
