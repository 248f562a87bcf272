#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/lanes/directory_lanes.hpp"
#include "data/tokens/dstar_order.hpp"
#include "data/tokens/lane_order.hpp"
#include "data/tokens/token_dataset.hpp"

namespace train::data {

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
  [[nodiscard]] std::uint64_t validation_rows() const override {
    return dataset_.validation().sequences();
  }
  [[nodiscard]] std::int64_t documents(bool /*validation*/) const override { return 0; }
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  [[nodiscard]] Status read_validation_row(std::int64_t lane, std::uint64_t row,
                                           const RowColumns& columns) const;

  TokenDataset dataset_;
  LaneOrder order_;
  std::shared_ptr<const DstarOrder> dstar_;
};

/// Opens the token files of `config.data.dir`, named by config key `key`. Blocking (disk). Errors:
/// those of open_lanes().
[[nodiscard]] Result<std::shared_ptr<const DirectoryLanes>> open_tokens(
    const configs::RunConfig& config, std::int64_t vocab_size, const char* key);

}  // namespace train::data
