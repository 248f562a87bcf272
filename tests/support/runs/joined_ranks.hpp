#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/train/runtime/rank_runtime.hpp"
#include "data/lanes/choice_lanes.hpp"
#include "data/lanes/token_lanes.hpp"
#include "tests/support/runs/plain_run.hpp"

namespace train::test {

/// Opens the tokens in `directory` as lanes.
inline std::shared_ptr<const data::TokenLanes> token_lanes(
    const RunSetup& setup, const std::filesystem::path& directory,
    std::shared_ptr<const data::DstarOrder> dstar = nullptr) {
  data::TokenDataset tokens = open_tokens(directory);
  const data::LaneOrder order = order_of(setup, tokens);
  return std::make_shared<const data::TokenLanes>(std::move(tokens), order, std::move(dstar));
}

/// Makes all ranks of a run, connected within the process. `directory` holds its tokens.
inline std::vector<actors::RankContext> make_ranks(const RunSetup& setup,
                                                   const std::filesystem::path& directory,
                                                   actors::StreamKind streams, int threads) {
  std::shared_ptr<const data::LaneSource> data = token_lanes(setup, directory);
  if (setup.questions > 0) {
    data = std::make_shared<const data::ChoiceLanes>(data, questions_of(setup));
  }
  std::vector<actors::RankContext> ranks;
  for (std::int64_t rank = 0; rank < setup.parallel.ranks; ++rank) {
    ranks.push_back(std::make_shared<actors::RankRuntime>(
        std::make_unique<engine::RankEngine>(*setup.kernels, engine_options(setup, rank)), data,
        streams, threads));
  }
  for (std::size_t channel = 0; channel < engine::kChannelCount && ranks.size() > 1; ++channel) {
    auto transports = engine::make_inproc(static_cast<int>(ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank]->transports[channel] = std::move(transports[rank]);
    }
  }
  return ranks;
}

/// Rows of the tensor `name` on a rank; empty if it has none.
inline std::span<float> state_of(const engine::RankEngine& engine, const std::string& name) {
  for (const engine::StateView& view : engine.state().views()) {
    if (view.name == name) {
      return {reinterpret_cast<float*>(view.data), view.size_bytes / sizeof(float)};
    }
  }
  return {};
}

/// Weight of block 1, which is unit 2.
inline constexpr const char* kWeightOfBlock1 = "model.transformer.h.1.attn.c_attn.weight";

}  // namespace train::test
