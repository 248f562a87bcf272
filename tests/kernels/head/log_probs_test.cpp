#include "kernels/head/log_probs.hpp"
#include "kernels/gemm/matmul.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/check.hpp"
#include "tests/kernels/head_call.hpp"

namespace train::kernels::testing::log_probs_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Case {
  std::int64_t rows, cols, vocab, chunk_rows;
  std::int64_t top_k = 3;
  float logit_scale = 1.0F, softcap = 0.0F;

  [[nodiscard]] Values x() const { return random_values(rows * cols, 1); }
  [[nodiscard]] Values weight() const { return random_values(vocab * cols, 2, 2.0F); }
  [[nodiscard]] std::vector<std::int32_t> targets() const { return drawn_targets(rows, vocab); }
  [[nodiscard]] std::string name() const {
    return "log_probs " + std::to_string(rows) + " x " + std::to_string(cols) + " -> " +
           std::to_string(vocab) + " by " + std::to_string(chunk_rows) + ", scale " +
           std::to_string(logit_scale) + ", cap " + std::to_string(softcap);
  }
};

/// Memory for everything that may be asked for.
struct Results {
  explicit Results(std::int64_t rows)
      : log_probs(untouched_values(rows)),
        lse(log_probs),
        entropy(log_probs),
        log_square_sum(log_probs),
        top_lse(log_probs),
        top_mean(log_probs),
        argmax(at(rows), -7) {}

  Values log_probs, lse, entropy, log_square_sum, top_lse, top_mean;
  std::vector<std::int32_t> argmax;

  [[nodiscard]] LogProbResults asked(std::int64_t top_k) {
    return {.log_probs = log_probs.data(),
            .lse = lse.data(),
            .argmax = argmax.data(),
            .entropy = entropy.data(),
            .log_square_sum = log_square_sum.data(),
            .top_lse = top_lse.data(),
            .top_mean = top_mean.data(),
            .top_k = top_k};
  }
  [[nodiscard]] Values all() const {
    return joined({log_probs, lse, entropy, log_square_sum, top_lse, top_mean,
                   Values(argmax.begin(), argmax.end())});
  }
};

/// `asked` of every row of the case.
void compute_to(const LogProbResults& asked, const Case& t, int threads = 2) {
  const Values x = t.x();
  const Values weight = t.weight();
  const auto targets = t.targets();
  Values logits = zeros(t.chunk_rows * t.vocab);
  run(
      [&](Stream& stream) {
        cpu::token_log_probs(stream, {.x = x.data(),
                                      .weight = weight.data(),
                                      .targets = targets.data(),
                                      .results = asked,
                                      .logits = logits.data(),
                                      .rows = t.rows,
                                      .cols = t.cols,
                                      .vocab = t.vocab,
                                      .chunk_rows = t.chunk_rows,
                                      .logit_scale = t.logit_scale,
                                      .softcap = t.softcap});
      },
      threads);
}

Results compute(const Case& t, int threads = 2) {
  Results results(t.rows);
  compute_to(results.asked(t.top_k), t, threads);
  return results;
}

/// All of it in double, by the definitions.
struct Reference {
  Exact log_probs, lse, entropy, log_square_sum, top_lse, top_mean;
  std::vector<std::int32_t> argmax;
};

Reference reference(const Case& t) {
  Reference r;
  const auto targets = t.targets();
  const Exact x = exact(t.x());
  const Exact weight = exact(t.weight());
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const std::int32_t target = targets[at(row)];
    if (target < 0) {
      for (Exact* values :
           {&r.log_probs, &r.lse, &r.entropy, &r.log_square_sum, &r.top_lse, &r.top_mean}) {
        values->push_back(0.0);
      }
      r.argmax.push_back(-1);
      continue;
    }
    Exact logits = values_of(logits_of(t, x, weight, row));
    const double lse = log_sum_exp(logits);
    double entropy = 0.0;
    double squares = 0.0;
    for (const double logit : logits) {
      const double p = std::exp(logit - lse);
      entropy -= p * (logit - lse);
      squares += p * p;
    }
    r.log_probs.push_back(logits[at(target)] - lse);
    r.lse.push_back(lse);
    r.entropy.push_back(entropy);
    r.log_square_sum.push_back(std::log(squares));
    r.argmax.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    std::sort(logits.begin(), logits.end(), std::greater<>());
    logits.resize(at(std::min(t.top_k, t.vocab)));
    r.top_lse.push_back(log_sum_exp(logits));
    r.top_mean.push_back(std::accumulate(logits.begin(), logits.end(), 0.0) /
                         static_cast<double>(logits.size()));
  }
  return r;
}

