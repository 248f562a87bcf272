#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "actors/messages/event_messages.hpp"
#include "base/result.hpp"

namespace train::actors {

/// Compares what ranks report of the same step: promise P1 says that it is the same bitwise. A
/// plain class; the conductor owns it.
class RankAgreement {
 public:
  /// The event of one of `ranks` ranks. When it is the last one: the event of all of them, with the
  /// sum of their digests. Errors (failure): two ranks differ; names both, the step and the values.
  [[nodiscard]] Result<std::optional<StepFinished>> hear(const StepFinished& event,
                                                         std::size_t ranks);
  /// True: it was the last one.
  [[nodiscard]] Result<bool> hear(const EvaluationFinished& event, std::size_t ranks);

 private:
  template <class Event>
  struct Heard {
    Event first;
    std::size_t count = 0;
  };
  std::map<std::int64_t, Heard<StepFinished>> steps_;
  std::map<std::int64_t, Heard<EvaluationFinished>> evaluations_;
};

}  // namespace train::actors
