// The CUDA twins of log-probabilities of chosen tokens, and their bits beside the loss's.
#include <limits>

#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_log_probs_test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// As those of the loss: one thread's units and several tiles of 64, 256 and 1024 threads.
constexpr std::int64_t vocabularies[] = {1, 7, 8, 9, 60, 601, 4104, 4099, 9000, 16388, 70004};

LogProbResults all_results(Side& side, std::int64_t rows, std::int64_t top_k) {
  LogProbResults results{.top_k = top_k};
  for (float** to : {&results.log_probs, &results.lse, &results.entropy, &results.log_square_sum,
                     &results.top_lse, &results.top_mean}) {
    *to = side.result(untouched_values(rows));
  }
  results.argmax = side.result(std::vector<std::int32_t>(at(rows), -7));
  return results;
}

struct LogitCase {
  Values logits;  ///< Of each row.
  std::vector<std::int32_t> targets;
  std::int64_t top_k = 100;
  float logit_scale = 1.0F, softcap = 0.0F;
  std::int64_t first = 0;  ///< Where the logits begin: 1 is not aligned.

  [[nodiscard]] std::int64_t vocab() const { return std::ssize(logits) / std::ssize(targets); }
};

void call_logits(Side& side, const LogitCase& t) {
  Values memory(at(t.first), nan);
  memory.insert(memory.end(), t.logits.begin(), t.logits.end());
  LogitsLogProbsParams params{.logits = side.put(memory) + t.first,
                              .targets = side.put(t.targets),
                              .rows = std::ssize(t.targets),
                              .vocab = t.vocab(),
                              .logit_scale = t.logit_scale,
                              .softcap = t.softcap};
  params.results = all_results(side, params.rows, t.top_k);
  side.kernels.logits_log_probs(side.stream(), params);
}

void compare_logits(const std::string& what, const LogitCase& t) {
  compare_twins("logits_log_probs", what, transcendental + sum_of(600),
                [&](Side& side) { call_logits(side, t); });
}

LogitCase random_logits(std::int64_t vocab) {
  const auto last = static_cast<std::int32_t>(vocab - 1);
  return {.logits = random_values(4 * vocab, 7, 4.0F), .targets = {last, -1, 0, last / 2}};
}

TEST_CASE("cuda twins: log-probabilities of every number of columns", "[kernels][cuda][.gpu]") {
  for (const std::int64_t vocab : vocabularies) {
    LogitCase t = random_logits(vocab);
    compare_logits(fmt::format("{} columns", vocab), t);
    t.top_k = vocab / 2 + 1;
    t.first = 1;
    t.logit_scale = 0.5F;
    compare_logits(fmt::format("{} columns, scale", vocab), t);
    t.logit_scale = 1.5F;
    t.softcap = 3.0F;
    compare_logits(fmt::format("{} columns, cap", vocab), t);
  }
}

TEST_CASE("cuda twins: log-probabilities of ties, large logits and such as are not finite",
          "[kernels][cuda][.gpu]") {
  constexpr std::int64_t vocab = 601;
  const auto compare_row = [](const std::string& what, const Values& logits) {
    for (const std::int64_t top_k : {1, 5, 600}) {
      compare_logits(fmt::format("{}, top {}", what, top_k),
                     {.logits = logits, .targets = {3}, .top_k = top_k});
    }
  };
  compare_row("all equal", Values(at(vocab), 0.5F));
  Values zeros_of_both_signs(at(vocab), 0.0F);
  std::fill_n(zeros_of_both_signs.begin(), 300, -0.0F);
  compare_row("both zeros", zeros_of_both_signs);
  Values ties = random_values(vocab, 5);
  std::fill_n(ties.begin() + 100, 200, 0.25F);
  compare_row("ties", ties);
  compare_row("up to 1e3", random_values(vocab, 6, 1e3F));
  compare_row("all -1e6", Values(at(vocab), -1e6F));
  compare_row("all -Inf", Values(at(vocab), -infinity));
  Values impossible(at(vocab), -infinity);
  std::copy_n(random_values(20, 8).begin(), 20, impossible.begin() + 400);
  compare_row("twenty above -Inf", impossible);
  for (const float poison : {nan, infinity}) {
    Values logits = random_values(vocab, 9);
    logits[300] = poison;
    compare_row(fmt::format("{}", poison), logits);
  }
}

