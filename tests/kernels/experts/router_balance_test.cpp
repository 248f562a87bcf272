#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/check.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::router_balance_test {
namespace {

Numbers groups_of(const RouterGroupsParams& params) {
  Numbers groups(at(params.sequences * params.seq_len), -7);
  run([&](Stream& stream) {
    RouterGroupsParams p = params;
    p.groups = groups.data();
    cpu::router_groups(stream, p);
  });
  return groups;
}

TEST_CASE("router_groups: rows of documents with a target are in groups, of a lane or by document",
          "[kernels][router_balance]") {
  // Two sequences of documents of 3, 2 and 1, and of 2 and 4 tokens.
  const Numbers positions = {0, 1, 2, 0, 1, 0, 0, 1, 0, 1, 2, 3};
  // None in the document of 2 of the first sequence; one at the last token of the second's first.
  const Numbers targets = {5, -1, -1, -1, -1, 0, -1, 7, 1, 2, 3, -1};
  RouterGroupsParams p{
      .positions = positions.data(), .targets = targets.data(), .sequences = 2, .seq_len = 6};
  CHECK(groups_of(p) == Numbers{0, 0, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0});
  p.by_document = true;
  CHECK(groups_of(p) == Numbers{0, 0, 0, -1, -1, 5, 6, 6, 8, 8, 8, 8});
  p.targets = nullptr;
  CHECK(groups_of(p) == Numbers{0, 0, 0, 3, 3, 5, 6, 6, 8, 8, 8, 8});
  p.positions = nullptr;
  CHECK(groups_of(p) == Numbers{0, 0, 0, 0, 0, 0, 6, 6, 6, 6, 6, 6});
  p.targets = targets.data();
  p.by_document = false;
  CHECK(groups_of(p) == Numbers(12, 0));
}

TEST_CASE("router_groups: a document that began before its sequence begins with it",
          "[kernels][router_balance]") {
  const Numbers positions = {9, 10, 0};
  CHECK(groups_of(
            {.positions = positions.data(), .sequences = 1, .seq_len = 3, .by_document = true}) ==
        Numbers{0, 0, 2});
}

/// Loads of a layer, as router_loads wrote them.
struct Loads {
  Numbers counts, rows;
  Values probabilities;
  Exact z_squares = {-1.0};
};

Loads loads_of(const Values& logits, const Numbers& chosen, const ExpertSizes& sizes,
               const Numbers& groups, std::int64_t group_count, int threads = 2,
               RouterKind kind = RouterKind::softmax) {
  Loads loads{.counts = Numbers(at(group_count * sizes.experts), -7),
              .rows = Numbers(at(group_count), -7),
              .probabilities = untouched_values(group_count * sizes.experts)};
  run(
      [&](Stream& stream) {
        cpu::router_loads(stream, {.kind = kind,
                                   .logits = logits.data(),
                                   .chosen = chosen.data(),
                                   .groups = groups.data(),
                                   .counts = loads.counts.data(),
                                   .probabilities = loads.probabilities.data(),
                                   .group_rows = loads.rows.data(),
                                   .z_squares = loads.z_squares.data(),
                                   .rows = sizes.rows,
                                   .experts = sizes.experts,
                                   .slots = sizes.slots,
                                   .group_count = group_count});
      },
      threads);
  return loads;
}

/// Documents of 50 rows, every fifth of which is in no group.
Numbers documents(std::int64_t rows) {
  Numbers groups;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t document = row / 50 * 50;
    groups.push_back(document % 250 == 100 ? -1 : static_cast<std::int32_t>(document));
  }
  return groups;
}

/// One group, but for the rows that documents() leaves out.
Numbers lane(std::int64_t rows) {
  Numbers groups = documents(rows);
  for (std::int32_t& group : groups) {
    group = std::min(group, 0);
  }
  return groups;
}

