#pragma once

#include <caf/all.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "actors/messages/event_messages.hpp"
#include "tests/sim/reference.hpp"

namespace train::sim {

/// What a simulated run must never do. The text is the same whenever its seed is played.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Watches a run over all its starts: its bits are the reference's (P1), and what was reported as
/// published can be restored at every later start (P3). Throws Violation.
class Checks {
 public:
  explicit Checks(const Reference& reference) : reference_(reference) {}

  /// A start, or a generation of `ranks`, resumes from `first_step`.
  void begin(std::int64_t first_step, std::int64_t ranks);
  /// A start resumes from `first_step`, and no generation of it trains more than `steps_per_job`
  /// steps beyond; 0: as many as there are.
  void begin_job(std::int64_t first_step, std::int64_t steps_per_job);
  /// What the conductor is about to hear.
  void hear(const caf::type_erased_tuple& message);
  /// A checkpoint of this step has to be there from now on.
  void promise(std::int64_t step);
  /// Nothing may have been set aside as damaged.
  void look_into(const std::filesystem::path& checkpoints) const;

  [[nodiscard]] std::int64_t promised() const { return promised_; }
  [[nodiscard]] std::int64_t published() const { return published_; }

 private:
  void hear_step(const actors::StepFinished& event);
  void hear_evaluation(const actors::EvaluationFinished& event) const;

  const Reference& reference_;
  std::int64_t promised_ = 0;
  std::int64_t published_ = 0;
  std::int64_t ranks_ = 1;
  std::optional<std::int64_t> job_end_;  // the last step that this start may train
  std::map<std::int64_t, std::pair<std::int64_t, std::uint64_t>> digests_;  // reports, their sum
};

}  // namespace train::sim
