#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace train {

/// Text of an exception in flight, one line. A lack of memory or of threads is named with the
/// limits of this process (`ulimit -v`, `ulimit -u`) and a way out.
[[nodiscard]] std::string exception_text(const std::exception_ptr& error);

/// End of a process after a lack of memory or threads that nothing catches.
enum class UncaughtEnd : std::uint8_t {
  exit_code,  ///< kExitFailure.
  abort       ///< SIGABRT: a rank that ends by a signal is lost, and may be started again.
};

/// Makes std::terminate log a line "<who>failed: <cause>" first, also where a library has lost the
/// exception. After any other cause the process ends by SIGABRT, with a core dump.
void report_uncaught(std::string who = "", UncaughtEnd end = UncaughtEnd::exit_code);

}  // namespace train
