// CUDA twins of kernels of latent attention's keys, and of the routers' correction bias.
#include "kernels/attention/shared_keys.hpp"
#include "kernels/experts/experts.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_shared_keys_test {
namespace {

struct HeadsCase {
  std::int64_t rows, heads, left, right;

  [[nodiscard]] std::string name() const {
    return fmt::format("{} rows of {} heads of {} and {}", rows, heads, left, right);
  }
  [[nodiscard]] std::int64_t joined() const { return rows * heads * (left + right); }
  [[nodiscard]] RowLayout left_layout() const { return {heads * (left + 3) + 1, left + 3}; }
};

TEST_CASE("cuda twins: heads joined of two parts, and split", "[kernels][cuda][.gpu]") {
  for (const HeadsCase& c :
       {HeadsCase{9, 4, 16, 8}, HeadsCase{5, 1, 16, 4}, HeadsCase{130, 3, 5, 7}}) {
    compare_twins("join_heads", c.name(), same_bits, same_bits, [&](Side& side) {
      side.kernels.join_heads(
          side.stream(),
          {.left = side.elements(random_values(c.rows * c.left_layout().outer_stride, 1, 1.0F)),
           .right = side.elements(random_values(c.rows * c.right, 2, 1.0F)),
           .out = side.element_result(untouched_values(c.joined())),
           .rows = c.rows,
           .heads = c.heads,
           .left_dim = c.left,
           .right_dim = c.right,
           .left_layout = c.left_layout(),
           .right_layout = {c.right, 0},
           .dtype = side.dtype});
    });
    compare_twins("split_heads", c.name(), same_bits, bf16_rounding, [&](Side& side) {
      side.kernels.split_heads(
          side.stream(),
          {.x = side.elements(random_values(c.joined(), 3, 1.0F)),
           .left = side.element_result(untouched_values(c.rows * c.left_layout().outer_stride)),
           .right = side.element_result(untouched_values(c.rows * c.right)),
           .rows = c.rows,
           .heads = c.heads,
           .left_dim = c.left,
           .right_dim = c.right,
           .left_layout = c.left_layout(),
           .dtype = side.dtype});
    });
  }
}

TEST_CASE("cuda twins: a correction bias moves by counts", "[kernels][cuda][.gpu]") {
  for (const std::int64_t experts : {1, 7, 300}) {
    compare_twins("choice_bias_update", fmt::format("{} experts", experts), same_bits, same_bits,
                  [&](Side& side) {
                    std::vector<float> counts;
                    for (std::int64_t i = 0; i < experts; ++i) {
                      counts.push_back(static_cast<float>(i * i % 11));
                    }
                    side.kernels.choice_bias_update(
                        side.stream(), {.bias = side.result(random_values(experts, 4, 1.0F)),
                                        .counts = side.put(counts),
                                        .experts = experts,
                                        .rate = 0.01F});
                  });
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_shared_keys_test
