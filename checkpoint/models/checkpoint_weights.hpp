#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/load/reader.hpp"
#include "checkpoint/models/export.hpp"
#include "engine/model/weight_source.hpp"

namespace train::checkpoint {

/// Weights of a checkpoint, with its adapters merged in. Arguments outlive it.
class CheckpointWeights final : public engine::WeightSource {
 public:
  /// `averages`: name prefix of the running averages to read in place of the weights that have one;
  /// empty: none.
  CheckpointWeights(const std::filesystem::path& checkpoint, const Manifest& manifest,
                    std::span<const ExportAdapter> adapters = {}, std::string averages = {});

  /// REQUIRES: all rows of a weight with an adapter. Errors: there is no average (user), those of
  /// restore().
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;
  [[nodiscard]] std::int64_t piece_end(const engine::Parameter& parameter, std::int64_t first_row,
                                       std::int64_t rows) const override;

 private:
  [[nodiscard]] std::string name_of(const engine::Parameter& parameter) const;

  const std::filesystem::path& checkpoint_;
  std::span<const ExportAdapter> adapters_;
  std::string prefix_;              ///< Prefix of averages.
  std::set<std::string> averages_;  ///< Full names of averages.
  std::unique_ptr<OpenCheckpoint> files_;
};

}  // namespace train::checkpoint
