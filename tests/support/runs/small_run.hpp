#pragma once

#include <cstdint>

#include "configs/run_config.hpp"

namespace train::test {

/// Run of a model of a few thousand weights, on sequences of eight tokens; one sequence per lane.
inline configs::RunConfig small_run(std::int64_t vocab_size) {
  configs::RunConfig config;
  config.run.name = "run";
  config.model.arch = "enoki";
  config.model.layers = 1;
  config.model.heads = 1;
  config.model.head_dim = 8;
  config.model.embedding_dim = 8;
  config.model.mlp_hidden = 16;
  config.model.vocab_size = vocab_size;
  config.data.sequence_length = 8;
  config.batch.micro_batch = 1;
  return config;
}

}  // namespace train::test
