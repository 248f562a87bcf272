#include "engine/unit_state.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <utility>

#include "tests/engine/small_model.hpp"

namespace train::engine {
namespace {

UnitState first_block() {
  const ModelShape shape = testing::small_shape(Architecture::enoki);
  UnitState state(describe_units(shape)[1]);
  state.initialise(shape, {.seed = 9});
  return state;
}

}  // namespace

TEST_CASE("unit state: views name every tensor and borrow its memory", "[engine][unit_state]") {
  const UnitState state = first_block();
  const std::vector<StateView> views = state.state_views();
  CHECK(views.size() == 3 * state.unit().parameters.size());
  std::set<std::string> names;
  for (const StateView& view : views) {
    names.insert(view.name);
    std::size_t count = 1;
    for (const std::int64_t dimension : view.global_shape) {
      count *= static_cast<std::size_t>(dimension);
    }
    CHECK(view.size_bytes == count * sizeof(float));
    CHECK(view.first_row == 0);
    CHECK(view.rows == view.global_shape.front());
  }
  CHECK(names.size() == views.size());
  const auto& last = state.unit().parameters.back();
  CHECK(last.name == "transformer.h.0.mlp.c_proj.weight");
  CHECK(names.count("optimizer.exp_avg_sq." + last.name) == 1);
  CHECK(views.back().data == reinterpret_cast<std::byte*>(state.exp_avg_sq() + last.offset));
}

TEST_CASE("unit state: the digest sees every value, its row and its parameter",
          "[engine][unit_state]") {
  const UnitState state = first_block();
  const std::uint64_t base = weights_digest(state.unit(), state.weights());
  CHECK(weights_digest(state.unit(), state.weights()) == base);

  const Parameter& matrix = state.unit().parameters[1];
  float* row = state.weights() + matrix.offset;
  row[3] += 1e-6F;
  CHECK(weights_digest(state.unit(), state.weights()) != base);
  row[3] -= 1e-6F;

  std::swap_ranges(row, row + matrix.cols, row + matrix.cols);
  CHECK(weights_digest(state.unit(), state.weights()) != base);
  std::swap_ranges(row, row + matrix.cols, row + matrix.cols);
  CHECK(weights_digest(state.unit(), state.weights()) == base);

  UnitParameters renamed = state.unit();
  renamed.parameters[1].name += "x";
  CHECK(weights_digest(renamed, state.weights()) != base);
}

TEST_CASE("unit state: the digest is the sum of the parts' digests", "[engine][unit_state]") {
  const UnitState state = first_block();
  std::uint64_t sum = 0;
  for (const Parameter& parameter : state.unit().parameters) {
    UnitParameters part = state.unit();
    part.parameters = {parameter};
    sum += weights_digest(part, state.weights());
  }
  CHECK(sum == weights_digest(state.unit(), state.weights()));
}

}  // namespace train::engine