constexpr Case cases[] = {
    {.rows = 0, .cols = 3, .vocab = 7, .chunk_rows = 4},
    {.rows = 1, .cols = 1, .vocab = 1, .chunk_rows = 1, .top_k = 100},
    {.rows = 65, .cols = 5, .vocab = 1, .chunk_rows = 64},
    {.rows = 65, .cols = 7, .vocab = 7, .chunk_rows = 2, .top_k = 7},
    {.rows = 65, .cols = 33, .vocab = 1000, .chunk_rows = 48, .top_k = 100},
    {.rows = 65, .cols = 33, .vocab = 1000, .chunk_rows = 65, .logit_scale = 0.3F},
    {.rows = 65, .cols = 33, .vocab = 1000, .chunk_rows = 7, .top_k = 100, .softcap = 5.0F},
    {.rows = 12,
     .cols = 16,
     .vocab = 9001,
     .chunk_rows = 100,
     .top_k = 5000,
     .logit_scale = 1.5F,
     .softcap = 8.0F}};

TEST_CASE("log_probs: all that may be asked for agrees with a double reference",
          "[kernels][log_probs]") {
  for (const Case& t : cases) {
    const Results r = compute(t);
    const Reference expected = reference(t);
    // Logits of size up to 15 from fp32 products, and sums of exponentials of them.
    require_near(r.log_probs, expected.log_probs, 3e-6, t.name() + " log_probs");
    require_near(r.lse, expected.lse, 3e-6, t.name() + " lse");
    require_near(r.entropy, expected.entropy, 1e-5, t.name() + " entropy");
    require_near(r.log_square_sum, expected.log_square_sum, 6e-6, t.name() + " log_square_sum");
    require_near(r.top_lse, expected.top_lse, 3e-6, t.name() + " top_lse");
    require_near(r.top_mean, expected.top_mean, 3e-6, t.name() + " top_mean");
    INFO(t.name());
    REQUIRE(r.argmax == expected.argmax);
  }
}

/// The cross-entropy of each row as head_loss has it, 0 of rows without a target.
Exact cross_entropies(const Case& t, std::int64_t chunk_rows) {
  HeadLossCall call{.x = t.x(),
                    .weight = t.weight(),
                    .targets = t.targets(),
                    .cols = t.cols,
                    .chunk_rows = chunk_rows,
                    .options = {.logit_scale = t.logit_scale, .softcap = t.softcap}};
  call.run();
  Exact result(at(t.rows));
  for (std::int64_t row = 0; row < t.rows; ++row) {
    result[at(row)] = call.row_terms[at(row * 4)];
  }
  return result;
}

TEST_CASE("log_probs: they are head_loss's cross-entropies, to the bit, whatever the chunks",
          "[kernels][log_probs]") {
  for (const Case& t : cases) {
    const Results r = compute(t);
    for (const std::int64_t chunk_rows : {std::int64_t{1}, std::int64_t{5}, std::int64_t{64}}) {
      const Exact expected = cross_entropies(t, chunk_rows);
      for (std::int64_t row = 0; row < t.rows; ++row) {
        INFO(t.name() << " row " << row << " of chunks of " << chunk_rows);
        REQUIRE(r.log_probs[at(row)] == -static_cast<float>(expected[at(row)]));
      }
    }
  }
}

TEST_CASE("log_probs: a row's bits depend neither on its place nor on the other rows",
          "[kernels][log_probs]") {
  for (const Case& t : cases) {
    const Results together = compute(t);
    const Values x = t.x();
    const Values weight = t.weight();
    const auto targets = t.targets();
    for (std::int64_t row = 0; row < t.rows; ++row) {
      Results alone(1);
      Values logits = zeros(t.vocab);
      run([&](Stream& stream) {
        const MatmulParams product{.a = x.data() + row * t.cols,
                                   .b = weight.data(),
                                   .c = logits.data(),
                                   .m = 1,
                                   .n = t.vocab,
                                   .k = t.cols,
                                   .lda = t.cols,
                                   .ldb = t.cols,
                                   .ldc = t.vocab,
                                   .transpose_b = true};
        cpu::matmul(stream, product);
        cpu::logits_log_probs(stream, {.logits = logits.data(),
                                       .targets = targets.data() + row,
                                       .results = alone.asked(t.top_k),
                                       .rows = 1,
                                       .vocab = t.vocab,
                                       .logit_scale = t.logit_scale,
                                       .softcap = t.softcap});
      });
      INFO(t.name() << " row " << row);
      const Values all = together.all();
      Values of_row;
      for (std::size_t i = at(row); i < all.size(); i += at(t.rows)) {
        of_row.push_back(all[i]);
      }
      REQUIRE(alone.all() == of_row);
    }
  }
}

