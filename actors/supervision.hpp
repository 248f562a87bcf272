#pragma once

#include <caf/actor_addr.hpp>
#include <caf/error.hpp>
#include <caf/exit_reason.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>
#include <exception>
#include <map>
#include <string>

#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"

// Supervision: what a thrown exception becomes on its way to the conductor. The framework loses the
// text of an exception, so every actor turns it into an error that carries text.
namespace train::actors {

/// The error an actor ends with: part of the rank, its step, what was thrown.
[[nodiscard]] caf::error exception_error(const std::string& part, std::int64_t step,
                                         const std::exception_ptr& error);

/// The text of an exit reason; empty for a normal exit or an ordered shutdown.
[[nodiscard]] std::string failure_text(const caf::error& reason);

/// Makes every exception in a handler of `self` end the actor with a text that names `part` and the
/// step that `step` (a callable) returns.
template <class Self, class Step>
void report_exceptions(Self self, std::string part, Step step) {
  self->set_exception_handler([part = std::move(part), step](std::exception_ptr& error) {
    return exception_error(part, step(), error);
  });
}

/// What `work` (which returns a Result) says, or what it threw: on a stream that must live on.
template <class Work>
auto attempt(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    return failure(exception_text(std::current_exception()));
  }
}

}  // namespace train::actors