TEST_CASE("router_loads: are sums over the rows of each group", "[kernels][router_balance]") {
  for (const std::int64_t rows : {1, 2, 63, 64, 65, 333, 334}) {
    const ExpertSizes sizes{.rows = rows, .experts = 11, .slots = 3};
    const Values logits = random_values(rows * sizes.experts, 51, 3.0F);
    const Numbers chosen = drawn_choices(sizes, 52);
    for (const bool by_document : {false, true}) {
      const Numbers groups = by_document ? documents(rows) : lane(rows);
      const std::int64_t count = by_document ? rows : 1;
      const RouterKind kind = kRouterKinds[rows % 4];
      const Loads loads = loads_of(logits, chosen, sizes, groups, count, 2, kind);
      Numbers counts(at(count * sizes.experts)), group_rows(at(count));
      Exact probabilities(counts.size());
      double z_squares = 0.0;
      for (std::int64_t row = 0; row < rows; ++row) {
        if (groups[at(row)] < 0) {
          continue;
        }
        const std::int64_t first = groups[at(row)] * sizes.experts;
        const double lse = exact_row(exact(logits), row, sizes.experts).lse;
        const Exact shares = exact_shares(exact(logits), row, sizes.experts, kind);
        for (std::int64_t e = 0; e < sizes.experts; ++e) {
          probabilities[at(first + e)] += shares[at(e)];
        }
        for (std::int64_t slot = 0; slot < sizes.slots; ++slot) {
          ++counts[at(first + chosen[at(row * sizes.slots + slot)])];
        }
        ++group_rows[at(groups[at(row)])];
        z_squares += lse * lse;
      }
      CHECK(loads.counts == counts);
      CHECK(loads.rows == group_rows);
      require_near(loads.probabilities, probabilities, 1e-6, sizes.name());
      CHECK(loads.z_squares[0] == Approx(z_squares).epsilon(1e-6));
    }
  }
}

TEST_CASE("router_loads: bits do not depend on the threads", "[kernels][router_balance][P1]") {
  const ExpertSizes sizes{.rows = 700, .experts = 19, .slots = 2};
  const Values logits = random_values(sizes.rows * sizes.experts, 53, 3.0F);
  const Numbers chosen = drawn_choices(sizes, 54);
  for (const int given : {0, 1, 2, 3}) {
    const bool by_document = given % 2 == 1;
    const RouterKind kind = given < 2 ? RouterKind::softmax : RouterKind::sigmoid_normalised;
    const Numbers groups = by_document ? documents(sizes.rows) : lane(sizes.rows);
    Exact z_squares;
    require_same_bits(
        [&](int threads) {
          const Loads loads =
              loads_of(logits, chosen, sizes, groups, by_document ? sizes.rows : 1, threads, kind);
          z_squares.push_back(loads.z_squares[0]);
          return joined({loads.probabilities, Values(loads.counts.begin(), loads.counts.end())});
        },
        "router_loads");
    CHECK(std::set<double>(z_squares.begin(), z_squares.end()).size() == 1);
  }
}

/// A model of layers of experts with one balancing term.
struct Balanced {
  BalanceTerm term;
  ExpertSizes sizes = {.rows = 120, .experts = 5, .slots = 2};
  std::int64_t layers = 3;
  Values previous = {};  ///< Or of the whole step.
  float scale = 0.25F;
  RouterKind kind = RouterKind::softmax;

  [[nodiscard]] bool by_document() const { return term.scope == BalanceScope::sequence; }
  [[nodiscard]] Numbers groups() const {
    return by_document() ? documents(sizes.rows) : lane(sizes.rows);
  }
  [[nodiscard]] std::int64_t group_count() const { return by_document() ? sizes.rows : 1; }
  [[nodiscard]] std::int64_t logit_count() const { return sizes.rows * sizes.experts; }
  [[nodiscard]] Values logits() const { return random_values(layers * logit_count(), 55, 2.0F); }
  [[nodiscard]] Values logits(std::int64_t layer) const {
    const Values all = logits();
    const auto begin = all.begin() + layer * logit_count();
    return {begin, begin + logit_count()};
  }
  [[nodiscard]] Numbers chosen(std::int64_t layer) const {
    return drawn_choices(sizes, static_cast<unsigned>(60 + layer));
  }

