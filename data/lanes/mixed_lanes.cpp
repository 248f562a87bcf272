#include "data/lanes/mixed_lanes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "configs/fields/source_table.hpp"
#include "data/lanes/open_lanes.hpp"
#include "data/rows/row_facts.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "data/tokens/token_fingerprint.hpp"
#include "engine/objective/registry.hpp"
#include "storage/files/digest.hpp"

namespace train::data {

MixedLanes::MixedLanes(Options options, std::vector<std::shared_ptr<const DirectoryLanes>> sources)
    : options_(std::move(options)), order_(options_.order), sources_(std::move(sources)) {
  std::int64_t documents = 0;
  for (const auto& source : sources_) {
    first_document_.push_back(documents);
    documents += source->documents(false) + source->documents(true);
    facts_.reference.lane_sequences =
        std::max(facts_.reference.lane_sequences, source->facts().reference.lane_sequences);
  }
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    const std::uint64_t rows = order_.rows()[source];
    facts_.training_rows += rows;
    facts_.sources.push_back({.name = options_.names[source],
                              .rows = rows,
                              .rows_read = [this, source](std::int64_t steps) {
                                return order_.drawn(source, static_cast<std::uint64_t>(steps));
                              }});
  }
  facts_.bytes_per_token = mean_bytes_per_token();
  if (options_.reference) {
    facts_.reference.documents = documents;
    find_references();
  }
}

void MixedLanes::find_references() {
  ReferenceRows& reference = facts_.reference;
  const auto of_step = static_cast<std::int64_t>(order_.block_rows());
  const auto commands = [&](std::int64_t count) { return (count + of_step - 1) / of_step; };
  for (const SourceFacts& source : facts_.sources) {
    referenced_.push_back(std::min(source.rows, source.rows_read(options_.steps)));
  }
  const auto rows = static_cast<std::int64_t>(
      std::accumulate(referenced_.begin(), referenced_.end(), std::uint64_t{0}));
  reference.live = options_.live;
  reference.of_sources = fmt::format("{}", fmt::join(referenced_, " "));
  reference.training_commands = options_.live ? options_.steps : commands(rows);
  reference.training_rows = reference.training_commands * of_step;
  const auto evaluated =
      static_cast<std::uint64_t>(options_.eval_lanes) * options_.order.micro_batch;
  for (std::uint64_t number = 0; number < evaluated; ++number) {
    // Rows after the last of a short source are padding, between those of others.
    if (validation_place(number)) {
      reference.validation_rows = static_cast<std::int64_t>(number) + 1;
    }
  }
  reference.commands = reference.training_commands + commands(reference.validation_rows);
}

MixedLanes::Place MixedLanes::training_place(std::size_t source, std::uint64_t row) const {
  return {.source = source, .at = {.row = row, .first_document = first_document_[source]}};
}

std::optional<MixedLanes::Place> MixedLanes::validation_place(std::uint64_t number) const {
  const std::size_t source = number % sources_.size();
  const std::uint64_t row = number / sources_.size();
  if (row >= sources_[source]->validation_rows()) {
    return std::nullopt;
  }
  const std::int64_t first = first_document_[source] + sources_[source]->documents(false);
  return Place{.source = source, .at = {.validation = true, .row = row, .first_document = first}};
}

std::optional<MixedLanes::Place> MixedLanes::reference_place(std::uint64_t number) const {
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    if (number < referenced_[source]) {
      return training_place(source, order_.row_of(source, number));
    }
    number -= referenced_[source];
  }
  return std::nullopt;
}

std::optional<MixedLanes::Place> MixedLanes::place(const engine::LaneWork& work,
                                                   std::uint64_t row) const {
  const auto step = static_cast<std::uint64_t>(work.step);
  const std::uint64_t in_step =
      static_cast<std::uint64_t>(work.lane) * options_.order.micro_batch + row;
  if (work.pass.evaluates()) {
    return validation_place(in_step);
  }
  if (work.pass.rows == engine::LaneRows::documents) {
    const auto first_of_validation = static_cast<std::uint64_t>(facts_.reference.training_commands);
    if (step >= first_of_validation) {
      const std::uint64_t number = (step - first_of_validation) * order_.block_rows() + in_step;
      return number < static_cast<std::uint64_t>(facts_.reference.validation_rows)
                 ? validation_place(number)
                 : std::nullopt;
    }
    if (!facts_.reference.live) {
      return reference_place(step * order_.block_rows() + in_step);
    }
  }
  const MixtureOrder::Draw draw = order_.draw(step, static_cast<std::uint64_t>(work.lane), row);
  return training_place(draw.source, draw.row);
}

