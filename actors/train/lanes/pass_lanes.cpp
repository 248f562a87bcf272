#include "actors/train/lanes/pass_lanes.hpp"

#include <algorithm>
#include <utility>

#include "engine/objective/registry.hpp"
#include "storage/files/digest.hpp"

namespace train::actors {

using engine::CommandKind;
using engine::StepProgram;

PassLanes::PassLanes(std::shared_ptr<const LaneSource> first,
                     std::shared_ptr<const LaneSource> second, const configs::RunConfig& config,
                     std::int64_t vocab_size)
    : first_(std::move(first)),
      second_(std::move(second)),
      program_(engine::program_of(config.objective)),
      vocab_size_(vocab_size) {}

const LaneSource& PassLanes::of(CommandKind kind) const {
  const bool second =
      engine::has_backward(kind) && StepProgram::pass_of(kind) == StepProgram::Pass::second;
  return second ? *second_ : *first_;
}

Status PassLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  if (work.kind == CommandKind::reference) {
    const auto frozen = StepProgram::frozen_pass(work.step);
    engine::LaneWork of_pass = work;
    of_pass.step = frozen.step;
    of_pass.kind = CommandKind::train_step;
    return (frozen.pass == StepProgram::Pass::first ? first_ : second_)->read(of_pass, slot);
  }
  if (program_->without_rows(work.kind)) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(of(work.kind).read(work, slot));
  if (engine::has_backward(work.kind)) {
    const auto lane_rows = static_cast<std::int64_t>(slot.targets.size());
    program_->set_targets(StepProgram::pass_of(work.kind), work.step, work.lane * lane_rows,
                          vocab_size_, slot.targets);
  }
  return {};
}

std::optional<engine::RowCount> PassLanes::count_pass(CommandKind kind, std::int64_t step) const {
  return program_->without_rows(kind) ? engine::RowCount{} : of(kind).count(step);
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
  ReferenceRows rows{
      .lane_sequences =
          second_ ? std::max(sequences, second_->reference_rows().lane_sequences) : sequences,
      .of_passes = true,
      .frozen_first = program_->reads_frozen(StepProgram::Pass::first),
      .frozen_second = program_->reads_frozen(StepProgram::Pass::second)};
  rows.live = rows.frozen_first || rows.frozen_second || program_->reads_first_weights();
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
  const auto program = engine::program_of(config.objective);
  if (program->rewards_distance()) {
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
  const bool weighs = program->weighting() != nullptr;
  auto second = open_rows(forgotten, vocab_size, /*means_of_documents=*/weighs);
  TRAIN_RETURN_IF_ERROR(second);
  return std::shared_ptr<const LaneSource>(std::make_shared<const PassLanes>(
      std::move(first).value(), std::move(second).value(), config, vocab_size));
}

}  // namespace train::actors