struct HeadCase {
  std::int64_t rows = 5, cols = 8, vocab = 601;
  std::int64_t chunk_rows = 3;
  float logit_scale = 1.0F, softcap = 0.0F;
  std::vector<std::int32_t> targets = {600, 0, -1, 300, 200};
};

/// What both passes over the head have in common.
template <class Params>
Params head_params(Side& side, const HeadCase& t) {
  Params params{};
  params.rows = t.rows;
  params.cols = t.cols;
  params.vocab = t.vocab;
  params.chunk_rows = t.chunk_rows;
  params.logit_scale = t.logit_scale;
  params.softcap = t.softcap;
  params.dtype = side.dtype;
  params.x = side.elements(random_values(t.rows * t.cols, 1));
  params.weight = side.elements(random_values(t.vocab * t.cols, 2, 3.0F));
  params.targets = side.put(t.targets);
  params.logits = side.put(zeros(t.chunk_rows * t.vocab));
  return params;
}

TEST_CASE("cuda twins: log-probabilities from the head's input", "[kernels][cuda][.gpu]") {
  for (const float softcap : {0.0F, 2.0F}) {
    for (const std::int64_t vocab : {std::int64_t{601}, std::int64_t{4104}}) {
      const HeadCase t{.vocab = vocab, .logit_scale = 0.75F, .softcap = softcap};
      const double tolerance = transcendental + sum_of(t.cols + 600);
      compare_twins("token_log_probs", fmt::format("{} columns, cap {}", vocab, softcap), tolerance,
                    tolerance, [&](Side& side) {
                      auto params = head_params<TokenLogProbsParams>(side, t);
                      params.results = all_results(side, t.rows, 10);
                      side.kernels.token_log_probs(side.stream(), params);
                    });
    }
  }
  compare_twins("token_log_probs", "no rows", same_bits, [](Side& side) {
    auto params = head_params<TokenLogProbsParams>(side, {.rows = 0, .targets = {}});
    side.kernels.token_log_probs(side.stream(), params);
  });
}

TEST_CASE("cuda twins: a log-probability has the bits of the loss's cross-entropy",
          "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  for (const float softcap : {0.0F, 2.0F}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const HeadCase t{.softcap = softcap};
      Side side = cuda_side();
      side.dtype = dtype;
      auto pass = head_params<TokenLogProbsParams>(side, t);
      pass.results.log_probs = side.result(untouched_values(t.rows));
      side.kernels.token_log_probs(side.stream(), pass);
      auto loss = head_params<HeadLossParams>(side, t);
      loss.sums = side.put(std::vector<LossSums>(1));
      loss.row_terms = side.result(Exact(at(t.rows * 4)));
      loss.dx = side.elements(zeros(t.rows * t.cols));
      loss.dweight = side.put(zeros(t.vocab * t.cols));
      side.kernels.head_loss(side.stream(), loss);
      const Exact all = side.results();
      for (std::int64_t row = 0; row < t.rows; ++row) {
        INFO("row " << row << ", cap " << softcap);
        CHECK(all[at(row)] == -static_cast<double>(static_cast<float>(all[at(t.rows + 4 * row)])));
      }
    }
  }
}

TEST_CASE("cuda twins: an unknown token has no log-probability", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const std::int32_t target : {-2, 601}) {
    Side side = cuda_side();
    HeadCase t;
    t.targets[3] = target;
    auto params = head_params<TokenLogProbsParams>(side, t);
    params.results = all_results(side, t.rows, 10);
    side.kernels.token_log_probs(side.stream(), params);
    CHECK_THROWS_WITH(side.results(), Catch::Contains("token_log_probs") &&
                                          Catch::Contains(fmt::format("{}", target)));
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_log_probs_test
