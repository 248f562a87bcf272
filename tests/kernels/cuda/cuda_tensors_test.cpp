// CUDA twins of kernels that take many tensors in one launch.
#include <algorithm>
#include <array>

#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/average.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_tensors_test {
namespace {

/// More than go into one launch.
constexpr std::size_t tensor_count = 150;

struct Shape {
  std::int64_t count, first;
};

/// On either side of what a thread and a block take, most of them small; some empty, some not
/// aligned.
std::vector<Shape> shapes() {
  constexpr std::array<std::int64_t, 6> small = {1, 0, 4, 5, 31, 0};
  constexpr std::array<std::int64_t, 5> large = {8191, 8192, 8193, 20'001, 16'384};
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const std::int64_t count =
        i % 30 == 29 ? large[i / 30 % large.size()] : small[i % small.size()];
    shapes.push_back({count, i % 4 == 3 ? 1 : 0});
  }
  return shapes;
}

/// Memory of all tensors, one after another with gaps that have to stay as they are.
class Tensors {
 public:
  Tensors(Side& side, unsigned seed, float least, bool changed) {
    Values values;
    for (const Shape& shape : shapes()) {
      values.resize((values.size() + 3) / 4 * 4 + at(shape.first), 7.0F);
      offsets_.push_back(values.size());
      for (const float value : random_values(shape.count, seed++)) {
        values.push_back(least > 0.0F ? value * value + least : value);
      }
      values.push_back(7.0F);
    }
    data_ = changed ? side.result(values) : side.put(values);
  }
  [[nodiscard]] float* operator[](std::size_t tensor) const { return data_ + offsets_[tensor]; }

 private:
  std::vector<std::size_t> offsets_;
  float* data_ = nullptr;
};

constexpr bool changed = true;
constexpr bool read_only = false;

const UpdateGuard* open_guard(Side& side) {
  return side.put(std::vector<UpdateGuard>{{.grad_scale = 0.37F, .grad_norm = 3.0F}});
}

TEST_CASE("cuda twins: many tensors in one launch, optimizers", "[kernels][cuda][.gpu]") {
  const auto each_tensor = [](const auto& with) {
    const std::vector<Shape> all = shapes();
    for (std::size_t i = 0; i < all.size(); ++i) {
      with(i, all[i].count);
    }
  };
  compare_twins("adamw_update", "150 tensors", elementwise, [&](Side& side) {
    const Tensors p(side, 1, 0.0F, changed), g(side, 2, 0.0F, read_only);
    const Tensors m(side, 3, 0.0F, changed), v(side, 4, 0.02F, changed);
    AdamwParams params{.guard = open_guard(side), .step = 7, .lr = 1e-2, .weight_decay = 0.1};
    each_tensor([&](std::size_t i, std::int64_t count) {
      params.tensors.push_back({.p = p[i], .g = g[i], .m = m[i], .v = v[i], .count = count});
    });
    side.kernels.adamw_update(side.stream(), params);
  });
  compare_twins("ademamix_update", "150 tensors", elementwise, [&](Side& side) {
    const Tensors p(side, 1, 0.0F, changed), g(side, 2, 0.0F, read_only);
    const Tensors fast(side, 3, 0.0F, changed), slow(side, 5, 0.0F, changed);
    const Tensors v(side, 4, 0.02F, changed);
    AdemamixParams params{.guard = open_guard(side), .step = 7, .lr = 1e-2, .alpha = 3.0};
    each_tensor([&](std::size_t i, std::int64_t count) {
      params.tensors.push_back(
          {.p = p[i], .g = g[i], .fast = fast[i], .slow = slow[i], .v = v[i], .count = count});
    });
    side.kernels.ademamix_update(side.stream(), params);
  });
  compare_twins("average_update", "150 tensors", same_bits, [&](Side& side) {
    const Tensors average(side, 1, 0.0F, changed), p(side, 2, 0.0F, read_only);
    AverageParams params{.share = 0.07F};
    each_tensor([&](std::size_t i, std::int64_t count) {
      params.tensors.push_back({.average = average[i], .p = p[i], .count = count});
    });
    side.kernels.average_update(side.stream(), params);
  });
}

TEST_CASE("cuda twins: many tensors in one launch, DANA", "[kernels][cuda][.gpu]") {
  const std::vector<Shape> all = shapes();
  const auto update = [&](Side& side, bool star, bool with_sums) {
    const Tensors p(side, 1, 0.0F, changed), g(side, 2, 0.0F, read_only);
    const Tensors m(side, 3, 0.0F, changed), v(side, 4, 0.02F, changed);
    const Tensors tau(side, 5, 0.02F, changed);
    DanaParams params{.guard = open_guard(side), .step = 9, .lr = 1e-2};
    std::vector<std::int64_t> first_rows;
    std::int64_t rows = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t cols = i % 2 == 0 ? 1 : std::max<std::int64_t>(1, all[i].count);
      params.tensors.push_back({.p = p[i],
                                .g = g[i],
                                .m = m[i],
                                .v = v[i],
                                .tau = star ? tau[i] : nullptr,
                                .rows = all[i].count / cols,
                                .cols = cols});
      first_rows.push_back(rows);
      rows += all[i].count / cols;
    }
    if (with_sums) {
      DanaRowSums* sums = side.result(std::vector<DanaRowSums>(at(rows)));
      for (std::size_t i = 0; i < all.size(); ++i) {
        params.tensors[i].row_sums = i % 7 == 3 ? nullptr : sums + first_rows[i];
      }
    }
    side.kernels.dana_update(side.stream(), params);
  };
  for (const bool star : {false, true}) {
    for (const bool with_sums : {false, true}) {
      const std::string what =
          fmt::format("150 tensors{}{}", star ? ", star" : "", with_sums ? ", row sums" : "");
      compare_twins("dana_update", what, transcendental,
                    [&](Side& side) { update(side, star, with_sums); });
    }
  }
}

TEST_CASE("cuda twins: many tensors in one launch, norms", "[kernels][cuda][.gpu][P1]") {
  compare_twins("row_square_sums", "150 tensors", same_bits, [](Side& side) {
    const Tensors x(side, 1, 0.0F, read_only);
    const std::vector<Shape> all = shapes();
    RowSquareSumsParams params;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::int64_t cols = i % 2 == 0 ? 1 : 17;
      const std::int64_t rows = all[i].count / cols;
      params.tensors.push_back({.x = x[i],
                                .row_sums = side.result(Exact(at(rows + 1), -1.0)),
                                .rows = rows,
                                .cols = cols});
    }
    side.kernels.row_square_sums(side.stream(), params);
  });
  compare_twins("tree_sum", "150 sums, of one to three levels", same_bits, [](Side& side) {
    constexpr std::array<std::int64_t, 7> counts = {0, 1, 2, 511, 512, 513, 1537};
    const double* values = side.put(exact(random_values(512 * 512 + 1, 1)));
    double* sums = side.result(Exact(tensor_count, -1.0));
    TreeSumParams params;
    for (std::size_t i = 0; i < tensor_count; ++i) {
      params.sums.push_back(
          {.values = values + i, .out = sums + i, .count = counts[i % counts.size()]});
    }
    params.sums[70].count = 512 * 512 - 70;
    params.sums[71] = {.values = values, .out = sums + 71, .count = 512 * 512 + 1};
    side.kernels.tree_sum(side.stream(), params);
  });
}

}  // namespace
}  // namespace train::kernels::testing::cuda_tensors_test
