#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "configs/sections/parallel_section.hpp"
#include "data/choices/choice_set.hpp"
#include "data/tokens/lane_order.hpp"
#include "data/tokens/token_dataset.hpp"
#include "engine/model/model_shape.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/stream.hpp"
#include "run/program/text_sampling.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::test {

using Random = std::mt19937_64;

/// Builds [parallel] for `ranks` ranks; "hybrid": two copies if the number allows it, else one.
inline configs::ParallelSection split_over(std::int64_t ranks, const std::string& strategy,
                                           const std::string& sync = "auto") {
  configs::ParallelSection parallel;
  parallel.ranks = ranks;
  parallel.strategy = strategy;
  parallel.sync = sync;
  parallel.wrapping = {"per_block"};  // By size, such a small model would be one group.
  if (strategy == "hybrid") {
    parallel.group = ranks % 2 == 0 && ranks > 2 ? ranks / 2 : ranks;
  }
  return parallel;
}

/// Run of a few milliseconds: 2 blocks, 2 heads of 8, sequences of 16 out of 64 tokens.
struct RunSetup {
  std::int64_t steps = 4;
  std::int64_t eval_interval = 2;
  std::int64_t checkpoint_interval = 2;
  std::int64_t lanes = 4;
  std::int64_t eval_lanes = 3;
  std::int32_t lane_slots = 4;
  std::uint64_t seed = 5;
  std::int64_t bad_token_at = -1;  ///< Position in train.bin of a token outside the vocabulary.
  bool manual_streams = false;     ///< False: work runs inside enqueue().
  std::int64_t digest_interval = 0;
  std::int64_t choices_interval = 0;
  std::int64_t samples_interval = 0;  ///< Of three texts.
  std::int64_t questions = 0;  ///< With four choices, in two lanes each; if any, tokens are bytes.
  configs::ParallelSection parallel = split_over(1, "none");
  const kernels::KernelTable* kernels = &kernels::cpu_backend();  ///< Not used by the plain loop.
};

/// REQUIRES: the setup has questions.
inline std::shared_ptr<const data::ChoiceSet> questions_of(const RunSetup& setup) {
  const TempDirectory directory;
  std::string lines;
  for (std::int64_t i = 0; i < setup.questions; ++i) {
    lines += R"({"question": ")" + std::to_string(i) +
             R"(?", "choices": ["a", "b", "c", "d"], "answer": 1})" + "\n";
  }
  const auto file = directory / "questions.jsonl";
  write_bytes(file, lines);
  auto set = data::ChoiceSet::open({file.string()}, std::nullopt,
                                   {.row_length = 16, .rows_per_lane = 2, .vocab_size = 320});
  REQUIRE(set.ok());
  return std::make_shared<const data::ChoiceSet>(std::move(set).value());
}

