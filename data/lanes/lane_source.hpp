#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/choices/choice_set.hpp"
#include "data/rows/row_split.hpp"
#include "data/tokens/dstar_order.hpp"
#include "data/tokens/lane_order.hpp"
#include "data/tokens/token_dataset.hpp"
#include "engine/command.hpp"
#include "engine/lanes/lane_slot.hpp"
#include "engine/objective/objective.hpp"

namespace train::data {

/// Rows whose documents the reference model scores: the rows that training reads, in its order,
/// lane by lane as in its steps, then the rows that evaluations read.
struct ReferenceRows {
  std::int64_t training_rows = 0;
  std::int64_t validation_rows = 0;
  std::int64_t training_commands = 0;  ///< Commands of engine::kReference for training,
  std::int64_t commands = 0;           ///< and in total.
  std::int64_t documents = 0;          ///< Documents of both splits, read or not.
  bool live = false;                   ///< Scored in every step, by its own command.
  std::int64_t lane_sequences = 0;     ///< Maximum number of documents per lane.
  /// True for steps of several passes, which compare the model with the run's initial model
  /// (Compared): of the fields above only `live` and one of `commands` are then set.
  bool of_passes = false;
  /// Training rows of each source of a mixture, whose first ones are covered; else empty.
  std::string of_sources = {};
};

/// Data of a run, as lanes: the tokens of each lane of a step, and the counts of a step. A pure
/// function of files, configuration and step: never of a rank or of history.
///
/// Threading: immutable; all calls from any thread.
class LaneSource {
 public:
  LaneSource() = default;
  virtual ~LaneSource() = default;
  LaneSource(const LaneSource&) = delete;
  LaneSource& operator=(const LaneSource&) = delete;

  /// Fills a slot of the run's objective with the lane. Blocking (disk).
  [[nodiscard]] virtual Status read(const engine::LaneWork& work,
                                    const engine::LaneSlot& slot) const = 0;
  /// Row counts of training step `step` (from 0), all lanes together; read from the row index
  /// alone. Nullopt: each position is a token with a target of weight 1.
  [[nodiscard]] virtual std::optional<engine::RowCount> count(std::int64_t step) const = 0;
  /// Row counts of one pass, if a step has several.
  [[nodiscard]] virtual std::optional<engine::RowCount> count_pass(std::int64_t step,
                                                                   std::size_t /*pass*/) const {
    return count(step);
  }
  /// Rows of the training split.
  [[nodiscard]] virtual std::uint64_t training_rows() const = 0;
  /// Rows with stored reference log-probabilities; empty if the objective has no reference.
  [[nodiscard]] virtual ReferenceRows reference_rows() const { return {}; }
  /// Bytes of text per validation token, for bits per byte; nullopt if the data has no such figure.
  [[nodiscard]] virtual std::optional<double> bytes_per_token() const = 0;
  /// Names of the sources of a mixture (data.sources), each directory once; empty: there is none.
  [[nodiscard]] virtual std::vector<std::string> source_names() const { return {}; }
  /// Rows that the first `steps` steps read of source `source`, and rows that it has.
  [[nodiscard]] virtual std::uint64_t source_rows_read(std::size_t /*source*/,
                                                       std::int64_t /*steps*/) const {
    return 0;
  }
  [[nodiscard]] virtual std::uint64_t source_rows(std::size_t /*source*/) const { return 0; }
  /// Questions for the lanes of LaneRows::questions; may be null.
  [[nodiscard]] virtual const ChoiceSet* choices() const { return nullptr; }
  /// Fingerprint of the data. Blocking (disk).
  [[nodiscard]] virtual Result<std::string> fingerprint() const = 0;