  /// Share of a group's choices that are an expert's; of the lane: group -2.
  [[nodiscard]] double share(std::int64_t layer, std::int64_t group, std::int64_t expert) const {
    const Numbers of_rows = groups();
    const Numbers choices = chosen(layer);
    double count = 0.0;
    double rows = 0.0;
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
      const std::int32_t own = of_rows[at(row)];
      if (own < 0 || (group != -2 && own != group)) {
        continue;
      }
      ++rows;
      const auto begin = choices.begin() + row * sizes.slots;
      count += static_cast<double>(std::count(begin, begin + sizes.slots, expert));
    }
    return count / (static_cast<double>(sizes.slots) * rows);
  }

  /// A layer's value, from what the formulas of BalanceParams say.
  [[nodiscard]] double layer_value(const Exact& x, std::int64_t layer) const {
    const Numbers of_rows = groups();
    const double experts = static_cast<double>(sizes.experts);
    double sum = 0.0;
    double rows = 0.0;
    double before = 0.0;
    for (const float count : previous) {
      before += static_cast<double>(count);
    }
    std::vector<std::vector<double>> shares(at(sizes.rows));
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
      const std::int32_t group = of_rows[at(row)];
      if (group < 0) {
        continue;
      }
      ++rows;
      if (term.kind == BalanceKind::z) {
        const double lse = exact_row(x, layer * sizes.rows + row, sizes.experts).lse;
        sum += lse * lse;
        continue;
      }
      const Exact probabilities = exact_shares(x, layer * sizes.rows + row, sizes.experts, kind);
      auto& of_group = shares[by_document() ? at(group) : 0];
      for (std::int64_t e = 0; of_group.empty() && e < sizes.experts; ++e) {
        std::vector<double> all;
        for (std::int64_t expert = 0; expert < sizes.experts; ++expert) {
          all.push_back(previous.empty() ? share(layer, by_document() ? group : -2, expert)
                        : before == 0.0  ? 1.0 / experts
                                         : static_cast<double>(previous[at(expert)]) / before);
        }
        of_group = all;
      }
      for (std::int64_t e = 0; e < sizes.experts; ++e) {
        sum += experts * of_group[at(e)] * probabilities[at(e)];
      }
    }
    return sum / rows;
  }

  /// The model's value: the mean over layers, or of hf over all at once.
  [[nodiscard]] double value(const Exact& x) const {
    double sum = 0.0;
    if (term.kind != BalanceKind::hf) {
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        sum += layer_value(x, layer) / static_cast<double>(layers);
      }
      return sum;
    }
    const Numbers of_rows = groups();
    for (std::int64_t e = 0; e < sizes.experts; ++e) {
      double choices = 0.0;  // Of a row, in the mean over layers.
      double probability = 0.0;
      double rows = 0.0;
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        choices += share(layer, -2, e) * static_cast<double>(sizes.slots);
        for (std::int64_t row = 0; row < sizes.rows; ++row) {
          if (of_rows[at(row)] >= 0) {
            ++rows;
            probability += exact_shares(x, layer * sizes.rows + row, sizes.experts, kind)[at(e)];
          }
        }
      }
      sum += static_cast<double>(sizes.experts) * choices / static_cast<double>(layers) *
             probability / rows;
    }
    return sum;
  }

  struct Found {
    Exact values;
    Values factors;
    Values gradient = {};
    float z_factor = untouched;
  };
  /// Results of the kernels for one layer, the router's gradient included.
  [[nodiscard]] Found found(std::int64_t layer, int threads = 2) const {
    std::vector<Loads> of_layers;
    Numbers layer_counts;
    Values layer_probabilities;
    const std::int64_t padding = 3;
    for (std::int64_t i = 0; i < layers; ++i) {
      of_layers.push_back(
          loads_of(logits(i), chosen(i), sizes, groups(), group_count(), threads, kind));
      layer_counts.insert(layer_counts.end(), of_layers.back().counts.begin(),
                          of_layers.back().counts.begin() + sizes.experts);
      layer_counts.resize(layer_counts.size() + padding);
      layer_probabilities.insert(layer_probabilities.end(), of_layers.back().probabilities.begin(),
                                 of_layers.back().probabilities.begin() + sizes.experts);
      layer_probabilities.resize(layer_probabilities.size() + padding);
    }
    const Loads& own = of_layers[at(layer)];
    Found result{.values = {-1.0, -1.0},
                 .factors = untouched_values(group_count() * sizes.experts),
                 .gradient = untouched_values(logit_count())};
    const Values x = logits(layer);
    const Numbers choices = chosen(layer);
    const Numbers of_rows = groups();
    const Values nothing = zeros(sizes.places());
    const Exact whole(previous.begin(), previous.end());
    const bool of_step = term.scope == BalanceScope::step;
    run(
        [&](Stream& stream) {
          cpu::router_balance(stream, {.terms = {term},
                                       .term_count = 1,
                                       .counts = own.counts.data(),
                                       .probabilities = own.probabilities.data(),
                                       .group_rows = own.rows.data(),
                                       .z_squares = own.z_squares.data(),
                                       .layer_counts = layer_counts.data(),
                                       .layer_probabilities = layer_probabilities.data(),
                                       .previous = previous.empty() ? nullptr : previous.data(),
                                       .whole = of_step ? whole.data() : nullptr,
                                       .experts = sizes.experts,
                                       .slots = sizes.slots,
                                       .group_count = group_count(),
                                       .layers = layers,
                                       .layer_stride = sizes.experts + padding,
                                       .scale = scale,
                                       .values = result.values.data(),
                                       .factors = result.factors.data(),
                                       .z_factor = &result.z_factor});
          cpu::router_backward(stream, {.kind = kind,
                                        .logits = x.data(),
                                        .chosen = choices.data(),
                                        .weights = nothing.data(),
                                        .dweights = nothing.data(),
                                        .dlogits = result.gradient.data(),
                                        .rows = sizes.rows,
                                        .experts = sizes.experts,
                                        .slots = sizes.slots,
                                        .groups = of_rows.data(),
                                        .factors = result.factors.data(),
                                        .z_factor = &result.z_factor});
        },
        threads);
    return result;
  }
};