Status MixedLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  const std::uint64_t rows = options_.order.micro_batch;
  std::span<engine::LaneSequence> rest = slot.sequences;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const RowColumns columns = columns_of_row(slot, row, rows, options_.columns.prompt_targets);
    const auto from = place(work, row);
    if (!slot.sources.empty()) {
      slot.sources[row] = from ? static_cast<std::int32_t>(from->source) : -1;
    }
    if (!from) {
      fill_padding(columns);
      continue;
    }
    const auto first = static_cast<std::int32_t>(row * columns.tokens.size());
    const std::size_t before = rest.size();
    const auto listed = rest;
    TRAIN_RETURN_IF_ERROR(sources_[from->source]->read_row(from->at, columns, first, rest));
    // Sources number their pairs from 0, and a lane may have one of each.
    for (engine::LaneSequence& sequence : listed.first(before - rest.size())) {
      if (sequence.item >= 0) {
        sequence.item += first_document_[from->source];
      }
    }
  }
  if (!rest.empty()) {
    rest.front() = {};
  }
  return {};
}

std::optional<engine::RowCount> MixedLanes::count(std::int64_t step) const {
  engine::RowCount sum;
  for (std::uint64_t lane = 0; lane < options_.order.lanes; ++lane) {
    for (std::uint64_t row = 0; row < options_.order.micro_batch; ++row) {
      const MixtureOrder::Draw draw = order_.draw(static_cast<std::uint64_t>(step), lane, row);
      const auto count = sources_[draw.source]->count_row(draw.row);
      if (!count) {
        return std::nullopt;
      }
      sum += *count;
    }
  }
  return sum;
}

std::optional<double> MixedLanes::mean_bytes_per_token() const {
  const std::uint64_t rows =
      static_cast<std::uint64_t>(options_.eval_lanes) * options_.order.micro_batch;
  double sum = 0.0, weights = 0.0;
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    const auto of_source = sources_[source]->facts().bytes_per_token;
    if (!of_source) {
      return std::nullopt;
    }
    const std::uint64_t turns = (rows + sources_.size() - 1 - source) / sources_.size();
    const auto read = static_cast<double>(std::min(turns, sources_[source]->validation_rows()));
    sum += read * *of_source;
    weights += read;
  }
  return weights > 0.0 ? std::optional(sum / weights) : std::nullopt;
}

Result<std::string> MixedLanes::fingerprint() const {
  std::string text;
  for (const auto& source : sources_) {
    const auto fingerprint = TRAIN_TRY(source->fingerprint());
    text += fmt::format("source {}\n", fingerprint);
  }
  return storage::digest_text(text);
}

