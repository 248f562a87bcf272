#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/lanes/directory_lanes.hpp"
#include "data/rows/row_split.hpp"
#include "data/tokens/lane_order.hpp"
#include "engine/objective/objective.hpp"

namespace train::data {

/// Rows packed by `data prepare`: documents with positions, trained targets and their weights; for
/// pairs and examples also a list of the documents.
class RowLanes final : public DirectoryLanes {
 public:
  struct Options {
    std::string directory;
    LaneOrder order;  ///< `order.sequences` is the data's.
    engine::RowKind kind = engine::RowKind::documents;
    engine::LaneColumns columns = {};
    std::int64_t steps = 0;           ///< Total steps of the run.
    std::int64_t eval_lanes = 0;      ///< Lanes per evaluation; 0: no evaluation.
    bool reference = false;           ///< True if the objective has a reference.
    bool live = false;                ///< See ReferenceRows::live.
    bool means_of_documents = false;  ///< For kind documents: each trained one counts 1.
  };

  /// `validation`: split for evaluations, if there are any.
  RowLanes(Options options, RowSplit train, std::optional<RowSplit> validation);

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  [[nodiscard]] Status read_row(const SourceRow& at, const RowColumns& columns, std::int32_t first,
                                std::span<engine::LaneSequence>& rest) const override;
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::optional<engine::RowCount> count_row(std::uint64_t row) const override;
  [[nodiscard]] std::uint64_t validation_rows() const override {
    return validation_ ? validation_->rows() : 0;
  }
  [[nodiscard]] std::int64_t documents(bool validation) const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  /// Row of a lane; nullopt: padding only.
  [[nodiscard]] std::optional<SourceRow> place(const engine::LaneWork& work,
                                               std::uint64_t row) const;
  [[nodiscard]] Status list(const SourceRow& at, std::int32_t first_row,
                            std::span<engine::LaneSequence>& rest) const;
  [[nodiscard]] const RowSplit& split_of(const SourceRow& at) const {
    return at.validation ? *validation_ : train_;
  }

  Options options_;
  RowSplit train_;
  std::optional<RowSplit> validation_;
};

/// Opens the packed rows of `config.data.dir`, named by config key `key`, for the objective.
/// `means_of_documents`: see RowLanes::Options. Errors: those of open_lanes().
[[nodiscard]] Result<std::shared_ptr<const DirectoryLanes>> open_rows(
    const configs::RunConfig& config, std::int64_t vocab_size, const char* key = "data.dir",
    bool means_of_documents = false);

}  // namespace train::data