/// Three texts; the last outgrows the context. Some tokens end a text.
inline run::TextSampling::Options sampling_of(const RunSetup& setup) {
  return {.prompts = {{1, 2, 3}, {4}, {5, 6, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
          .tokens = setup.samples_interval > 0 ? 5 : 0,
          .ends = {7, 11, 23, 42},
          .vocab = 64,
          .context = 16};
}

inline engine::RankOptions engine_options(const RunSetup& setup, std::int64_t rank = 0) {
  engine::RankOptions options;
  engine::ModelShape shape;
  shape.architecture = engine::Architecture::enoki;
  shape.layers = 2;
  shape.heads = 2;
  shape.head_dim = 8;
  shape.embedding_dim = 16;
  shape.mlp_hidden = 40;
  shape.vocab_size = setup.questions > 0 ? 320 : 64;
  options.model = shape;
  options.init.seed = setup.seed;
  options.batch.lanes = setup.lanes;
  options.batch.micro_batch = 2;
  options.seq_len = 16;
  options.total_steps = setup.steps;
  options.eval_lanes = setup.eval_lanes;
  options.scored_lanes = setup.questions > 0 ? questions_of(setup)->lanes() : 0;
  options.sampled_texts = setup.samples_interval > 0 ? 3 : 0;
  options.sampling = {.temperature = 1.0, .seed = setup.seed};
  options.lane_slots = setup.lane_slots;
  options.optimizer.lr = 1e-2;
  options.schedule.name = "constant";
  options.parallel = setup.parallel;
  options.rank = rank;
  return options;
}

/// Writes deterministic token files of uint16 below the vocabulary.
inline void write_tokens(const std::filesystem::path& directory, const RunSetup& setup) {
  Random random(setup.seed);
  const auto text = [&](std::int64_t count, std::int64_t bad) {
    std::string bytes;
    for (std::int64_t i = 0; i < count; ++i) {
      bytes.push_back(static_cast<char>(i == bad ? 64 : random() % 64));
      bytes.push_back('\0');
    }
    return bytes;
  };
  write_bytes(directory / "train.bin", text(1601, setup.bad_token_at));
  write_bytes(directory / "val.bin", text(161, -1));
}

inline data::TokenDataset open_tokens(const std::filesystem::path& directory) {
  auto dataset = data::TokenDataset::open(directory, {.sequence_length = 16, .vocab_size = 64});
  REQUIRE(dataset.ok());
  return std::move(dataset).value();
}

/// Order in which a run of `setup` reads its tokens.
inline data::LaneOrder order_of(const RunSetup& setup, const data::TokenDataset& tokens) {
  return {.seed = setup.seed,
          .sequences = tokens.train().sequences(),
          .lanes = static_cast<std::uint64_t>(setup.lanes),
          .micro_batch = 2};
}

/// Reference run on a single rank, as a plain loop over engine::WorldStep: every schedule has to
/// reproduce it at any number of ranks.
struct PlainRun {
  std::vector<engine::StepResult> steps;
  std::map<std::int64_t, engine::EvaluationResult> evaluations;  ///< By finished steps.
  std::vector<std::uint64_t> digests;                            ///< By finished steps.

  explicit PlainRun(const RunSetup& setup) {
    const TempDirectory data;
    write_tokens(data.path(), setup);
    const auto tokens = open_tokens(data.path());
    RunSetup alone = setup;
    alone.parallel = {};
    engine::WorldStep loop(kernels::cpu_backend(), engine_options(alone));
    const auto stream = kernels::make_inline_stream(1);
    const data::LaneOrder order = order_of(setup, tokens);
    const auto read = [&](const data::TokenSplit& split, std::uint64_t sequence, std::uint64_t row,
                          std::int32_t* to, std::int32_t* targets) {
      REQUIRE(split.read(sequence, {to + row * 16, 16}, {targets + row * 16, 16}).ok());
    };
    const auto evaluate = [&](std::int64_t step) {
      evaluations[step] = loop.evaluate(
          *stream, [&](std::int64_t, std::int64_t lane, std::int32_t* to, std::int32_t* targets) {
            for (std::uint64_t row = 0; row < 2; ++row) {
              const auto sequence = data::validation_sequence(static_cast<std::uint64_t>(lane), row,
                                                              2, tokens.validation().sequences());
              if (sequence) {
                read(tokens.validation(), *sequence, row, to, targets);
              } else {
                std::fill_n(to + row * 16, 16, 0);
                std::fill_n(targets + row * 16, 16, -1);
              }
            }
          });
    };
    digests.push_back(loop.digest());
    evaluate(0);
    for (std::int64_t step = 0; step < setup.steps; ++step) {
      steps.push_back(loop.run(
          *stream, step,
          [&](std::int64_t at, std::int64_t lane, std::int32_t* to, std::int32_t* targets) {
            for (std::uint64_t row = 0; row < 2; ++row) {
              const auto sequence = order.sequence(static_cast<std::uint64_t>(at),
                                                   static_cast<std::uint64_t>(lane), row);
              read(tokens.train(), sequence, row, to, targets);
            }
          }));
      digests.push_back(loop.digest());
      evaluate(step + 1);
    }
  }
};

}  // namespace train::test
