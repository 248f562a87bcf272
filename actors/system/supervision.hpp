#pragma once

#include <caf/actor_addr.hpp>
#include <caf/error.hpp>
#include <caf/exit_reason.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>
#include <exception>
#include <map>
#include <string>

#include "base/result.hpp"
#include "base/text/uncaught.hpp"

// Supervision: conversion of a thrown exception on its way to the conductor. The framework drops
// the text of an exception, so every actor turns it into an error with text.
namespace train::actors {

/// Error that ends an actor: part of the rank, its step, text of the exception.
[[nodiscard]] caf::error exception_error(const std::string& part, std::int64_t step,
                                         const std::exception_ptr& error);

/// The same for an actor that has no name yet.
[[nodiscard]] caf::error nameless_error(std::exception_ptr& error);

/// Text of an exit reason; empty for a normal exit or an ordered shutdown.
[[nodiscard]] std::string failure_text(const caf::error& reason);

/// Makes every exception in a handler of `self` end the actor with a text that names the part and
/// the step that the callables return. The first statement of every behaviour.
template <class Self, class Part, class Step>
void report_exceptions(Self self, Part part, Step step) {
  self->set_exception_handler(&nameless_error);  // Takes no memory, of which the next may lack.
  self->set_exception_handler(
      [part = std::move(part), step = std::move(step)](std::exception_ptr& error) {
        return exception_error(part(), step(), error);
      });
}
template <class Self, class Step>
void report_exceptions(Self self, const char* part, Step step) {
  report_exceptions(
      self, [part] { return std::string(part); }, std::move(step));
}

/// Runs `work` (which returns a Result) and turns an exception into an error, on a stream that must
/// survive it.
template <class Work>
auto attempt(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    return failure(exception_text(std::current_exception()));
  }
}

}  // namespace train::actors