std::vector<Balanced> balanced() {
  const Values previous = {3.0F, 0.0F, 10.0F, 1.0F, 6.0F};
  return {
      {.term = {.kind = BalanceKind::hf, .coeff = 0.7F}},
      {.term = {.kind = BalanceKind::switch_loss, .coeff = 0.7F}},
      {.term = {.scope = BalanceScope::sequence, .coeff = 0.7F}},
      {.term = {.scope = BalanceScope::previous_step, .coeff = 0.7F}, .previous = previous},
      {.term = {.scope = BalanceScope::previous_step, .coeff = 0.7F}, .previous = zeros(5)},
      {.term = {.scope = BalanceScope::step, .coeff = 0.7F}, .previous = previous},
      {.term = {.scope = BalanceScope::step, .coeff = 0.7F}, .previous = zeros(5)},
      {.term = {.kind = BalanceKind::z, .coeff = 0.7F}},
      {.term = {.kind = BalanceKind::hf, .coeff = 0.7F}, .layers = 1},
      {.term = {.scope = BalanceScope::sequence, .coeff = 0.7F},
       .kind = RouterKind::sigmoid_normalised},
      {.term = {.coeff = 0.7F}, .kind = RouterKind::sigmoid},
      {.term = {.kind = BalanceKind::hf, .coeff = 0.7F}, .kind = RouterKind::sigmoid},
      {.term = {.kind = BalanceKind::z, .coeff = 0.7F}, .kind = RouterKind::sigmoid_normalised}};
}

TEST_CASE("router_balance: a term is worth what its formula says, and its gradient is of that",
          "[kernels][router_balance]") {
  for (const Balanced& t : balanced()) {
    CAPTURE(static_cast<int>(t.term.kind), static_cast<int>(t.term.scope), t.layers,
            static_cast<int>(t.kind));
    const Exact x = exact(t.logits());
    double mean = 0.0;
    Values gradient;
    for (std::int64_t layer = 0; layer < t.layers; ++layer) {
      const Balanced::Found found = t.found(layer);
      CHECK(found.values[1] == 1.0);
      mean += found.values[0] / static_cast<double>(t.layers);
      gradient = joined({gradient, found.gradient});
    }
    CHECK(mean == Approx(t.value(x)).epsilon(1e-6));
    // Layer by layer, as finite differences of all are slow.
    const double weight = static_cast<double>(t.term.coeff) * static_cast<double>(t.scale);
    const Exact part(x.begin(), x.begin() + 60 * t.sizes.experts);
    const Exact expected = finite_differences(part, [&](const Exact& some) {
      Exact all = x;
      std::copy(some.begin(), some.end(), all.begin());
      return 100.0 * weight * t.value(all);
    });
    Values found(gradient.begin(), gradient.begin() + std::ssize(part));
    for (float& value : found) {
      value *= 100.0F;
    }
    require_near(found, expected, 1e-6, "gradient");
    // Uniform shares pull no row anywhere.
    const bool uniform = !t.previous.empty() && t.previous == zeros(t.sizes.experts);
    CHECK(std::any_of(expected.begin(), expected.end(), [](double g) { return g > 1e-4; }) ==
          !uniform);
  }
}

