// CUDA twins of the routers: choices and weights have the CPU's bits, so that both devices send a
// row to the same experts; loads and balancing are sums in another order.
#include <algorithm>
#include <limits>

#include "tests/kernels/cuda_fixture.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::cuda_router_test {
namespace {

/// Sums in double: their rounding shows in the result's last bit only.
constexpr double in_double = 1.0;

/// As the CPU's tests; more experts than a block has threads; rows that are summed in two runs.
std::vector<ExpertSizes> router_sizes() {
  std::vector<ExpertSizes> sizes = kExpertSizes;
  sizes.push_back({.rows = 21, .experts = 512, .slots = 22});
  sizes.push_back({.rows = 3, .experts = 4133, .slots = 8});
  sizes.push_back({.rows = 0, .experts = 8, .slots = 2});
  return sizes;
}

struct Logits {
  std::string name;
  Values values;
};

/// Ordinary logits, ties of several, and rows that are not finite, which choose the first experts.
std::vector<Logits> logit_cases(const ExpertSizes& sizes) {
  const std::int64_t count = sizes.rows * sizes.experts;
  std::vector<Logits> cases = {{"", random_values(count, 81, 6.0F)},
                               {", close", random_values(count, 82, 1e-6F)},
                               {", ties", random_values(count, 83, 3.0F)},
                               {", not finite", random_values(count, 84, 3.0F)}};
  for (float& logit : cases[2].values) {
    logit = std::round(logit);
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Values& strange = cases[3].values;
  for (std::int64_t i = 0; i < count; i += sizes.experts / 2 + 1) {
    const std::int64_t row = i / sizes.experts;
    strange[at(i)] = row % 3 == 0 ? nan : row % 3 == 1 ? -infinity : infinity;
  }
  std::fill_n(strange.begin(), std::min(count, sizes.experts), -infinity);
  return cases;
}

TEST_CASE("cuda twins: routers choose as the CPU's do", "[kernels][cuda][.gpu][P1]") {
  for (const ExpertSizes& sizes : router_sizes()) {
    for (const RouterKind kind : kRouterKinds) {
      for (const Logits& logits : logit_cases(sizes)) {
        const auto what =
            fmt::format("{}{}, {}", sizes.name(), logits.name, static_cast<int>(kind));
        // A sigmoid is a function of two libraries, and no choice depends on it.
        const double allowed = kind == RouterKind::sigmoid ? in_double : same_bits;
        compare_twins("router_forward", what, allowed, [&](Side& side) {
          side.kernels.router_forward(side.stream(),
                                      {.kind = kind,
                                       .logits = side.put(logits.values),
                                       .chosen = side.result(Numbers(at(sizes.places()), -7)),
                                       .weights = side.result(untouched_values(sizes.places())),
                                       .rows = sizes.rows,
                                       .experts = sizes.experts,
                                       .slots = sizes.slots});
        });
      }
    }
  }
}

/// A choice among the experts of the best groups, by scores and a bias in (low, high).
struct GroupCase {
  ExpertSizes sizes;
  std::int64_t groups, kept;
  float low = -0.3F, high = 0.3F;
};

TEST_CASE("cuda twins: routers choose among the best groups as the CPU's do",
          "[kernels][cuda][.gpu][P1]") {
  for (const GroupCase& t : {GroupCase{{33, 8, 3}, 4, 2},
                             {{9, 8, 3}, 4, 2, -1.5F, 0.0F},
                             {{41, 256, 8}, 8, 4},
                             {{5, 384, 8}, 1, 1},
                             {{7, 160, 6}, 80, 3},
                             {{3, 12, 12}, 6, 6}}) {
    Values bias = random_values(t.sizes.experts, 110);
    for (float& b : bias) {
      b = t.low + (t.high - t.low) * (b + 1.0F) / 2.0F;
    }
    bias.back() = bias.front();
    for (const RouterKind kind : kRouterKinds) {
      for (const Logits& logits : logit_cases(t.sizes)) {
        const auto what = fmt::format("{}{}, {} of {} groups, {}", t.sizes.name(), logits.name,
                                      t.kept, t.groups, static_cast<int>(kind));
        const double allowed = kind == RouterKind::sigmoid ? in_double : same_bits;
        compare_twins("router_forward", what, allowed, [&](Side& side) {
          side.kernels.router_forward(side.stream(),
                                      {.kind = kind,
                                       .logits = side.put(logits.values),
                                       .chosen = side.result(Numbers(at(t.sizes.places()), -7)),
                                       .weights = side.result(untouched_values(t.sizes.places())),
                                       .rows = t.sizes.rows,
                                       .experts = t.sizes.experts,
                                       .slots = t.sizes.slots,
                                       .bias = side.put(bias),
                                       .groups = t.groups,
                                       .kept_groups = t.kept,
                                       .scale = 2.5F});
        });
      }
    }
  }
}

TEST_CASE("cuda twins: the pass back through routers", "[kernels][cuda][.gpu]") {
  for (const ExpertSizes& sizes : router_sizes()) {
    for (const RouterKind kind : kRouterKinds) {
      for (const int balancing : {0, 1, 2, 3}) {
        const Values logits = random_values(sizes.rows * sizes.experts, 85, 4.0F);
        const Routed routes = routed(logits, sizes, kind);
        Numbers groups(at(sizes.rows));
        for (std::size_t row = 0; row < groups.size(); ++row) {
          groups[row] = static_cast<std::int32_t>(row % 3) - 1;
        }
        const auto what =
            fmt::format("{}, {}, balancing {}", sizes.name(), static_cast<int>(kind), balancing);
        compare_twins("router_backward", what, transcendental, [&](Side& side) {
          side.kernels.router_backward(
              side.stream(),
              {.kind = kind,
               .logits = side.put(logits),
               .chosen = side.put(routes.chosen),
               .weights = side.put(routes.weights),
               .dweights = side.put(random_values(sizes.places(), 86)),
               .dlogits = side.result(untouched_values(sizes.rows * sizes.experts)),
               .rows = sizes.rows,
               .experts = sizes.experts,
               .slots = sizes.slots,
               .groups = balancing == 3 ? side.put(groups) : nullptr,
               .factors =
                   balancing % 2 == 1 ? side.put(random_values(2 * sizes.experts, 87)) : nullptr,
               .z_factor = balancing >= 2 ? side.put(Values{0.3F}) : nullptr,
               .scale = balancing >= 2 ? 2.5F : 1.0F});
        });
      }
    }
  }
}

/// Documents of two sequences, from one row to more than two chunks of rows, and over the edges of
/// chunks; a third of them have no target.
struct Documents {
  std::int64_t sequences = 2, seq_len = 260;
  Numbers positions, targets;

  Documents() {
    for (const std::int32_t length : {1, 63, 1, 70, 58, 6, 61, 200, 60}) {
      for (std::int32_t i = 0; i < length; ++i) {
        positions.push_back(i);
        targets.push_back(length % 3 == 1 || i % 5 != 0 ? -1 : i);
      }
    }
  }
  [[nodiscard]] std::int64_t rows() const { return sequences * seq_len; }
};

TEST_CASE("cuda twins: groups of rows", "[kernels][cuda][.gpu]") {
  const Documents documents;
  REQUIRE(std::ssize(documents.positions) == documents.rows());
  for (const int given : {0, 1, 2, 3}) {
    for (const bool by_document : {false, true}) {
      for (const std::int64_t sequences : {std::int64_t{0}, documents.sequences}) {
        compare_twins("router_groups", fmt::format("{} {} {}", given, by_document, sequences),
                      same_bits, [&](Side& side) {
                        side.kernels.router_groups(
                            side.stream(),
                            {.positions = given % 2 == 1 ? side.put(documents.positions) : nullptr,
                             .targets = given >= 2 ? side.put(documents.targets) : nullptr,
                             .groups = side.result(Numbers(at(documents.rows()), -7)),
                             .sequences = sequences,
                             .seq_len = documents.seq_len,
                             .by_document = by_document});
                      });
      }
    }
  }
}

Numbers groups_of(const Documents& documents, bool by_document) {
  Numbers groups(at(documents.rows()));
  run([&](Stream& stream) {
    cpu::router_groups(stream, {.positions = documents.positions.data(),
                                .targets = documents.targets.data(),
                                .groups = groups.data(),
                                .sequences = documents.sequences,
                                .seq_len = documents.seq_len,
                                .by_document = by_document});
  });
  return groups;
}

TEST_CASE("cuda twins: loads of experts", "[kernels][cuda][.gpu]") {
  const Documents documents;
  for (const ExpertSizes& sizes : {ExpertSizes{documents.rows(), 6, 2},
                                   {documents.rows(), 300, 9},
                                   {65, 40, 3},
                                   {64, 1, 1},
                                   {0, 5, 1}}) {
    for (const bool by_document : {false, true}) {
      for (const bool given : {false, true}) {
        if (by_document && !given) {
          continue;
        }
        const std::int64_t count = by_document ? std::max<std::int64_t>(sizes.rows, 1) : 1;
        const auto what = fmt::format("{}{}{}", sizes.name(), by_document ? ", by document" : "",
                                      given ? ", groups" : "");
        // The rows of a lane between two documents without targets are a run of their own there.
        const double sums = given && !by_document ? sum_of(16) : in_double;
        for (const RouterKind kind : {RouterKind::softmax, RouterKind::sigmoid_normalised}) {
          compare_twins("router_loads", what, sums, [&](Side& side) {
            side.kernels.router_loads(
                side.stream(),
                {.kind = kind,
                 .logits = side.put(random_values(sizes.rows * sizes.experts, 88, 3.0F)),
                 .chosen = side.put(drawn_choices(sizes, 89)),
                 .groups = given ? side.put(groups_of(documents, by_document)) : nullptr,
                 .counts = side.result(Numbers(at(count * sizes.experts), -7)),
                 .probabilities = side.result(untouched_values(count * sizes.experts)),
                 .group_rows = side.result(Numbers(at(count), -7)),
                 .z_squares = side.result(Exact{-7.0}),
                 .rows = sizes.rows,
                 .experts = sizes.experts,
                 .slots = sizes.slots,
                 .group_count = count});
          });
        }
      }
    }
  }
}

/// A layer's balancing: what its loads are, and which terms.
struct BalanceCase {
  std::string name;
  std::vector<BalanceTerm> terms = {};
  std::int64_t groups = 1;
  bool empty = false;    ///< No group has rows.
  bool previous = true;  ///< Loads of the step before, or of this one, are not all zeros.
  bool pooled = true;    ///< Loads of all layers are given.
  bool factors = true;
};

void compare_balance(const BalanceCase& balance, std::int64_t experts) {
  const std::int64_t slots = std::min<std::int64_t>(experts, 3);
  constexpr std::int64_t layers = 3;
  Numbers rows(at(balance.groups));
  for (std::int64_t group = 0; group < balance.groups && !balance.empty; ++group) {
    rows[at(group)] = static_cast<std::int32_t>(group % 4 == 1 ? 0 : 5 + group % 7);
  }
  Numbers counts(at(balance.groups * experts));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = static_cast<std::int32_t>(i * 37 % 11);
  }
  Values probabilities = random_values(std::ssize(counts), 90);
  const std::int64_t stride = experts + 5;
  const Numbers layer_counts(at(layers * stride), 4);
  const Values layer_probabilities = random_values(layers * stride, 91);
  const Values previous = balance.previous ? random_values(experts, 92) : zeros(experts);
  Exact whole(at(experts));
  for (std::size_t e = 0; e < whole.size(); ++e) {
    whole[e] = balance.previous ? static_cast<double>(e * 29 % 17) : 0.0;
  }
  const auto what = fmt::format("{}, {} groups, {} experts", balance.name, balance.groups, experts);
  const auto terms = std::ssize(balance.terms);
  compare_twins("router_balance", what, in_double, [&](Side& side) {
    BalanceParams p{.term_count = terms,
                    .counts = side.put(counts),
                    .probabilities = side.put(probabilities),
                    .group_rows = side.put(rows),
                    .z_squares = side.put(Exact{23.5}),
                    .layer_counts = balance.pooled ? side.put(layer_counts) : nullptr,
                    .layer_probabilities = balance.pooled ? side.put(layer_probabilities) : nullptr,
                    .previous = side.put(previous),
                    .whole = side.put(whole),
                    .experts = experts,
                    .slots = slots,
                    .group_count = balance.groups,
                    .layers = layers,
                    .layer_stride = stride,
                    .scale = 0.25F};
    std::copy(balance.terms.begin(), balance.terms.end(), p.terms);
    p.values = side.result(Exact(at(2 * terms), -7.0));
    p.factors = balance.factors ? side.result(untouched_values(balance.groups * experts)) : nullptr;
    p.z_factor = balance.factors ? side.result(untouched_values(1)) : nullptr;
    p.tally = side.result(untouched_values(experts));
    p.loads = side.result(Exact(at(2 * experts), -7.0));
    p.bias = side.put(probabilities);
    p.bias_range = side.result(Exact(4, -7.0));
    side.kernels.router_balance(side.stream(), p);
  });
}

TEST_CASE("cuda twins: balancing losses", "[kernels][cuda][.gpu]") {
  const BalanceTerm hf{.kind = BalanceKind::hf, .coeff = 0.01F};
  const BalanceTerm lane{.coeff = 0.02F};
  const BalanceTerm sequence{.scope = BalanceScope::sequence, .coeff = 0.03F};
  const BalanceTerm previous{.scope = BalanceScope::previous_step, .coeff = 0.04F};
  const BalanceTerm step{.scope = BalanceScope::step, .coeff = 0.06F};
  const BalanceTerm z{.kind = BalanceKind::z, .coeff = 0.05F};
  for (const std::int64_t experts : {1, 6, 300}) {
    for (const std::int64_t groups : {1, 64, 150}) {
      compare_balance({.name = "none", .groups = groups, .factors = false}, experts);
      compare_balance({.name = "lane, z", .terms = {lane, z}, .groups = groups}, experts);
      compare_balance({.name = "all", .terms = {z, sequence, previous, lane}, .groups = groups},
                      experts);
      compare_balance({.name = "step", .terms = {step, previous}, .groups = groups}, experts);
      compare_balance({.name = "hf", .terms = {hf}, .groups = groups}, experts);
      compare_balance({.name = "hf left out", .terms = {hf, z}, .groups = groups, .pooled = false},
                      experts);
    }
    compare_balance({.name = "first step", .terms = {previous}, .previous = false}, experts);
    compare_balance({.name = "no row", .terms = {step}, .previous = false}, experts);
    compare_balance(
        {.name = "no rows", .terms = {hf, sequence, lane, z}, .groups = 70, .empty = true},
        experts);
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_router_test
