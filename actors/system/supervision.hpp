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

/// Text of an exit reason; empty for a normal exit or an ordered shutdown.
[[nodiscard]] std::string failure_text(const caf::error& reason);

/// Makes every exception in a handler of `self` end the actor with a text that names `part` and the
/// step that `step` (a callable) returns.
template <class Self, class Step>
void report_exceptions(Self self, std::string part, Step step) {
  self->set_exception_handler([part = std::move(part), step](std::exception_ptr& error) {
    return exception_error(part, step(), error);
  });
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
