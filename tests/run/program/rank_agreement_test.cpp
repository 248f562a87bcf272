#include "run/program/run_program.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "engine/optimizer/exact_sum.hpp"

namespace train::run {
namespace {

StepFinished step_of(std::int32_t rank, std::int64_t step, double loss, double norm = 1.0) {
  StepFinished event;
  event.step = step;
  event.rank = rank;
  event.loss = FloatBits(loss);
  event.grad_norm = FloatBits(norm);
  event.weights_digest = 1ULL << rank;
  event.tensor_digests = {1ULL << rank, ~0ULL};
  return event;
}

EvaluationFinished evaluation_of(std::int32_t rank, std::int64_t step, double cross_entropy) {
  return {.step = step,
          .rank = rank,
          .cross_entropy = FloatBits(cross_entropy),
          .accuracy = FloatBits(0.5)};
}

TEST_CASE("rank agreement: the last rank completes a step; digests add up", "[run][P1]") {
  RankAgreement agreement;
  CHECK_FALSE(agreement.hear(step_of(2, 1, 0.5), 3)->has_value());
  CHECK_FALSE(agreement.hear(step_of(0, 1, 0.5), 3)->has_value());
  const auto all = agreement.hear(step_of(1, 1, 0.5), 3);
  REQUIRE((all.ok() && all->has_value()));
  CHECK((*all)->step == 1);
  CHECK((*all)->weights_digest == 7);
  CHECK((*all)->tensor_digests == std::vector<std::uint64_t>{7, ~0ULL - 2});  // modulo 2^64
}

TEST_CASE("rank agreement: answers of a step are not taken for its evaluation", "[run][P1]") {
  const auto answers_of = [](std::int32_t rank) {
    EvaluationFinished event = evaluation_of(rank, 4, 0.0);
    event.of_choices = true;
    event.first_document = rank;  // one of each
    event.log_likelihoods = {static_cast<std::uint64_t>(rank)};
    return event;
  };
  RankAgreement agreement;
  REQUIRE(agreement.hear(evaluation_of(0, 4, 2.5), 2).ok());
  REQUIRE(agreement.hear(answers_of(0), 2).ok());  // ahead of rank 1
  const auto losses = agreement.hear(evaluation_of(1, 4, 2.5), 2);
  REQUIRE((losses.ok() && losses->has_value()));
  CHECK_FALSE((*losses)->of_choices);
  CHECK((*losses)->log_likelihoods.empty());
  const auto answers = agreement.hear(answers_of(1), 2);
  REQUIRE((answers.ok() && answers->has_value()));
  CHECK((*answers)->of_choices);
  CHECK((*answers)->log_likelihoods == std::vector<std::uint64_t>{0, 1});
}

TEST_CASE("rank agreement: ranks have digests of the same tensors", "[run][P1]") {
  RankAgreement agreement;
  CHECK(agreement.hear(step_of(0, 1, 0.5), 2).ok());
  StepFinished other = step_of(1, 1, 0.5);
  other.tensor_digests.pop_back();
  const auto all = agreement.hear(other, 2);
  REQUIRE_FALSE(all.ok());
  CHECK(all.error().message.find("digests of 2 and 1 tensors") != std::string::npos);
}

TEST_CASE("rank agreement: the optimizer's sums add up, in any order to the same bits",
          "[run][optimizer][P1]") {
  const auto summed = [](const std::vector<std::int32_t>& order) {
    RankAgreement agreement;
    constexpr double kParts[] = {1e20, 1.0, -1e20, 0x1p-60};
    std::optional<StepFinished> all;
    for (const std::int32_t rank : order) {
      StepFinished event = step_of(rank, 1, 0.5);
      std::vector<engine::ExactSum> sums(2);
      sums[0].add(kParts[rank]);
      sums[1].add(rank);
      event.optimizer_sums = engine::words_of(sums);
      all = *agreement.hear(event, order.size());
    }
    REQUIRE(all);
    return all->optimizer_sums;
  };
  const std::vector<std::uint64_t> words = summed({0, 1, 2, 3});
  const std::vector<engine::ExactSum> sums = engine::sums_of(words);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].value() == 1.0 + 0x1p-60);
  CHECK(sums[1].value() == 6.0);
  CHECK(summed({3, 1, 0, 2}) == words);

  RankAgreement agreement;
  StepFinished some = step_of(0, 1, 0.5);
  some.optimizer_sums = words;
  REQUIRE(agreement.hear(some, 2).ok());
  const auto heard = agreement.hear(step_of(1, 1, 0.5), 2);
  REQUIRE_FALSE(heard.ok());
  CHECK_THAT(heard.error().message, Catch::Contains("ranks 0 and 1"));
}

