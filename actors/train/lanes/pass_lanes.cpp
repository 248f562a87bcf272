#include "actors/train/lanes/pass_lanes.hpp"

#include <algorithm>
#include <utility>

#include "engine/objective/registry.hpp"
#include "storage/files/digest.hpp"

namespace train::actors {

using engine::CommandKind;

PassLanes::PassLanes(std::shared_ptr<const LaneSource> first,
                     std::shared_ptr<const LaneSource> second, const configs::RunConfig& config,
                     std::int64_t vocab_size)
    : first_(std::move(first)),
      second_(std::move(second)),
      objective_(engine::make_objective(config.objective)),
      vocab_size_(vocab_size) {}

const LaneSource* PassLanes::of(CommandKind kind) const {
  return engine::has_backward(kind) && !engine::of_first_pass(kind) ? second_.get() : first_.get();
}

Status PassLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  if (work.kind == CommandKind::reference) {
    const engine::StepPass frozen = engine::step_pass(work.step);
    engine::LaneWork of_pass = work;
    of_pass.step = frozen.step;
    of_pass.kind = CommandKind::train_step;
    return (frozen.pass == 0 ? first_ : second_)->read(of_pass, slot);
  }
  if (of(work.kind) == nullptr) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(of(work.kind)->read(work, slot));
  if (engine::has_backward(work.kind)) {
    const std::vector<engine::Pass> passes = objective_->passes(work.step);
    if (const auto seed = engine::pass_of(passes, work.kind).target_seed) {
      const auto lane_rows = static_cast<std::int64_t>(slot.targets.size());
      engine::draw_targets(*seed, work.step, work.lane * lane_rows, vocab_size_, slot.targets);
    }
  }
  return {};
}

std::optional<engine::RowCount> PassLanes::count_pass(CommandKind kind, std::int64_t step) const {
  return of(kind) == nullptr ? engine::RowCount{} : of(kind)->count(step);
}

std::optional<engine::RowCount> PassLanes::count(std::int64_t step) const {
  engine::RowCount sum = first_->count(step).value();
  return second_ ? sum += second_->count(step).value() : sum;
}

std::uint64_t PassLanes::training_rows() const {
  return first_->training_rows() + (second_ ? second_->training_rows() : 0);
}

ReferenceRows PassLanes::reference_rows() const {
  const std::int64_t sequences = first_->reference_rows().lane_sequences;
  const std::vector<engine::Pass> passes = objective_->passes(0);
  ReferenceRows rows{
      .lane_sequences =
          second_ ? std::max(sequences, second_->reference_rows().lane_sequences) : sequences,
      .of_passes = true,
      .frozen_first = passes.front().compared != engine::Compared::nothing,
      .frozen_second = passes.back().compared != engine::Compared::nothing};
  rows.live = rows.frozen_first || rows.frozen_second || objective_->reads_first_weights();
  rows.commands = rows.live ? 1 : 0;
  return rows;
}

std::optional<double> PassLanes::bytes_per_token() const { return first_->bytes_per_token(); }

Result<std::string> PassLanes::fingerprint() const {
  auto first = first_->fingerprint();
  TRAIN_RETURN_IF_ERROR(first);
  if (!second_) {
    return storage::digest_text("first pass " + *first + "\nno second pass\n");
  }
  auto second = second_->fingerprint();
  TRAIN_RETURN_IF_ERROR(second);
  return storage::digest_text("first pass " + *first + "\nsecond pass " + *second + "\n");
}

Result<std::shared_ptr<const LaneSource>> open_passes(const configs::RunConfig& config,
                                                      std::int64_t vocab_size) {
  const auto objective = engine::make_objective(config.objective);
  if (objective->rewards_distance()) {
    auto only = open_rows(config, vocab_size);
    TRAIN_RETURN_IF_ERROR(only);
    return std::shared_ptr<const LaneSource>(
        std::make_shared<const PassLanes>(std::move(only).value(), nullptr, config, vocab_size));
  }
  if (config.data.forget_dir.empty()) {
    return user_error(
        "data.forget_dir is missing; name the packed rows that are to be forgotten (data.dir has "
        "those to retain)");
  }
  auto first = open_rows(config, vocab_size);
  TRAIN_RETURN_IF_ERROR(first);
  configs::RunConfig forgotten = config;
  forgotten.data.dir = config.data.forget_dir;
  forgotten.eval.interval_steps = 0;
  const bool weighs = objective->any_weighting() != nullptr;
  auto second = open_rows(forgotten, vocab_size, /*means_of_documents=*/weighs);
  TRAIN_RETURN_IF_ERROR(second);
  return std::shared_ptr<const LaneSource>(std::make_shared<const PassLanes>(
      std::move(first).value(), std::move(second).value(), config, vocab_size));
}

}  // namespace train::actors
