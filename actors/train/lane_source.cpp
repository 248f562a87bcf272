#include "actors/train/lane_source.hpp"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "engine/objective/registry.hpp"
#include "storage/tokens/token_fingerprint.hpp"

namespace train::actors {
namespace {

storage::LaneOrder lane_order(const configs::RunConfig& config, std::uint64_t sequences) {
  return {.seed = config.run.seed,
          .sequences = sequences,
          .lanes = static_cast<std::uint64_t>(config.batch.lanes),
          .micro_batch = static_cast<std::uint64_t>(config.batch.micro_batch)};
}

/// Elements of row `row` of a lane's column; none of a column that there is not.
template <class T>
std::span<T> row_of(std::span<T> column, std::uint64_t row, std::uint64_t rows) {
  const std::size_t length = column.size() / static_cast<std::size_t>(rows);
  return column.subspan(static_cast<std::size_t>(row) * length, length);
}

engine::RowCount count_row(const storage::RowSplit& split, std::uint64_t row) {
  return {.weight = split.weight_sum(row),
          .trained = static_cast<std::int64_t>(split.trained_tokens(row)),
          .tokens = static_cast<std::int64_t>(split.tokens(row)),
          .positions = split.row_length()};
}

/// Null in the order of lanes.
Result<std::shared_ptr<const storage::DstarOrder>> dstar_order(const configs::RunConfig& config,
                                                               const storage::TokenSplit& train) {
  if (config.data.order != "dstar") {
    return std::shared_ptr<const storage::DstarOrder>();
  }
  std::vector<storage::DstarOrder::File> files;
  for (std::size_t file = 0; file < train.file_count(); ++file) {
    files.push_back({train.path(file), train.tokens_of(file)});
  }
  auto order = storage::DstarOrder::make(
      files, {.seed = config.data.seed,
              .sequence_length = static_cast<std::uint64_t>(config.data.sequence_length),
              .micro_batch = static_cast<std::uint64_t>(config.batch.micro_batch)});
  TRAIN_RETURN_IF_ERROR(order);
  return std::make_shared<const storage::DstarOrder>(std::move(order).value());
}

Result<std::shared_ptr<const LaneSource>> open_tokens(const configs::RunConfig& config,
                                                      std::int64_t vocab_size) {
  auto dataset = storage::TokenDataset::open(config.data.dir,
                                             {.sequence_length = config.data.sequence_length,
                                              .vocab_size = vocab_size,
                                              .need_validation = config.eval.interval_steps > 0});
  TRAIN_RETURN_IF_ERROR(dataset);
  auto dstar = dstar_order(config, dataset->train());
  TRAIN_RETURN_IF_ERROR(dstar);
  const auto order = lane_order(config, dataset->train().sequences());
  return std::shared_ptr<const LaneSource>(std::make_shared<const TokenLanes>(
      std::move(dataset).value(), order, std::move(dstar).value()));
}

/// Of the rows that an evaluation reads.
std::int64_t evaluated_targets(const configs::RunConfig& config, const storage::RowSplit& split) {
  std::int64_t trained = 0;
  const auto rows = static_cast<std::uint64_t>(config.eval.lanes * config.batch.micro_batch);
  for (std::uint64_t row = 0; row < rows && row < split.rows(); ++row) {
    trained += count_row(split, row).trained;
  }
  return trained;
}

Status check_rows(const configs::RunConfig& config, const storage::RowFacts& facts) {
  const std::string& name = config.objective.name;
  if (facts.kind == "preference" || facts.kind == "kto") {
    return user_error(
        fmt::format("{}: holds rows of kind \"{}\", where what is rejected would be learnt by "
                    "objective.name = \"{}\"; prepare the wanted answers alone",
                    config.data.dir, facts.kind, name));
  }
  if (config.data.order == "dstar") {
    return user_error(
        fmt::format("data.order is \"dstar\", an order of token files, and objective.name = \"{}\" "
                    "reads packed "
                    "rows; leave data.order out",
                    name));
  }
  if (facts.train.trained_tokens == 0) {
    return user_error(fmt::format(
        "{}: none of its {} training rows has a trained target; prepare the data with a mask that "
        "trains something",
        config.data.dir, facts.train.rows));
  }
  return {};
}

Result<std::shared_ptr<const LaneSource>> open_rows(const configs::RunConfig& config,
                                                    std::int64_t vocab_size) {
  const auto rows = storage::holds_rows(config.data.dir);
  TRAIN_RETURN_IF_ERROR(rows);
  if (!*rows) {
    return user_error(fmt::format(
        "{}: holds no packed rows, which objective.name = \"{}\" reads; prepare it with "
        "--row-length, or leave objective.name out",
        config.data.dir, config.objective.name));
  }
  const storage::RowOptions options{.row_length = config.data.sequence_length,
                                    .vocab_size = vocab_size};
  auto train = storage::RowSplit::open(config.data.dir, "train", options);
  TRAIN_RETURN_IF_ERROR(train);
  TRAIN_RETURN_IF_ERROR(check_rows(config, train->facts()));
  std::optional<storage::RowSplit> validation;
  if (config.eval.interval_steps > 0) {
    auto opened = storage::RowSplit::open(config.data.dir, "val", options);
    TRAIN_RETURN_IF_ERROR(opened);
    if (evaluated_targets(config, *opened) == 0) {
      return user_error(fmt::format(
          "{}: the validation rows that eval.lanes reads have no trained target; raise eval.lanes, "
          "or set eval.interval_steps = 0",
          config.data.dir));
    }
    validation = std::move(opened).value();
  }
  const auto order = lane_order(config, train->rows());
  return std::shared_ptr<const LaneSource>(std::make_shared<const RowLanes>(
      config.data.dir, std::move(train).value(), std::move(validation), order));
}

}  // namespace

std::function<engine::RowCount(std::int64_t)> LaneSource::row_count(
    const std::shared_ptr<const LaneSource>& data) {
  if (!data->count(0)) {
    return {};
  }
  return [data](std::int64_t step) { return data->count(step).value(); };
}

std::function<double(std::int64_t)> LaneSource::step_weight(
    const std::shared_ptr<const LaneSource>& data) {
  const auto rows = row_count(data);
  if (!rows) {
    return {};
  }
  return [rows](std::int64_t step) { return rows(step).weight; };
}

TokenLanes::TokenLanes(storage::TokenDataset dataset, const storage::LaneOrder& order,
                       std::shared_ptr<const storage::DstarOrder> dstar)
    : dataset_(std::move(dataset)), order_(order), dstar_(std::move(dstar)) {}

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

Status TokenLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  const storage::TokenSplit& validation = dataset_.validation();
  for (std::uint64_t row = 0; row < order_.micro_batch; ++row) {
    const auto tokens = row_of(slot.tokens, row, order_.micro_batch);
    const auto targets = row_of(slot.targets, row, order_.micro_batch);
    TRAIN_RETURN_IF_ERROR(work.kind == engine::CommandKind::evaluate
                              ? validation.read(storage::validation_sequence(
                                                    static_cast<std::uint64_t>(work.lane), row,
                                                    order_.micro_batch, validation.sequences()),
                                                tokens, targets)
                              : read_training_row(work.step, work.lane, row, tokens, targets));
  }
  return {};
}

