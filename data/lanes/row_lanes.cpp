#include "data/lanes/row_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "data/tokens/token_fingerprint.hpp"
#include "engine/objective/registry.hpp"

namespace train::data {
namespace {

/// Number of pairs or examples in a row: two documents each.
std::int64_t items_of(const RowSplit& split, std::uint64_t row) {
  const auto documents = split.documents(row);
  return std::count_if(documents.begin(), documents.end(),
                       [&](const RowDocument& document) { return document.pair >= 0; }) /
         2;
}

/// Number of documents with a trained target.
std::int64_t trained_of(const RowSplit& split, std::uint64_t row) {
  const auto documents = split.documents(row);
  return std::count_if(documents.begin(), documents.end(),
                       [](const RowDocument& document) { return document.trained > 0; });
}

std::int64_t most_documents(const RowSplit& split) {
  std::size_t most = 0;
  for (std::uint64_t row = 0; row < split.rows(); ++row) {
    most = std::max(most, split.document_numbers(row).size());
  }
  return static_cast<std::int64_t>(most);
}

std::int64_t documents_of(const RowSplit& split, const char* name) {
  return static_cast<std::int64_t>(split.facts().of(name).documents);
}

/// True if data of this kind in meta.json has rows of `kind`.
bool fits(engine::RowKind kind, const std::string& facts_kind) {
  switch (kind) {
    case engine::RowKind::pairs:
      return facts_kind == "preference";
    case engine::RowKind::examples:
      return facts_kind == "kto";
    case engine::RowKind::documents:
      return facts_kind != "preference" && facts_kind != "kto";
    case engine::RowKind::tokens:
      break;
  }
  return false;
}

/// Number of trained targets in the rows that an evaluation reads.
std::int64_t evaluated_targets(const configs::RunConfig& config, const RowSplit& split) {
  std::int64_t trained = 0;
  const auto rows = static_cast<std::uint64_t>(config.eval.lanes * config.batch.micro_batch);
  for (std::uint64_t row = 0; row < rows && row < split.rows(); ++row) {
    trained += static_cast<std::int64_t>(split.trained_tokens(row));
  }
  return trained;
}

/// Minimum number of examples per lane: KTO's baseline is a mean over a lane, and noise if few.
constexpr double kExamplesLeast = 8.0;

Status check_lane_size(const configs::RunConfig& config, engine::RowKind kind,
                       const RowFacts& facts) {
  const double of_row =
      static_cast<double>(facts.train.pairs) / static_cast<double>(facts.train.rows);
  const double of_lane = of_row * static_cast<double>(config.batch.micro_batch);
  if (kind != engine::RowKind::examples || of_lane >= kExamplesLeast) {
    return {};
  }
  return user_error(
      fmt::format("batch.micro_batch is {}: a lane has {:.1f} examples of {} on average, but "
                  "objective.name = \"{}\" compares each with the mean over its lane and needs {} "
                  "or more; set batch.micro_batch = {}, or prepare longer rows",
                  config.batch.micro_batch, of_lane, config.data.dir, config.objective.name,
                  kExamplesLeast, static_cast<std::int64_t>(std::ceil(kExamplesLeast / of_row))));
}

Status check_rows(const configs::RunConfig& config, engine::RowKind kind, const RowFacts& facts) {
  const std::string& name = config.objective.name;
  if (!fits(kind, facts.kind) && kind == engine::RowKind::documents) {
    return user_error(
        fmt::format("{}: holds rows of kind \"{}\", so objective.name = \"{}\" would train on "
                    "rejected answers too; prepare the data without them",
                    config.data.dir, facts.kind, name));
  }
  if (!fits(kind, facts.kind)) {
    return user_error(fmt::format(
        "{}: holds rows of kind \"{}\", but objective.name = \"{}\" reads \"{}\"; prepare {}",
        config.data.dir, facts.kind, name, kind == engine::RowKind::pairs ? "preference" : "kto",
        kind == engine::RowKind::pairs ? "lines with \"chosen\" and \"rejected\""
                                       : "lines with \"completion\" and \"label\""));
  }
  TRAIN_RETURN_IF_ERROR(check_lane_size(config, kind, facts));
  if (kind != engine::RowKind::documents && facts.has_weights) {
    return user_error(
        fmt::format("{}: its messages have weights, which objective.name = \"{}\" does not "
                    "support; prepare it without \"weight\"",
                    config.data.dir, name));
  }
  if (config.data.order == "dstar") {
    return user_error(
        fmt::format("data.order is \"dstar\", an order of token files, but objective.name = \"{}\" "
                    "reads packed rows; leave data.order out",
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

ReferenceRows reference_of(const RowLanes::Options& options, const RowSplit& train,
                           const std::optional<RowSplit>& validation) {
  const auto of_lane = static_cast<std::int64_t>(options.order.micro_batch);
  std::int64_t most = options.columns.sequences ? most_documents(train) : 0;
  if (validation && options.columns.sequences) {
    most = std::max(most, most_documents(*validation));
  }
  ReferenceRows rows{.lane_sequences = most * of_lane};
  if (!options.reference) {
    return rows;
  }
  const std::int64_t of_step = static_cast<std::int64_t>(options.order.lanes) * of_lane;
  const auto commands = [&](std::int64_t count) { return (count + of_step - 1) / of_step; };
  // An epoch reads each row once.
  rows.live = options.live;
  rows.training_commands =
      options.live ? options.steps
                   : std::min(options.steps, commands(static_cast<std::int64_t>(train.rows())));
  rows.training_rows = rows.training_commands * of_step;
  rows.documents = documents_of(train, "train") + documents_of(train, "val");
  if (validation) {
    rows.validation_rows =
        std::min(options.eval_lanes * of_lane, static_cast<std::int64_t>(validation->rows()));
  }
  rows.commands = rows.training_commands + commands(rows.validation_rows);
  return rows;
}

}  // namespace

RowLanes::RowLanes(Options options, RowSplit train, std::optional<RowSplit> validation)
    : DirectoryLanes(
          {.training_rows = train.rows(), .reference = reference_of(options, train, validation)}),
      options_(std::move(options)),
      train_(std::move(train)),
      validation_(std::move(validation)) {}

std::int64_t RowLanes::documents(bool validation) const {
  return documents_of(train_, validation ? "val" : "train");
}

std::optional<SourceRow> RowLanes::place(const engine::LaneWork& work, std::uint64_t row) const {
  const LaneOrder& order = options_.order;
  const auto lane = static_cast<std::uint64_t>(work.lane);
  const auto in_validation = [this](std::uint64_t number) {
    return SourceRow{.validation = true, .row = number, .first_document = documents(false)};
  };
  if (work.pass.evaluates()) {
    const auto number = validation_sequence(lane, row, order.micro_batch, validation_->rows());
    return number ? std::optional(in_validation(*number)) : std::nullopt;
  }
  if (work.pass.rows == engine::LaneRows::documents &&
      work.step >= facts_.reference.training_commands) {
    const auto command = static_cast<std::uint64_t>(work.step - facts_.reference.training_commands);
    const std::uint64_t number = (command * order.lanes + lane) * order.micro_batch + row;
    return number < static_cast<std::uint64_t>(facts_.reference.validation_rows)
               ? std::optional(in_validation(number))
               : std::nullopt;
  }
  return SourceRow{.row = order.sequence(static_cast<std::uint64_t>(work.step), lane, row)};
}

Status RowLanes::list(const SourceRow& at, std::int32_t first_row,
                      std::span<engine::LaneSequence>& rest) const {
  const auto documents = split_of(at).documents(at.row);
  const auto numbers = split_of(at).document_numbers(at.row);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const RowDocument& document = documents[i];
    // Order of documents: in a pair the chosen side, then the rejected one; in an example its own
    // answer, then the mismatched one.
    const bool pairs = options_.kind == engine::RowKind::pairs;
    const bool second = i % 2 == 1;
    const bool whole =
        options_.kind == engine::RowKind::documents
            ? i < rest.size()
            : document.pair >= 0 && document.trained > 0 && i < rest.size() &&
                  (second
                       ? document.side == (pairs ? 1 : 2) && documents[i - 1].pair == document.pair
                       : document.side <= (pairs ? 0 : 1) && i + 1 < documents.size());
    if (!whole) {
      return user_error(
          fmt::format("{}: row {}: document {} is not a trained side of a whole {}; prepare the "
                      "data again, with --force",
                      options_.directory, at.row, numbers[i], pairs ? "pair" : "example"));
    }
    rest[i] = {.item = document.pair,
               .document = at.first_document + static_cast<std::int64_t>(numbers[i]),
               .first = first_row + document.first,
               .rows = document.length,
               .side = document.side};
  }
  rest = rest.subspan(documents.size());
  return {};
}

Status RowLanes::read_row(const SourceRow& at, const RowColumns& columns, std::int32_t first,
                          std::span<engine::LaneSequence>& rest) const {
  TRAIN_RETURN_IF_ERROR(split_of(at).read(at.row, columns));
  return options_.columns.sequences ? list(at, first, rest) : Status();
}

Status RowLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  const std::uint64_t rows = options_.order.micro_batch;
  std::span<engine::LaneSequence> rest = slot.sequences;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const RowColumns columns = columns_of_row(slot, row, rows, options_.columns.prompt_targets);
    const auto from = place(work, row);
    if (!from) {
      fill_padding(columns);
      continue;
    }
    const auto first = static_cast<std::int32_t>(row * columns.tokens.size());
    TRAIN_RETURN_IF_ERROR(read_row(*from, columns, first, rest));
  }
  if (!rest.empty()) {
    rest.front() = {};
  }
  return {};
}

std::optional<engine::RowCount> RowLanes::count_row(std::uint64_t row) const {
  const bool items = options_.kind != engine::RowKind::documents;
  return engine::RowCount{.weight = items ? static_cast<double>(items_of(train_, row))
                                    : options_.means_of_documents
                                        ? static_cast<double>(trained_of(train_, row))
                                        : train_.weight_sum(row),
                          .trained = static_cast<std::int64_t>(train_.trained_tokens(row)),
                          .tokens = static_cast<std::int64_t>(train_.tokens(row)),
                          .positions = train_.row_length()};
}

std::optional<engine::RowCount> RowLanes::count(std::int64_t step) const {
  engine::RowCount sum;
  for (std::uint64_t lane = 0; lane < options_.order.lanes; ++lane) {
    for (std::uint64_t row = 0; row < options_.order.micro_batch; ++row) {
      sum += *count_row(options_.order.sequence(static_cast<std::uint64_t>(step), lane, row));
    }
  }
  return sum;
}

Result<std::string> RowLanes::fingerprint() const { return row_fingerprint(options_.directory); }

Result<std::shared_ptr<const DirectoryLanes>> open_rows(const configs::RunConfig& config,
                                                        std::int64_t vocab_size, const char* key,
                                                        bool means_of_documents) {
  TRAIN_RETURN_IF_ERROR(check_row_directory(config.data.dir, key, config.data.sequence_length));
  const auto rows = TRAIN_TRY(holds_rows(config.data.dir));
  if (!rows) {
    return user_error(
        fmt::format("{}: holds no packed rows, but objective.name = \"{}\" reads those; prepare it "
                    "with --row-length, or leave objective.name out",
                    config.data.dir, config.objective.name));
  }
  const RowOptions options{.row_length = config.data.sequence_length, .vocab_size = vocab_size};
  auto train = TRAIN_TRY(RowSplit::open(config.data.dir, "train", options));
  const auto objective = engine::make_objective(config.objective);
  TRAIN_RETURN_IF_ERROR(check_rows(config, objective->rows(), train.facts()));
  std::optional<RowSplit> validation;
  if (config.eval.interval_steps > 0) {
    auto opened = TRAIN_TRY(RowSplit::open(config.data.dir, "val", options));
    if (evaluated_targets(config, opened) == 0) {
      return user_error(fmt::format(
          "{}: the validation rows that eval.lanes reads have no trained target; raise eval.lanes, "
          "or set eval.interval_steps = 0",
          config.data.dir));
    }
    validation = std::move(opened);
  }
  const RowLanes::Options lanes{.directory = config.data.dir,
                                .order = lane_order(config, train.rows()),
                                .kind = objective->rows(),
                                .columns = objective->columns(),
                                .steps = config.run.steps,
                                .eval_lanes = validation ? config.eval.lanes : 0,
                                .reference = engine::needs_reference(*objective),
                                .live = config.objective.reference == "live",
                                .means_of_documents = means_of_documents};
  return std::shared_ptr<const DirectoryLanes>(
      std::make_shared<const RowLanes>(lanes, std::move(train), std::move(validation)));
}

}  // namespace train::data