TEST_CASE("router_balance: where loads are equal, hf is worth the slots and Switch's loss 1",
          "[kernels][router_balance]") {
  const ExpertSizes sizes{.rows = 4, .experts = 4, .slots = 2};
  const Numbers chosen = {0, 1, 2, 3, 0, 1, 2, 3};
  const Loads loads = loads_of(zeros(16), chosen, sizes, Numbers(4, 0), 1);
  Exact values(4);
  run([&](Stream& stream) {
    cpu::router_balance(stream, {.terms = {{.kind = BalanceKind::hf}, {}},
                                 .term_count = 2,
                                 .counts = loads.counts.data(),
                                 .probabilities = loads.probabilities.data(),
                                 .group_rows = loads.rows.data(),
                                 .layer_counts = loads.counts.data(),
                                 .layer_probabilities = loads.probabilities.data(),
                                 .experts = 4,
                                 .slots = 2,
                                 .group_count = 1,
                                 .values = values.data()});
  });
  CHECK(values == Exact{2.0, 1.0, 1.0, 1.0});
}

TEST_CASE("router_balance: loads of the step before and of the whole step are told apart",
          "[kernels][router_balance]") {
  const Values previous = {3.0F, 0.0F, 10.0F, 1.0F, 6.0F};
  const Exact whole = {40.0, 2.0, 0.0, 7.0, 1.0};
  const Balanced before{.term = {.scope = BalanceScope::previous_step, .coeff = 0.5F},
                        .previous = previous};
  const Balanced of_step{.term = {.scope = BalanceScope::step, .coeff = 0.5F},
                         .previous = Values(whole.begin(), whole.end())};
  const Loads loads =
      loads_of(before.logits(0), before.chosen(0), before.sizes, before.groups(), 1);
  Exact values(4);
  run([&](Stream& stream) {
    cpu::router_balance(stream, {.terms = {before.term, of_step.term},
                                 .term_count = 2,
                                 .counts = loads.counts.data(),
                                 .probabilities = loads.probabilities.data(),
                                 .group_rows = loads.rows.data(),
                                 .previous = previous.data(),
                                 .whole = whole.data(),
                                 .experts = 5,
                                 .slots = 2,
                                 .group_count = 1,
                                 .values = values.data()});
  });
  CHECK(values == Exact{before.found(0).values[0], 1.0, of_step.found(0).values[0], 1.0});
}

TEST_CASE("router_balance: terms add up", "[kernels][router_balance]") {
  const Values previous = {3.0F, 0.0F, 10.0F, 1.0F, 6.0F};
  const Balanced first{.term = {.scope = BalanceScope::lane, .coeff = 0.5F}};
  const Balanced second{.term = {.scope = BalanceScope::previous_step, .coeff = 0.25F},
                        .previous = previous};
  const Loads loads = loads_of(first.logits(0), first.chosen(0), first.sizes, first.groups(), 1);
  Values factors = untouched_values(5);
  run([&](Stream& stream) {
    cpu::router_balance(stream, {.terms = {first.term, second.term},
                                 .term_count = 2,
                                 .counts = loads.counts.data(),
                                 .probabilities = loads.probabilities.data(),
                                 .group_rows = loads.rows.data(),
                                 .previous = previous.data(),
                                 .experts = 5,
                                 .slots = 2,
                                 .group_count = 1,
                                 .layers = 3,
                                 .scale = 0.25F,
                                 .factors = factors.data()});
  });
  Exact expected = exact(first.found(0).factors);
  const Values of_second = second.found(0).factors;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    expected[e] += static_cast<double>(of_second[e]);
  }
  require_near(factors, expected, 1e-8, "factors");
}

TEST_CASE("router_balance: choices of all groups are tallied, and compared with their mean",
          "[kernels][router_balance]") {
  const Numbers counts = {3, 0, 1, 1, 2, 5};
  const Numbers rows = {2, 4};
  Values tally = untouched_values(3);
  Exact loads(6, -1.0);
  run([&](Stream& stream) {
    cpu::router_balance(stream, {.terms = {},
                                 .counts = counts.data(),
                                 .group_rows = rows.data(),
                                 .experts = 3,
                                 .slots = 2,
                                 .group_count = 2,
                                 .tally = tally.data(),
                                 .loads = loads.data()});
  });
  CHECK(tally == Values{4.0F, 2.0F, 6.0F});
  CHECK(loads == Exact{4.0, 4.0, 2.0, 4.0, 6.0, 4.0});
}

TEST_CASE("router_balance: hf is left out where the other layers are not known",
          "[kernels][router_balance]") {
  const std::int32_t rows = 4;
  Exact values(2, -1.0);
  Values factors = untouched_values(3);
  run([&](Stream& stream) {
    cpu::router_balance(stream, {.terms = {{.kind = BalanceKind::hf, .coeff = 1.0F}},
                                 .term_count = 1,
                                 .group_rows = &rows,
                                 .experts = 3,
                                 .slots = 2,
                                 .group_count = 1,
                                 .layers = 2,
                                 .values = values.data(),
                                 .factors = factors.data()});
  });
  CHECK(values == Exact{0.0, 0.0});
  CHECK(factors == zeros(3));
}