TEST_CASE("log_probs: the bits depend neither on the threads nor on what is asked for",
          "[kernels][log_probs]") {
  for (const Case& t : cases) {
    require_same_bits([&](int threads) { return compute(t, threads).all(); }, t.name());
    Values lse = untouched_values(t.rows);
    compute_to({.lse = lse.data()}, t);
    INFO(t.name());
    REQUIRE(lse == compute(t).lse);
  }
}

/// Of one row, with no target where it is -1 and no targets at all where it is -2.
Results of_logits(const Values& logits, std::int32_t target, std::int64_t top_k = 2) {
  Results results(1);
  LogProbResults asked = results.asked(top_k);
  asked.log_probs = target == -2 ? nullptr : asked.log_probs;
  const Values before = logits;
  run([&](Stream& stream) {
    cpu::logits_log_probs(stream, {.logits = logits.data(),
                                   .targets = target == -2 ? nullptr : &target,
                                   .results = asked,
                                   .rows = 1,
                                   .vocab = std::ssize(logits)});
  });
  REQUIRE(std::memcmp(before.data(), logits.data(), logits.size() * sizeof(float)) == 0);
  return results;
}

TEST_CASE("log_probs: of equal logits the first one is the largest", "[kernels][log_probs]") {
  for (const std::int64_t begin : {0, 3, 15, 16, 17, 99}) {
    Values logits(100, -1.0F);
    std::fill(logits.begin() + begin, logits.end(), 2.0F);
    REQUIRE(of_logits(logits, 5).argmax[0] == begin);
  }
}

TEST_CASE("log_probs: without targets all rows are computed, with -1 a row is left out",
          "[kernels][log_probs]") {
  const Values logits = {0.0F, 1.0F, 3.0F};
  const Results without = of_logits(logits, -2);
  REQUIRE(without.log_probs[0] == untouched);
  REQUIRE(without.lse == of_logits(logits, 1).lse);
  REQUIRE(without.argmax[0] == 2);
  const Results left_out = of_logits(logits, -1);
  REQUIRE(left_out.all() == Values{0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, -1.0F});
}

TEST_CASE("log_probs: large logits do not overflow, tokens may be impossible, NaN is not lost",
          "[kernels][log_probs]") {
  const Results large = of_logits({1000.0F, 2000.0F, -2000.0F}, 0);
  REQUIRE(large.log_probs[0] == -1000.0F);
  REQUIRE(large.entropy[0] == 0.0F);
  const Results masked = of_logits({-infinity, 1.0F, -infinity, 1.0F}, 3, 3);
  REQUIRE(masked.log_probs[0] == Approx(-std::log(2.0)));
  REQUIRE(masked.entropy[0] == Approx(std::log(2.0)));
  REQUIRE(masked.log_square_sum[0] == Approx(-std::log(2.0)));
  REQUIRE(masked.argmax[0] == 1);
  REQUIRE(masked.top_lse[0] == masked.lse[0]);
  REQUIRE(of_logits({-infinity, 1.0F}, 0).log_probs[0] == -infinity);
  for (const float poison : {nan, infinity}) {
    for (std::size_t where = 0; where < 40; ++where) {
      Values logits(40, 0.5F);
      logits[where] = poison;
      const Results r = of_logits(logits, 3);
      const Values all = r.all();
      REQUIRE(std::all_of(all.begin(), all.end() - 1, [](float v) { return std::isnan(v); }));
      REQUIRE(r.argmax[0] == -1);
    }
  }
  REQUIRE(std::isnan(of_logits(Values(5, -infinity), 0).log_probs[0]));
}

TEST_CASE("log_probs: a wrong call is refused", "[kernels][log_probs]") {
  const Values logits = {1.0F, 2.0F};
  REQUIRE_THROWS_WITH(of_logits(logits, 2), Catch::Contains("target 2 of row 0"));
  REQUIRE_THROWS_WITH(of_logits(logits, 0, 0), Catch::Contains("top_k=0"));
  const LogitsLogProbsParams valid{.logits = logits.data(), .rows = 1, .vocab = 2};
  REQUIRE_NOTHROW(check_params(valid));
  for (const auto& spoil : std::initializer_list<void (*)(LogitsLogProbsParams&)>{
           [](LogitsLogProbsParams& p) { p.logit_scale = 0.0F; },
           [](LogitsLogProbsParams& p) { p.softcap = -1.0F; },
           [](LogitsLogProbsParams& p) { p.vocab = 0; },
           [](LogitsLogProbsParams& p) { p.logits = nullptr; }}) {
    LogitsLogProbsParams wrong = valid;
    spoil(wrong);
    REQUIRE_THROWS_AS(check_params(wrong), CheckFailed);
  }
}

}  // namespace
}  // namespace train::kernels::testing::log_probs_test