std::optional<engine::RowCount> TokenLanes::count(std::int64_t /*step*/) const { return {}; }
std::uint64_t TokenLanes::training_rows() const { return dataset_.train().sequences(); }
std::optional<double> TokenLanes::bytes_per_token() const { return dataset_.bytes_per_token(); }
Result<std::string> TokenLanes::fingerprint() const { return storage::token_fingerprint(dataset_); }

RowLanes::RowLanes(const std::string& directory, storage::RowSplit train,
                   std::optional<storage::RowSplit> validation, const storage::LaneOrder& order)
    : directory_(directory),
      train_(std::move(train)),
      validation_(std::move(validation)),
      order_(order) {}

Status RowLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  const bool evaluation = work.kind == engine::CommandKind::evaluate;
  const auto lane = static_cast<std::uint64_t>(work.lane);
  const std::uint64_t rows = order_.micro_batch;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const storage::RowColumns columns{.tokens = row_of(slot.tokens, row, rows),
                                      .targets = row_of(slot.targets, row, rows),
                                      .positions = row_of(slot.positions, row, rows),
                                      .weights = row_of(slot.weights, row, rows)};
    TRAIN_RETURN_IF_ERROR(
        evaluation
            ? validation_->read(storage::validation_sequence(lane, row, rows, validation_->rows()),
                                columns)
            : train_.read(order_.sequence(static_cast<std::uint64_t>(work.step), lane, row),
                          columns));
  }
  return {};
}

std::optional<engine::RowCount> RowLanes::count(std::int64_t step) const {
  engine::RowCount sum;
  for (std::uint64_t lane = 0; lane < order_.lanes; ++lane) {
    for (std::uint64_t row = 0; row < order_.micro_batch; ++row) {
      sum += count_row(train_, order_.sequence(static_cast<std::uint64_t>(step), lane, row));
    }
  }
  return sum;
}

std::uint64_t RowLanes::training_rows() const { return train_.rows(); }
std::optional<double> RowLanes::bytes_per_token() const { return {}; }
Result<std::string> RowLanes::fingerprint() const { return storage::row_fingerprint(directory_); }

Result<std::shared_ptr<const LaneSource>> open_lanes(const configs::RunConfig& config,
                                                     std::int64_t vocab_size) {
  const bool rows = engine::make_objective(config.objective)->columns() != engine::LaneColumns{};
  return rows ? open_rows(config, vocab_size) : open_tokens(config, vocab_size);
}

}  // namespace train::actors