TEST_CASE("router_balance: a lane without rows has no value and no gradient",
          "[kernels][router_balance]") {
  for (const Balanced& t : balanced()) {
    const Numbers no_rows(at(t.group_count()), 0);
    const Numbers counts(at(t.group_count() * 5), 0);
    const Values probabilities = zeros(t.group_count() * 5);
    const double z_squares = 0.0;
    const bool of_step = t.term.scope == BalanceScope::step;
    const Exact whole(t.previous.begin(), t.previous.end());
    Balanced::Found found{.values = {-1.0, -1.0}, .factors = untouched_values(t.group_count() * 5)};
    run([&](Stream& stream) {
      cpu::router_balance(stream,
                          {.terms = {t.term},
                           .term_count = 1,
                           .counts = counts.data(),
                           .probabilities = probabilities.data(),
                           .group_rows = no_rows.data(),
                           .z_squares = &z_squares,
                           .layer_counts = counts.data(),
                           .layer_probabilities = probabilities.data(),
                           .previous = of_step || t.previous.empty() ? nullptr : t.previous.data(),
                           .whole = of_step ? whole.data() : nullptr,
                           .experts = 5,
                           .slots = 2,
                           .group_count = t.group_count(),
                           .values = found.values.data(),
                           .factors = found.factors.data(),
                           .z_factor = &found.z_factor});
    });
    CHECK(found.values == Exact{0.0, 0.0});
    CHECK(found.factors == zeros(t.group_count() * 5));
    CHECK(found.z_factor == 0.0F);
  }
}

TEST_CASE("router_balance: the range of the bias that corrects the choice",
          "[kernels][router_balance]") {
  const std::int32_t rows = 0;
  for (const Values& bias : {Values{-0.5F}, Values{0.25F, -3.0F, 0.125F}, Values{-1.0F, -2.0F}}) {
    Exact range(4, -7.0);
    BalanceParams p;
    p.group_rows = &rows;
    p.experts = std::ssize(bias);
    p.slots = p.group_count = 1;
    p.bias = bias.data();
    p.bias_range = range.data();
    run([&](Stream& stream) { cpu::router_balance(stream, p); });
    const auto [low, high] = std::ranges::minmax(bias);
    CHECK(range == Exact{low, 1.0, high, 1.0});
  }
}

TEST_CASE("router_balance: bits do not depend on the threads", "[kernels][router_balance][P1]") {
  for (Balanced t : balanced()) {
    t.sizes = {.rows = 400, .experts = 5, .slots = 2};
    require_same_bits(
        [&](int threads) {
          const Balanced::Found found = t.found(0, threads);
          return joined({found.factors, found.gradient, {found.z_factor}});
        },
        "router_balance");
  }
}

TEST_CASE("router_balance: mistakes of the caller are caught before anything runs",
          "[kernels][router_balance]") {
  const auto stream = make_inline_stream(1);
  const std::int32_t rows = 1;
  BalanceParams p{.terms = {{.kind = BalanceKind::hf, .scope = BalanceScope::sequence}},
                  .term_count = 1,
                  .group_rows = &rows,
                  .experts = 2,
                  .slots = 1,
                  .group_count = 1};
  CHECK_THROWS_WITH(cpu::router_balance(*stream, p), Catch::Contains("hf is of a lane"));
  p.terms[0] = {.scope = BalanceScope::previous_step};
  const Values two(2);
  p.counts = &rows;
  p.probabilities = two.data();
  CHECK_THROWS_WITH(cpu::router_balance(*stream, p), Catch::Contains("previous step"));
  p.terms[0] = {.scope = BalanceScope::step};
  CHECK_THROWS_WITH(cpu::router_balance(*stream, p), Catch::Contains("whole step"));
  p.terms[0] = {.kind = BalanceKind::z};
  CHECK_THROWS_AS(cpu::router_balance(*stream, p), CheckFailed);
  p.term_count = 5;
  CHECK_THROWS_WITH(cpu::router_balance(*stream, p), Catch::Contains("5 terms"));
  double range[4] = {};
  p.term_count = 0;
  p.bias_range = range;
  CHECK_THROWS_WITH(cpu::router_balance(*stream, p), Catch::Contains("no bias"));
}

}  // namespace
}  // namespace train::kernels::testing::router_balance_test
