#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::cli {

/// actortrain scale
struct ScaleOptions {
  std::string arch;                 ///< A rule of the table.
  std::vector<std::int64_t> heads;  ///< At least one.
  std::string optimizer;
  double kappa = 0.85;                 ///< Of optimizers that have one.
  std::string params = "total";        ///< "total" or "non_embedding": what tokens are counted for.
  double tokens_per_parameter = 20.0;  ///< Above 0.
  double omega = 4.0;                  ///< 0 or more.
  std::int64_t batch = 32;             ///< Sequences of a step, 1 or more.
  std::int64_t sequence_length = 2048;  ///< Tokens, 1 or more.
  std::string table;                    ///< File of rules; empty: the built-in ones.
  bool json = false;
};

}  // namespace train::cli
