#include "data/lanes/token_lanes.hpp"

#include <utility>
#include <vector>

#include "data/tokens/token_fingerprint.hpp"

namespace train::data {
namespace {

/// Order of data.order = "dstar"; null for any other.
Result<std::shared_ptr<const DstarOrder>> dstar_order(const configs::RunConfig& config,
                                                      const TokenSplit& train) {
  if (config.data.order != "dstar") {
    return std::shared_ptr<const DstarOrder>();
  }
  std::vector<DstarOrder::File> files;
  for (std::size_t file = 0; file < train.file_count(); ++file) {
    files.push_back({train.path(file), train.tokens_of(file)});
  }
  auto order = TRAIN_TRY(DstarOrder::make(
      files, {.seed = config.data.seed,
              .sequence_length = static_cast<std::uint64_t>(config.data.sequence_length),
              .micro_batch = static_cast<std::uint64_t>(config.batch.micro_batch)}));
  return std::make_shared<const DstarOrder>(std::move(order));
}

}  // namespace

TokenLanes::TokenLanes(TokenDataset dataset, const LaneOrder& order,
                       std::shared_ptr<const DstarOrder> dstar)
    : DirectoryLanes({.training_rows = dataset.train().sequences(),
                      .bytes_per_token = dataset.bytes_per_token()}),
      dataset_(std::move(dataset)),
      order_(order),
      dstar_(std::move(dstar)) {}

Status TokenLanes::read_training_row(std::int64_t step, std::int64_t lane, std::uint64_t row,
                                     std::span<std::int32_t> tokens,
                                     std::span<std::int32_t> targets) const {
  const auto unsigned_step = static_cast<std::uint64_t>(step);
  const auto unsigned_lane = static_cast<std::uint64_t>(lane);
  if (dstar_) {
    const auto place = dstar_->place(unsigned_step * order_.lanes + unsigned_lane, row);
    return dataset_.train().read_at(place.file, place.token, tokens, targets);
  }
  return dataset_.train().read(order_.sequence(unsigned_step, unsigned_lane, row), tokens, targets);
}

Status TokenLanes::read_validation_row(std::int64_t lane, std::uint64_t row,
                                       const RowColumns& columns) const {
  const TokenSplit& validation = dataset_.validation();
  const auto sequence = validation_sequence(static_cast<std::uint64_t>(lane), row,
                                            order_.micro_batch, validation.sequences());
  if (!sequence) {
    fill_padding(columns);
    return {};
  }
  return validation.read(*sequence, columns.tokens, columns.targets);
}

Status TokenLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  for (std::uint64_t row = 0; row < order_.micro_batch; ++row) {
    const RowColumns columns = columns_of_row(slot, row, order_.micro_batch);
    TRAIN_RETURN_IF_ERROR(
        work.pass.evaluates()
            ? read_validation_row(work.lane, row, columns)
            : read_training_row(work.step, work.lane, row, columns.tokens, columns.targets));
  }
  return {};
}

Status TokenLanes::read_row(const SourceRow& at, const RowColumns& columns, std::int32_t /*first*/,
                            std::span<engine::LaneSequence>& /*rest*/) const {
  return (at.validation ? dataset_.validation() : dataset_.train())
      .read(at.row, columns.tokens, columns.targets);
}

std::optional<engine::RowCount> TokenLanes::count(std::int64_t /*step*/) const { return {}; }
Result<std::string> TokenLanes::fingerprint() const { return token_fingerprint(dataset_); }

Result<std::shared_ptr<const DirectoryLanes>> open_tokens(const configs::RunConfig& config,
                                                          std::int64_t vocab_size,
                                                          const char* key) {
  auto dataset = TRAIN_TRY(
      TokenDataset::open(config.data.dir, {.sequence_length = config.data.sequence_length,
                                           .vocab_size = vocab_size,
                                           .need_validation = config.eval.interval_steps > 0,
                                           .key = key}));
  auto dstar = TRAIN_TRY(dstar_order(config, dataset.train()));
  const auto order = lane_order(config, dataset.train().sequences());
  return std::shared_ptr<const DirectoryLanes>(
      std::make_shared<const TokenLanes>(std::move(dataset), order, std::move(dstar)));
}

}  // namespace train::data
