#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "engine/command.hpp"
#include "engine/objective/objective.hpp"
#include "engine/rank/lane_runner.hpp"
#include "storage/choices/choice_set.hpp"
#include "storage/rows/row_split.hpp"
#include "storage/tokens/dstar_order.hpp"
#include "storage/tokens/lane_order.hpp"
#include "storage/tokens/token_dataset.hpp"

namespace train::actors {

/// The rows whose documents a reference is asked about: those that training reads, in its order,
/// lane by lane as its steps have them, then those that evaluations read.
struct ReferenceRows {
  std::int64_t training_rows = 0;
  std::int64_t validation_rows = 0;
  std::int64_t training_commands = 0;  ///< Of engine::kReference that read the former,
  std::int64_t commands = 0;           ///< and all of them.
  std::int64_t documents = 0;          ///< Of both splits, read or not.
  bool live = false;                   ///< Asked about in every step, which is a command each.
  std::int64_t lane_sequences = 0;     ///< Documents of a lane at most.
  /// Of steps of several passes, which compare the model with the one that began the run
  /// (Compared): none of the above but that they do (`live`, and one of `commands`).
  bool of_passes = false;
};

/// The data of a run, as lanes: which tokens a lane of a step holds, and what a step counts. A pure
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
  /// What the rows of training step `step` (from 0) hold, of all lanes; read from the index of the
  /// rows alone. None: each position is a token with a target of weight 1.
  [[nodiscard]] virtual std::optional<engine::RowCount> count(std::int64_t step) const = 0;
  /// The same of the rows of one pass, where a step has several.
  [[nodiscard]] virtual std::optional<engine::RowCount> count_pass(std::int64_t step,
                                                                   std::size_t /*pass*/) const {
    return count(step);
  }
  /// Rows of the training split.
  [[nodiscard]] virtual std::uint64_t training_rows() const = 0;
  /// What a reference's log-probabilities are kept of; nothing where the objective has none.
  [[nodiscard]] virtual ReferenceRows reference_rows() const { return {}; }
  /// Bytes of text per validation token, for bits per byte; empty where the data does not tell.
  [[nodiscard]] virtual std::optional<double> bytes_per_token() const = 0;
  /// Questions, the lanes of LaneRows::questions; null: none.
  [[nodiscard]] virtual const storage::ChoiceSet* choices() const { return nullptr; }
  /// What tells this data from other data. Blocking (disk).
  [[nodiscard]] virtual Result<std::string> fingerprint() const = 0;

  /// ReportOptions::rows and RankOptions::step_weight of this data, which they keep open.
  [[nodiscard]] static std::function<engine::RowCount(std::int64_t)> row_count(
      const std::shared_ptr<const LaneSource>& data);
  [[nodiscard]] static std::function<double(std::int64_t, std::size_t)> step_weight(
      const std::shared_ptr<const LaneSource>& data);
};

/// Token files: every token has a target.
class TokenLanes final : public LaneSource {
 public:
  /// `order.sequences` is that of the data. `dstar`: trains in that order instead; none: in
  /// `order`.
  TokenLanes(storage::TokenDataset dataset, const storage::LaneOrder& order,
             std::shared_ptr<const storage::DstarOrder> dstar = nullptr);

  [[nodiscard]] const storage::TokenDataset& dataset() const { return dataset_; }
  [[nodiscard]] const storage::LaneOrder& order() const { return order_; }
  /// Row `row` of a training lane, in the run's order. Blocking (disk).
  [[nodiscard]] Status read_training_row(std::int64_t step, std::int64_t lane, std::uint64_t row,
                                         std::span<std::int32_t> tokens,
                                         std::span<std::int32_t> targets) const;

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::uint64_t training_rows() const override;
  [[nodiscard]] std::optional<double> bytes_per_token() const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  [[nodiscard]] Status read_validation_row(std::int64_t lane, std::uint64_t row,
                                           const storage::RowColumns& columns) const;

  storage::TokenDataset dataset_;
  storage::LaneOrder order_;
  std::shared_ptr<const storage::DstarOrder> dstar_;
};

/// Rows that `data prepare` packed: documents with positions, trained targets and their weights; of
/// pairs and examples with a list of the documents, too.
class RowLanes final : public LaneSource {
 public:
  struct Options {
    std::string directory;
    storage::LaneOrder order;  ///< `order.sequences` is that of the data.
    engine::RowKind kind = engine::RowKind::documents;
    engine::LaneColumns columns = {};
    std::int64_t steps = 0;           ///< Of the run.
    std::int64_t eval_lanes = 0;      ///< Of an evaluation; 0: there is none.
    bool reference = false;           ///< The objective has one.
    bool live = false;                ///< As ReferenceRows has it.
    bool means_of_documents = false;  ///< Of kind documents: each trained one counts 1.
  };

  /// `validation`: where evaluations read, if there are any.
  RowLanes(Options options, storage::RowSplit train, std::optional<storage::RowSplit> validation);

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::uint64_t training_rows() const override;
  [[nodiscard]] std::optional<double> bytes_per_token() const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;
  [[nodiscard]] ReferenceRows reference_rows() const override { return reference_; }

 private:
  /// A row of a lane: of a split, or padding alone.
  struct Place {
    const storage::RowSplit* split = nullptr;  ///< Null: padding.
    std::uint64_t row = 0;
    std::int64_t first_document = 0;  ///< Of the split, in LaneSequence::document.
  };
  [[nodiscard]] Place place(const engine::LaneWork& work, std::uint64_t row) const;
  [[nodiscard]] Status list(const Place& place, std::int32_t first_row,
                            std::span<engine::LaneSequence>& rest) const;
  [[nodiscard]] engine::RowCount count_row(std::uint64_t row) const;

  Options options_;
  storage::RowSplit train_;
  std::optional<storage::RowSplit> validation_;
  ReferenceRows reference_;
};

/// The packed rows of `config.data.dir`, which key `key` named, for its objective.
/// `means_of_documents`: as RowLanes has it. Errors: those of open_lanes().
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_rows(const configs::RunConfig& config,
                                                                  std::int64_t vocab_size,
                                                                  const char* key = "data.dir",
                                                                  bool means_of_documents = false);

/// The data of a run for a model of `vocab_size`, of the form that its objective reads.
/// Errors (user): those of TokenDataset::open and RowSplit::open; data of another form or kind; no
/// trained target to learn from or to evaluate on; the order of data.order = "dstar" is not
/// possible.
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_lanes(const configs::RunConfig& config,
                                                                   std::int64_t vocab_size);

}  // namespace train::actors