TEST_CASE("rank agreement: what steps took adds up, whoever is the slowest of each", "[run]") {
  // Two ranks, which wait for each other: each second step ends later on the other one.
  RankAgreement agreement;
  std::vector<std::int64_t> trained_ns;
  for (std::int64_t step = 1; step <= 10; ++step) {
    std::optional<StepFinished> all;
    for (const std::int32_t rank : {0, 1}) {
      StepFinished event = step_of(rank, step, 0.5);
      event.trained_ns = 100 * step - (step % 2 == rank ? 30 : 0);
      all = *agreement.hear(event, 2);
    }
    REQUIRE(all);
    trained_ns.push_back(all->trained_ns);
  }
  for (std::size_t at = 1; at < trained_ns.size(); ++at) {
    CHECK(trained_ns[at] - trained_ns[at - 1] == 100);
  }
}

TEST_CASE("rank agreement: an evaluation took as long as its slowest rank says", "[run]") {
  const std::int32_t slowest = GENERATE(0, 1, 2);
  RankAgreement agreement;
  std::optional<EvaluationFinished> all;
  for (const std::int32_t rank : {0, 1, 2}) {
    EvaluationFinished event{.step = 1, .rank = rank, .cross_entropy = {}, .accuracy = {}};
    event.elapsed_ns = rank == slowest ? 70 : 50 + rank;
    all = *agreement.hear(event, 3);
  }
  REQUIRE(all);
  CHECK(all->elapsed_ns == 70);
}

TEST_CASE("rank agreement: tokens of the ranks' texts are joined in the order of the texts",
          "[run][samples]") {
  RankAgreement agreement;
  for (int command = 0; command < 2; ++command) {
    CHECK_FALSE(agreement.hear(TokensSampled{.step = 4, .rank = 2}, 3));  // More ranks than texts.
    CHECK_FALSE(agreement.hear(
        TokensSampled{.step = 4, .rank = 1, .first_text = 2, .tokens = {7}, .elapsed_ns = 9}, 3));
    const auto all = agreement.hear(
        TokensSampled{.step = 4, .rank = 0, .first_text = 0, .tokens = {5, 6}, .elapsed_ns = 3}, 3);
    REQUIRE(all);
    CHECK(all->step == 4);
    CHECK(all->tokens == std::vector<std::int32_t>{5, 6, 7});
    CHECK(all->elapsed_ns == 9);
  }
}

TEST_CASE("rank agreement: a rank may be a step ahead", "[run]") {
  RankAgreement agreement;
  CHECK_FALSE(agreement.hear(step_of(0, 1, 0.5), 2)->has_value());
  CHECK_FALSE(agreement.hear(step_of(0, 2, 0.25), 2)->has_value());
  CHECK((*agreement.hear(step_of(1, 1, 0.5), 2))->step == 1);
  CHECK((*agreement.hear(step_of(1, 2, 0.25), 2))->step == 2);
}

TEST_CASE("rank agreement: one bit of difference names both ranks, the step and the values",
          "[run][P1]") {
  RankAgreement agreement;
  const bool in_norm = GENERATE(false, true);
  const double other = std::nextafter(1.5, 2.0);
  REQUIRE(agreement.hear(step_of(3, 9, 1.5, 1.5), 8).ok());
  const auto heard = agreement.hear(step_of(5, 9, in_norm ? 1.5 : other, in_norm ? other : 1.5), 8);
  REQUIRE_FALSE(heard.ok());
  CHECK_THAT(heard.error().message, Catch::Contains("step 9"));
  CHECK_THAT(heard.error().message,
             Catch::Contains(in_norm ? "the gradient norm of rank 3" : "the loss of rank 3"));
  CHECK_THAT(heard.error().message, Catch::Contains("of rank 5"));
  CHECK_THAT(heard.error().message,
             Catch::Contains("3ff8000000000000") && Catch::Contains("3ff8000000000001"));
}

TEST_CASE("rank agreement: a NaN agrees with itself, and 0 not with -0", "[run]") {
  RankAgreement agreement;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(agreement.hear(step_of(0, 1, nan), 2).ok());
  CHECK(agreement.hear(step_of(1, 1, nan), 2)->has_value());
  REQUIRE(agreement.hear(step_of(0, 2, 0.0), 2).ok());
  CHECK_FALSE(agreement.hear(step_of(1, 2, -0.0), 2).ok());
}

TEST_CASE("rank agreement: evaluations are compared as steps are", "[run][P1]") {
  RankAgreement agreement;
  CHECK_FALSE(agreement.hear(evaluation_of(1, 0, 4.0), 2)->has_value());
  CHECK(agreement.hear(evaluation_of(0, 0, 4.0), 2)->has_value());
  CHECK_FALSE(agreement.hear(evaluation_of(0, 2, 4.0), 2)->has_value());
  const auto heard = agreement.hear(evaluation_of(1, 2, 4.5), 2);
  REQUIRE_FALSE(heard.ok());
  CHECK_THAT(heard.error().message, Catch::Contains("the evaluation of rank 0 is 4 "));
}

TEST_CASE("rank agreement: one rank alone agrees at once", "[run]") {
  RankAgreement agreement;
  CHECK(agreement.hear(step_of(0, 1, 0.5), 1)->has_value());
  CHECK(agreement.hear(evaluation_of(0, 1, 0.5), 1)->has_value());
}

}  // namespace
}  // namespace train::run
