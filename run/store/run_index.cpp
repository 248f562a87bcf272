#include "run/store/run_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text/log.hpp"

namespace train::run {
namespace {

constexpr std::size_t kMostSteps = 100'000;
constexpr std::size_t kMostRemarks = 10'000;
constexpr std::size_t kStepsAtOnce = 1000;

/// Change that only opens the index and runs a queued take_back().
Status no_change(checkpoint::CheckpointIndex& /*index*/) { return {}; }

}  // namespace

Status RunIndex::open() {
  auto opened = TRAIN_TRY(open_(reading_));
  index_.emplace(std::move(opened));
  reading_ = checkpoint::IndexReading::needed;
  log_report();
  return {};
}

void RunIndex::log_report() const {
  const checkpoint::ReconcileReport& report = index_->index.report();
  if (report.rebuilt && !index_->index.entries().empty()) {
    log_warning(fmt::format("index_rebuilt {}", report.reason));
  }
  for (const std::string& name : report.adopted) {
    log_info(fmt::format("checkpoint_adopted {}", name));
  }
}

Status RunIndex::change(const Change& work) {
  Status done = index_ ? Status() : open();
  if (done && taken_back_) {  // Before the steps that replace those.
    done = index_->index.take_back(*taken_back_);
    if (done) {
      taken_back_.reset();
    }
  }
  if (done) {
    done = work(index_->index);
  }
  if (!done) {
    close(done.error());
  }
  return done;
}

void RunIndex::close(const Error& why) {
  if (!std::exchange(behind_, true)) {
    log_warning(fmt::format("index_behind {}; the run continues, index updates wait in memory",
                            why.message));
  }
  if (index_) {
    committed_ = index_->index.committed();
    index_.reset();
    // The write may have met damage; old steps are otherwise not read.
    reading_ = checkpoint::IndexReading::all;
  }
}

Status RunIndex::look_again() {
  if (!index_) {
    return change(no_change);
  }
  TRAIN_RETURN_IF_ERROR(change([](auto& index) { return index.look_again(); }));
  log_report();
  return {};
}

Status RunIndex::journal(std::span<const checkpoint::StepRecord> steps) {
  steps_.insert(steps_.end(), steps.begin(), steps.end());
  if (steps_.size() > kMostSteps) {
    steps_.erase(steps_.begin(), steps_.end() - static_cast<std::ptrdiff_t>(kMostSteps));
  }
  return catch_up();
}

Status RunIndex::take_back(std::int64_t step) {
  std::erase_if(steps_, [step](const auto& record) { return record.step > step; });
  std::erase_if(remarks_, [step](const Remark& remark) { return remark.of_step > step; });
  taken_back_ = std::min(taken_back_.value_or(step), step);
  const Status done = change(no_change);
  // It reads steps, which may be damaged: opening repairs them.
  return done ? done : change(no_change);
}

Status RunIndex::note(Change remark, std::int64_t of_step) {
  remarks_.push_back({.write = std::move(remark), .of_step = of_step});
  if (remarks_.size() > kMostRemarks) {
    remarks_.pop_front();
  }
  return index_ ? catch_up() : Status();
}

Status RunIndex::catch_up() {
  Status written = write_waiting();
  if (written && std::exchange(behind_, false)) {
    log_info("index_caught_up all that waited is noted");
  }
  return written;
}

Status RunIndex::write_waiting() {
  if (taken_back_) {
    TRAIN_RETURN_IF_ERROR(change(no_change));
  }
  while (!steps_.empty()) {
    const auto last =
        steps_.begin() + static_cast<std::ptrdiff_t>(std::min(kStepsAtOnce, steps_.size()));
    const std::vector<checkpoint::StepRecord> records(steps_.begin(), last);
    TRAIN_RETURN_IF_ERROR(change([&](auto& index) { return index.log_steps(records); }));
    steps_.erase(steps_.begin(), last);
  }
  while (!remarks_.empty()) {
    TRAIN_RETURN_IF_ERROR(change(remarks_.front().write));
    remarks_.pop_front();
  }
  return {};
}

Result<std::string> RunIndex::head() {
  if (!index_) {
    TRAIN_RETURN_IF_ERROR(open());
  }
  return index_->index.head();
}

std::vector<checkpoint::IndexEntry> RunIndex::committed() const {
  return index_ ? index_->index.committed() : committed_;
}

std::optional<std::int64_t> RunIndex::newest_known() const {
  if (index_) {
    const std::vector<checkpoint::IndexEntry>& entries = index_->index.entries();
    return entries.empty() ? std::nullopt : std::optional(entries.back().step);
  }
  return committed_.empty() ? std::nullopt : std::optional(committed_.back().step);
}

std::vector<checkpoint::StepRecord> RunIndex::steps(std::int64_t first, std::int64_t last) const {
  auto found = index_ ? checkpoint::read_steps(*index_->store, first, last)
                      : Result(std::vector<checkpoint::StepRecord>());
  return found ? std::move(found).value() : std::vector<checkpoint::StepRecord>();
}

checkpoint::StepRecord step_record(const StepFinished& event) {
  return {.step = event.step,
          .loss = event.loss.value(),
          .grad_norm = event.grad_norm.value(),
          .lr = event.lr.value(),
          .unit_grad_norms = event.unit_grad_norms,
          .tensor_digests = event.tensor_digests};
}

}  // namespace train::run
