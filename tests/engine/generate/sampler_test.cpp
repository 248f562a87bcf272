#include "engine/generate/text_generator.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace train::engine::sampler_test {
namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 2.0F, -1.0F};

std::vector<double> frequencies(const std::vector<float>& logits, const SamplingOptions& options,
                                std::int64_t draws) {
  std::vector<double> share(logits.size(), 0.0);
  for (std::int64_t i = 0; i < draws; ++i) {
    const auto vocab = static_cast<std::int64_t>(logits.size());
    share[static_cast<std::size_t>(sample_token(logits, vocab, options, i))] +=
        1.0 / static_cast<double>(draws);
  }
  return share;
}

}  // namespace

TEST_CASE("sampler: temperature 0 takes the most likely, the first of equals",
          "[engine][sampler]") {
  for (std::int64_t position = 0; position < 50; ++position) {
    CHECK(sample_token(kLogits, 5, {.temperature = 0.0}, position) == 1);
  }
}

TEST_CASE("sampler: the most likely is found wherever it stands, and NaN is the least likely",
          "[engine][sampler]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto most_likely = [](const std::vector<float>& logits) {
    return sample_token(logits, static_cast<std::int64_t>(logits.size()), {.temperature = 0.0}, 0);
  };
  for (const std::size_t count : {1U, 15U, 16U, 17U, 53U}) {
    for (std::size_t best = 0; best < count; ++best) {
      CAPTURE(count, best);
      std::vector<float> logits(count, -3.0F);
      logits[count / 2] = nan;
      logits[best] = -2.0F;
      CHECK(most_likely(logits) == static_cast<std::int32_t>(best));
      logits.back() = logits[best];
      CHECK(most_likely(logits) == static_cast<std::int32_t>(best));
      logits[best] = infinity;
      CHECK(most_likely(logits) == static_cast<std::int32_t>(best));
    }
    CHECK(most_likely(std::vector<float>(count, nan)) == 0);
    CHECK(most_likely(std::vector<float>(count, -infinity)) == 0);
  }
}

TEST_CASE("sampler: one candidate is the most likely", "[engine][sampler]") {
  for (std::int64_t position = 0; position < 50; ++position) {
    CHECK(sample_token(kLogits, 5, {.temperature = 1.5, .top_k = 1}, position) == 1);
    CHECK(sample_token(kLogits, 5, {.temperature = 1.5, .top_p = 1e-9}, position) == 1);
  }
}

TEST_CASE("sampler: frequencies follow the softmax", "[engine][sampler]") {
  const double temperature = GENERATE(0.7, 1.0, 2.0);
  const auto share = frequencies(kLogits, {.temperature = temperature, .seed = 4}, 40000);
  double total = 0.0;
  for (const float logit : kLogits) {
    total += std::exp(static_cast<double>(logit) / temperature);
  }
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    CHECK(share[i] ==
          Approx(std::exp(static_cast<double>(kLogits[i]) / temperature) / total).margin(0.012));
  }
}

TEST_CASE("sampler: top_k and top_p keep the likeliest tokens", "[engine][sampler]") {
  const auto top_2 = frequencies(kLogits, {.temperature = 1.0, .top_k = 2}, 4000);
  CHECK(top_2[1] + top_2[3] == Approx(1.0));
  CHECK(top_2[1] == Approx(0.5).margin(0.04));
  // Probabilities 0.39 0.39 0.14 0.05 0.02: three tokens are the smallest set with 0.85.
  const auto top_p = frequencies(kLogits, {.temperature = 1.0, .top_p = 0.85}, 4000);
  CHECK(top_p[1] + top_p[3] + top_p[2] == Approx(1.0));
  CHECK(top_p[2] > 0.05);
}

TEST_CASE("sampler: a set that has top_p exactly is enough", "[engine][sampler]") {
  const auto share = frequencies({1.0F, 1.0F, 1.0F, 1.0F}, {.temperature = 1.0, .top_p = 0.5}, 400);
  CHECK(share[0] > 0.0);
  CHECK(share[1] > 0.0);
  CHECK(share[2] == 0.0);
  CHECK(share[3] == 0.0);
}

TEST_CASE("sampler: is a pure function of seed and position", "[engine][sampler]") {
  const std::vector<float> flat(64, 0.0F);
  std::set<std::int32_t> by_position;
  std::set<std::int32_t> by_seed;
  for (std::int64_t i = 0; i < 32; ++i) {
    const SamplingOptions options{.temperature = 1.0, .seed = 1};
    CHECK(sample_token(flat, 64, options, i) == sample_token(flat, 64, options, i));
    by_position.insert(sample_token(flat, 64, options, i));
    by_seed.insert(
        sample_token(flat, 64, {.temperature = 1.0, .seed = static_cast<std::uint64_t>(i)}, 0));
  }
  CHECK(by_position.size() > 15);
  CHECK(by_seed.size() > 15);
}

TEST_CASE("sampler: padding of the vocabulary and NaN are never chosen", "[engine][sampler]") {
  std::vector<float> logits = {0.0F, std::numeric_limits<float>::quiet_NaN(), 0.5F, 90.0F};
  for (std::int64_t position = 0; position < 200; ++position) {
    const std::int32_t token = sample_token(logits, 3, {.temperature = 1.0}, position);
    CHECK((token == 0 || token == 2));
  }
  CHECK(sample_token(logits, 3, {.temperature = 0.0}, 0) == 2);
}

}  // namespace train::engine::sampler_test
