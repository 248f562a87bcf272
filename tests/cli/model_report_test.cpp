#include "cli/report/model_report.hpp"

#include <catch2/catch.hpp>
#include <memory>

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
        "moving average: mean of 3 rows, one weight a column; LayerNorm before\n"}) {
    CHECK_THAT(text, Catch::Matchers::Contains(line));
  }
}

}  // namespace train::cli::model_report_test