namespace {

/// Facts that a source states of its rows and tokens; empty: it does not state them.
struct SourceForm {
  std::string kind;
  std::string tokenizer;  ///< Digest of its file, or its name.
  std::optional<std::int64_t> vocab_size;
};

Result<SourceForm> form_of(const std::string& directory) {
  SourceForm form;
  const auto facts = TRAIN_TRY(read_dataset_facts(directory));
  form.vocab_size = facts.vocab_size;
  if (TRAIN_TRY(holds_rows(directory))) {
    const auto rows = TRAIN_TRY(read_row_facts(directory));
    form.kind = rows.kind;
    form.tokenizer = rows.tokenizer;
    if (rows.vocab_size > 0) {
      form.vocab_size = rows.vocab_size;
    }
  } else {
    form.kind = "tokens";
    form.tokenizer = facts.tokenizer.value_or("");
  }
  if (const auto kept = kept_tokenizer(directory); !kept.empty()) {
    std::error_code ignored;
    for (const auto& file : tokenizer_files(kept)) {
      if (std::filesystem::is_regular_file(file, ignored)) {
        form.tokenizer = TRAIN_TRY(sampled_digest(file));
        break;
      }
    }
  }
  return form;
}

/// Rejects a source whose kind, tokenizer or vocabulary differs from the first one's.
Status check_form(const SourceForm& first, const SourceForm& form, const std::string& key,
                  const std::string& directory, const std::string& of_first) {
  if (form.kind != first.kind) {
    return user_error(
        fmt::format("{}: {} holds rows of kind \"{}\", but {} rows of kind \"{}\"; all "
                    "sources of a mixture must be of one kind: prepare them the same way",
                    key, directory, form.kind, of_first, first.kind));
  }
  const bool other_names =
      !form.tokenizer.empty() && !first.tokenizer.empty() && form.tokenizer != first.tokenizer;
  const bool other_sizes =
      form.vocab_size && first.vocab_size && *form.vocab_size != *first.vocab_size;
  if (other_names || other_sizes) {
    return user_error(
        fmt::format("{}: {} was prepared with another tokenizer than {}; prepare "
                    "both with the same one",
                    key, directory, of_first));
  }
  return {};
}

/// Index in data.sources of a directory's first table.
std::size_t table_of(const configs::RunConfig& config, const std::string& directory) {
  const auto found = std::ranges::find(config.data.sources, directory, &configs::DataSource::dir);
  return static_cast<std::size_t>(found - config.data.sources.begin());
}

/// Refuses a directory that another source names by another path: its rows would count twice.
Status check_apart(const configs::RunConfig& config, const std::vector<std::string>& directories) {
  for (std::size_t i = 0; i < directories.size(); ++i) {
    for (std::size_t before = 0; before < i; ++before) {
      std::error_code gone;  // Opening a missing directory reports it.
      if (std::filesystem::equivalent(directories[before], directories[i], gone)) {
        return user_error(fmt::format(
            "{}: {} is the directory {} of another source; write one path for both, at most once "
            "in a stage",
            configs::source_key(table_of(config, directories[i]), "dir"), directories[i],
            directories[before]));
      }
    }
  }
  return {};
}

/// Refuses a run that reads a source more often than its max_epochs allow.
Status check_epochs(const configs::RunConfig& config, const configs::SourcePlan& plan,
                    const MixtureOrder& order) {
  const auto steps = static_cast<std::uint64_t>(config.run.steps);
  for (std::size_t source = 0; source < plan.directories.size(); ++source) {
    const auto rows = static_cast<double>(order.rows()[source]);
    const double most = std::floor(plan.max_epochs[source] * rows);
    if (plan.max_epochs[source] == 0.0 || static_cast<double>(order.drawn(source, steps)) <= most) {
      continue;
    }
    std::uint64_t fits = 0, lacks = steps;  // The first steps that need too many rows.
    while (fits + 1 < lacks) {
      const std::uint64_t middle = fits + (lacks - fits) / 2;
      (static_cast<double>(order.drawn(source, middle)) <= most ? fits : lacks) = middle;
    }
    return user_error(fmt::format(
        "{}: {} has {} training rows, and {:g} epochs of them end in step {} of {}, which need "
        "{:.2f}; raise max_epochs, lower the weight, give more rows, or end with run.steps = {}",
        configs::source_key(table_of(config, plan.directories[source]), "max_epochs"),
        plan.directories[source], order.rows()[source], plan.max_epochs[source], lacks, steps,
        static_cast<double>(order.drawn(source, steps)) / rows, fits));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const LaneSource>> open_sources(const configs::RunConfig& config,
                                                       std::int64_t vocab_size) {
  const configs::SourcePlan plan = configs::plan_sources(config.data.sources);
  TRAIN_RETURN_IF_ERROR(check_apart(config, plan.directories));
  std::vector<std::shared_ptr<const DirectoryLanes>> sources;
  std::vector<std::uint64_t> rows;
  std::optional<SourceForm> first;
  for (const std::string& directory : plan.directories) {
    const std::string key = configs::source_key(table_of(config, directory), "dir");
    configs::RunConfig of_source = config;
    of_source.data.dir = directory;
    auto lanes = TRAIN_TRY(open_directory(of_source, vocab_size, key.c_str()));
    const auto form = TRAIN_TRY(form_of(directory));
    TRAIN_RETURN_IF_ERROR(
        check_form(first.value_or(form), form, key, directory, plan.directories.front()));
    first = first.value_or(form);
    rows.push_back(lanes->facts().training_rows);
    sources.push_back(std::move(lanes));
  }
  const auto objective = engine::make_objective(config.objective);
  MixedLanes::Options options{
      .order = {.seed = config.run.seed,
                .lanes = static_cast<std::uint64_t>(config.batch.lanes),
                .micro_batch = static_cast<std::uint64_t>(config.batch.micro_batch),
                .rows = std::move(rows),
                .stages = plan.stages},
      .columns = objective->columns(),
      .steps = config.run.steps,
      .eval_lanes = config.eval.interval_steps > 0 ? config.eval.lanes : 0,
      .reference = engine::needs_reference(*objective),
      .live = config.objective.reference == "live",
      .names = plan.names};
  TRAIN_RETURN_IF_ERROR(check_epochs(config, plan, MixtureOrder(options.order)));
  return std::shared_ptr<const LaneSource>(
      std::make_shared<const MixedLanes>(std::move(options), std::move(sources)));
}

}  // namespace train::data