  /// ReportOptions::rows and RankOptions::step_weight of this data; the functions keep it open.
  [[nodiscard]] static std::function<engine::RowCount(std::int64_t)> row_count(
      const std::shared_ptr<const LaneSource>& data);
  [[nodiscard]] static std::function<double(std::int64_t, std::size_t)> step_weight(
      const std::shared_ptr<const LaneSource>& data);
};

/// Row of one directory's split.
struct SourceRow {
  bool validation = false;
  std::uint64_t row = 0;
  std::int64_t first_document = 0;  ///< Index of the split's first document, for LaneSequence.
};

/// Lanes of one directory, whose rows a mixture reads one by one.
class DirectoryLanes : public LaneSource {
 public:
  /// Fills `columns` with a row, and lists its documents at the beginning of `rest`, which becomes
  /// what is left; `first`: position of the row in its lane. Blocking (disk).
  [[nodiscard]] virtual Status read_row(const SourceRow& at, const RowColumns& columns,
                                        std::int32_t first,
                                        std::span<engine::LaneSequence>& rest) const = 0;
  /// As count(), of one training row.
  [[nodiscard]] virtual std::optional<engine::RowCount> count_row(std::uint64_t row) const = 0;
  /// Rows of the validation split; 0: it is not open.
  [[nodiscard]] virtual std::uint64_t validation_rows() const = 0;
  /// Documents of a split; 0 in token files.
  [[nodiscard]] virtual std::int64_t documents(bool validation) const = 0;
};

/// Columns of row `row` of a lane of `rows` rows; empty where the lane has no such column.
/// `prompt_targets`: see RowColumns.
[[nodiscard]] RowColumns columns_of_row(const engine::LaneSlot& slot, std::uint64_t row,
                                        std::uint64_t rows, bool prompt_targets = false);
/// A row of padding alone.
void fill_padding(const RowColumns& columns);

/// Lanes of token files: every token has a target.
class TokenLanes final : public DirectoryLanes {
 public:
  /// `order.sequences` is the data's. `dstar`: order of training, may be null: then `order`.
  TokenLanes(TokenDataset dataset, const LaneOrder& order,
             std::shared_ptr<const DstarOrder> dstar = nullptr);

  [[nodiscard]] const TokenDataset& dataset() const { return dataset_; }
  [[nodiscard]] const LaneOrder& order() const { return order_; }
  /// Reads row `row` of a training lane, in the run's order. Blocking (disk).
  [[nodiscard]] Status read_training_row(std::int64_t step, std::int64_t lane, std::uint64_t row,
                                         std::span<std::int32_t> tokens,
                                         std::span<std::int32_t> targets) const;

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  [[nodiscard]] Status read_row(const SourceRow& at, const RowColumns& columns, std::int32_t first,
                                std::span<engine::LaneSequence>& rest) const override;
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::optional<engine::RowCount> count_row(std::uint64_t /*row*/) const override {
    return {};
  }
  [[nodiscard]] std::uint64_t training_rows() const override;
  [[nodiscard]] std::uint64_t validation_rows() const override {
    return dataset_.validation().sequences();
  }
  [[nodiscard]] std::int64_t documents(bool /*validation*/) const override { return 0; }
  [[nodiscard]] std::optional<double> bytes_per_token() const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  [[nodiscard]] Status read_validation_row(std::int64_t lane, std::uint64_t row,
                                           const RowColumns& columns) const;

  TokenDataset dataset_;
  LaneOrder order_;
  std::shared_ptr<const DstarOrder> dstar_;
};

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
  [[nodiscard]] std::uint64_t training_rows() const override;
  [[nodiscard]] std::uint64_t validation_rows() const override {
    return validation_ ? validation_->rows() : 0;
  }
  [[nodiscard]] std::int64_t documents(bool validation) const override;
  [[nodiscard]] std::optional<double> bytes_per_token() const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;
  [[nodiscard]] ReferenceRows reference_rows() const override { return reference_; }
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
  ReferenceRows reference_;
};

/// Opens the packed rows of `config.data.dir`, named by config key `key`, for the objective.
/// `means_of_documents`: see RowLanes::Options. Errors: those of open_lanes().
[[nodiscard]] Result<std::shared_ptr<const DirectoryLanes>> open_rows(
    const configs::RunConfig& config, std::int64_t vocab_size, const char* key = "data.dir",
    bool means_of_documents = false);

/// Opens `config.data.dir` alone, in the form required by an objective of one pass. Errors: those
/// of open_lanes().
[[nodiscard]] Result<std::shared_ptr<const DirectoryLanes>> open_directory(
    const configs::RunConfig& config, std::int64_t vocab_size, const char* key = "data.dir");

/// Opens the data of a run, in the form required by its objective, for a model of `vocab_size`.
/// Errors (user): those of TokenDataset::open and RowSplit::open; data of another form or kind; no
/// trained target to learn from or to evaluate on; data.order = "dstar" is not possible.
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_lanes(const configs::RunConfig& config,
                                                                   std::int64_t vocab_size);

}  // namespace train::data
