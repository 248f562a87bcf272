#include "run/program/text_sampling.hpp"

#include <catch2/catch.hpp>

namespace train::run::text_sampling_test {
namespace {

using Tokens = TextSampling::Tokens;

TextSampling::Options three_texts() {
  return {
      .prompts = {{1, 2}, {3}, {4, 5, 6, 7}}, .tokens = 3, .ends = {0}, .vocab = 50, .context = 4};
}

TEST_CASE("text sampling: each text goes on until a token ends it, or it is long enough",
          "[run][samples]") {
  TextSampling sampling(three_texts());
  CHECK(sampling.texts().lengths == std::vector<std::int64_t>{2, 1, 4});
  CHECK(sampling.texts().tokens == Tokens{1, 2, 3, 4, 5, 6, 7});
  CHECK(sampling.texts().vocab == 50);
  sampling.add({10, 0, 11});
  // The second is over: its first token stands for it. The third is longer than the context.
  CHECK(sampling.texts().lengths == std::vector<std::int64_t>{3, 1, 5});
  CHECK(sampling.texts().tokens == Tokens{1, 2, 10, 3, 5, 6, 7, 11});
  sampling.add({12, 13, 14});
  CHECK_FALSE(sampling.over());
  sampling.add({15, 16, 17});
  CHECK(sampling.over());
  CHECK(sampling.sampled() == std::vector<Tokens>{{10, 12, 15}, {}, {11, 14, 17}});
  sampling.begin();
  CHECK_FALSE(sampling.over());
  CHECK(sampling.texts().tokens == Tokens{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("text lanes: a lane holds the last tokens of its text, then padding", "[run][samples]") {
  TextSampling sampling(three_texts());
  sampling.add({10, 0, 11});
  engine::TextLanes lanes;
  lanes.take(sampling.texts());
  std::vector<std::int32_t> tokens(6, 99), targets(6, 99);
  const engine::LaneSlot slot{.tokens = tokens, .targets = targets, .positions = {}, .weights = {}};
  lanes.read(2, slot);
  CHECK(tokens == std::vector<std::int32_t>{5, 6, 7, 11, 0, 0});
  CHECK(targets == std::vector<std::int32_t>(6, -1));
  CHECK(lanes.of(2).tokens == 5);
  CHECK(lanes.of(1).tokens == 1);
  lanes.read(1, slot);
  CHECK(tokens == std::vector<std::int32_t>{3, 0, 0, 0, 0, 0});
}

}  // namespace
}  // namespace train::run::text_sampling_test
