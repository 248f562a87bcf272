#include "engine/rank/exec/log_probs/sampled_tokens.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "engine/generate/text_generator.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::sampled_tokens_test {
namespace {

using Options = WorldStep::Options;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kNew = 12;

/// Of 1, 5, 11 and 30 tokens: the last is longer than the context.
std::vector<Tokens> prompts() {
  std::vector<Tokens> all;
  for (const std::int32_t length : {1, 5, 11, 30}) {
    Tokens prompt;
    for (std::int32_t i = 0; i < length; ++i) {
      prompt.push_back((7 * i * i + 3 * i + length) % 37);
    }
    all.push_back(prompt);
  }
  return all;
}

Options sampled_options(Architecture architecture) {
  Options options = testing::small_options(architecture);
  options.batch.lanes = 4;
  options.eval_lanes = 0;
  options.sampled_texts = std::ssize(prompts());
  options.sampling = {.temperature = 0.9, .seed = 11};
  return options;
}

TextTokens texts_of(const std::vector<Tokens>& texts, const Options& options) {
  TextTokens all{.vocab = options.model.vocab_size, .context = options.seq_len};
  for (const Tokens& text : texts) {
    const std::int64_t unseen = std::max<std::int64_t>(0, std::ssize(text) - options.seq_len);
    all.lengths.push_back(std::ssize(text));
    all.tokens.insert(all.tokens.end(), text.begin() + unseen, text.end());
  }
  return all;
}

/// The texts after a training step.
std::vector<Tokens> sample(const Options& options) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  world.run(*stream, 0, testing::repeating_text(options));
  std::vector<Tokens> texts = prompts();
  for (std::int64_t i = 0; i < kNew; ++i) {
    const Tokens next = world.sample(*stream, texts_of(texts, options));
    REQUIRE(next.size() == texts.size());
    for (std::size_t text = 0; text < texts.size(); ++text) {
      texts[text].push_back(next[text]);
    }
  }
  return texts;
}

/// What the plain generator makes of the same weights.
std::vector<Tokens> generate(const Options& options) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  world.run(*stream, 0, testing::repeating_text(options));
  std::vector<std::vector<float>> weights;
  std::vector<const float*> flat;
  for (const UnitParameters& unit : describe_units(options.model)) {
    weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      const auto values = testing::state_of(world.rank(0), weight_name(parameter.name));
      std::copy(values.begin(), values.end(), weights.back().begin() + parameter.offset);
    }
  }
  for (const auto& unit : weights) {
    flat.push_back(unit.data());
  }
  TextGenerator generator(kernels::cpu_backend(), options.model,
                          {.context = options.seq_len, .texts = 2}, flat);
  std::vector<Tokens> texts = prompts();
  generator.generate(*stream,
                     {.prompts = prompts(),
                      .tokens = kNew,
                      .vocab = options.model.vocab_size,
                      .sampling = options.sampling},
                     [&](const TextGenerator::NewToken& token) {
                       texts[token.text].push_back(token.token);
                       return true;
                     });
  return texts;
}

}  // namespace

TEST_CASE("sampled tokens: the texts of the generator, on any ranks that shard in any way",
          "[engine][samples][P1]") {
  for (const auto architecture : {Architecture::enoki, Architecture::dstar_qwen3}) {
    Options options = sampled_options(architecture);
    REQUIRE(options.seq_len < 30);
    const std::vector<Tokens> one = sample(options);
    CHECK(one == generate(options));
    for (const std::int64_t ranks : {2, 3, 4}) {
      for (const char* strategy : {"none", "optimizer", "full"}) {
        INFO(ranks << " ranks, " << strategy);
        options.parallel.ranks = ranks;
        options.parallel.strategy = strategy;
        CHECK(sample(options) == one);
      }
    }
  }
}

TEST_CASE("sampled tokens: with learned tokens before each text, too", "[engine][samples][P1]") {
  Options options = sampled_options(Architecture::enoki);
  const auto hymba = spec_from_config(
      R"({"model_type": "hymba", "vocab_size": 41, "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 64, "num_memory_tokens": 5, "sliding_window": 7,
          "global_attn_idx": [0], "kv_reuse_group": [[1, 2]], "mamba_d_state": 5,
          "tie_word_embeddings": true})",
      "c.json", options.seq_len);
  REQUIRE(hymba.ok());
  options.model = *hymba;
  const std::vector<Tokens> one = sample(options);
  CHECK(one == generate(options));
  options.parallel.ranks = 3;
  options.parallel.strategy = "full";
  CHECK(sample(options) == one);
}

TEST_CASE("sampled tokens: a capped head is sampled as the generator does", "[engine][samples]") {
  Options options = sampled_options(Architecture::enoki);
  options.model.logit_softcap = 2.0F;
  CHECK(sample(options) == generate(options));
  options.sampling.temperature = 0.0;
  CHECK(sample(options) == generate(options));
}

TEST_CASE("sampled tokens: a step has the same bits with and without them",
          "[engine][samples][P1]") {
  const auto digest = [](Options options, bool samples) {
    options.sampled_texts = samples ? options.sampled_texts : 0;
    const auto stream = kernels::make_inline_stream(1);
    WorldStep world(kernels::cpu_backend(), options);
    for (std::int64_t step = 0; step < 3; ++step) {
      world.run(*stream, step, testing::repeating_text(options));
      if (samples) {
        std::ignore = world.sample(*stream, texts_of(prompts(), options));
      }
    }
    return world.digest();
  };
  const Options options = sampled_options(Architecture::dstar_qwen3);
  CHECK(digest(options, true) == digest(options, false));
}

TEST_CASE("sampled tokens: a lane has whole blocks of rows, up to the context",
          "[engine][samples]") {
  const auto rows = [](std::int64_t tokens) {
    const LaneWork work{.text = {.tokens = tokens}};
    return std::pair(SampledTokens::rows_of(work, 100), SampledTokens::last_row(work, 100));
  };
  CHECK(rows(1) == std::pair<std::int64_t, std::int64_t>(32, 0));
  CHECK(rows(32) == std::pair<std::int64_t, std::int64_t>(32, 31));
  CHECK(rows(33) == std::pair<std::int64_t, std::int64_t>(64, 32));
  CHECK(rows(99) == std::pair<std::int64_t, std::int64_t>(100, 98));
  CHECK(rows(1000) == std::pair<std::int64_t, std::int64_t>(100, 99));
}

}  // namespace train::engine::sampled_tokens_test
