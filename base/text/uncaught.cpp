#include "base/text/uncaught.hpp"

#include <execinfo.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/exit_codes.hpp"
#include "base/process/joined_thread.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "base/text/units.hpp"

namespace train {
namespace {

std::atomic<bool> memory_ran_out{false};

[[noreturn]] void note_and_throw() {
  memory_ran_out = true;
  throw std::bad_alloc();
}

/// Soft limit of a resource, such as RLIMIT_AS; RLIM_INFINITY: none.
rlim_t limit_of(int resource) {
  rlimit limit = {};
  return ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 ? limit.rlim_cur
                                                                              : RLIM_INFINITY;
}

std::string address_limit() {
  const rlim_t bytes = limit_of(RLIMIT_AS);
  return bytes == RLIM_INFINITY ? "" : fmt::format("; `ulimit -v` allows {}", format_bytes(bytes));
}

/// Limits that memory meets before the machine's own, and what to do: "; ...".
std::string memory_advice() {
  const std::string limit = address_limit();
  return fmt::format("{}; {}, or let a run take less (batch.micro_batch)", limit,
                     limit.empty() ? "end other programs" : "raise it");
}

/// Likewise for threads, whose stacks take address space, too.
std::string thread_advice() {
  constexpr rlim_t kMany = 4096;
  std::string limit = address_limit();
  const rlim_t threads = limit_of(RLIMIT_NPROC);
  if (threads < kMany || (limit.empty() && threads != RLIM_INFINITY)) {
    limit += fmt::format("; `ulimit -u` allows this user {}", threads);
  }
  return fmt::format("{}; {}, or let a run take fewer (runtime.threads)", limit,
                     limit.empty() ? "end other programs" : "raise it");
}

bool thread_starts() {
  try {
    const JoinedThread thread([] {});
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

/// The start of a thread that failed: the program's own calls return their errors.
bool lacks_thread(const std::system_error& error) {
  return error.code() == std::error_code(EAGAIN, std::generic_category());
}

bool names_shortage(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error& caught) {
    return lacks_thread(caught);
  } catch (...) {
    return false;
  }
}

/// Cause of a call of std::terminate, and whether memory or threads have run out.
std::pair<std::string, bool> cause_of_end() {
  if (const std::exception_ptr error = std::current_exception()) {
    return {exception_text(error), names_shortage(error)};
  }
  // A thread that is destroyed while it runs hides the exception that was thrown before.
  if (!thread_starts()) {
    return {fmt::format("cannot start a thread{}", thread_advice()), true};
  }
  if (memory_ran_out) {
    return {fmt::format("out of memory{}", memory_advice()), true};
  }
  if (std::uncaught_exceptions() > 0) {  // By now there may be threads again.
    return {fmt::format("an exception that a running thread hides, as where one more cannot be "
                        "started{}",
                        thread_advice()),
            true};
  }
  return {"terminated without an exception", false};
}

struct Reported {
  std::string who;
  UncaughtEnd end = UncaughtEnd::exit_code;
};

Reported& reported() {
  static auto* const made = new Reported();  // Outlives every thread.
  return *made;
}

[[noreturn]] void end(bool shortage) {
  if (shortage && reported().end == UncaughtEnd::exit_code) {
    std::_Exit(kExitFailure);
  }
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

/// Writes a line that takes no memory and no lock.
void say_out_of_memory() {
  constexpr std::string_view kLine = "error failed: out of memory\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kLine.data(), kLine.size());
}

[[noreturn]] void end_without_words(int /*signal*/ = 0) {
  say_out_of_memory();
  end(true);
}

/// Ends a process whose libraries have called abort() because memory ran out, as an assertion does
/// that finds half of its work undone. On return from here any other abort() goes on.
void end_if_out_of_memory(int /*signal*/) {
  if (memory_ran_out) {
    say_out_of_memory();
    std::_Exit(kExitFailure);
  }
}

/// Initializers of libraries take memory, too, before main() has begun.
void end_in_initializers() {
  try {
    if (const std::exception_ptr error = std::current_exception()) {
      std::rethrow_exception(error);
    }
  } catch (const std::bad_alloc&) {
    say_out_of_memory();
    std::_Exit(kExitFailure);
  } catch (...) {  // Below.
  }
  std::abort();
}

/// True before report_uncaught(): libraries' initializers take memory, not always by `new`.
bool initializing = true;

/// Ends a process whose library has used what it asked for and did not get: the initializer of
/// CUDA's runtime, a JSON object that nlohmann's library has begun to make. Any other fault happens
/// again, with its usual end.
void end_at_null(int /*signal*/, siginfo_t* info, void* /*context*/) {
  constexpr std::uintptr_t kFirstPages = 1 << 16;
  if ((initializing || memory_ran_out) &&
      reinterpret_cast<std::uintptr_t>(info->si_addr) < kFirstPages) {
    say_out_of_memory();
    std::_Exit(kExitFailure);
  }
  std::signal(SIGSEGV, SIG_DFL);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kToldBySanitizer = true;  ///< Faults are the sanitizer's to tell.
#else
constexpr bool kToldBySanitizer = false;
#endif

void watch_faults() {
  if constexpr (!kToldBySanitizer) {
    struct sigaction faults = {};
    faults.sa_sigaction = end_at_null;
    faults.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &faults, nullptr);
  }
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)() = [] {
  std::set_terminate(end_in_initializers);
  watch_faults();
};

/// Leaves faults to their usual end, unless memory has run out before and the end is an exit code.
void leave_faults(UncaughtEnd end) {
  initializing = false;
  if (end == UncaughtEnd::exit_code) {
    watch_faults();
  } else if constexpr (!kToldBySanitizer) {
    std::signal(SIGSEGV, SIG_DFL);
  }
}

/// Limits the time that an end takes: nothing is unwound, so this thread may hold the lock of the
/// log, or of the memory, already.
void limit_end() {
  constexpr unsigned kPatience_s = 5;  // More than that of finish_output().
  std::signal(SIGALRM, end_without_words);
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(kPatience_s);
}

[[noreturn]] void end_with_a_line() {
  limit_end();
  bool shortage = true;
  try {
    const auto [cause, lacks] = cause_of_end();
    shortage = lacks;
    log_error(fmt::format("{}failed: {}", reported().who, cause));
  } catch (...) {
    end_without_words();
  }
  finish_output();
  end(shortage);
}

}  // namespace

std::string exception_text(const std::exception_ptr& error) {
  std::string text = "unknown exception";
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    text = fmt::format("out of memory (std::bad_alloc){}", memory_advice());
  } catch (const std::system_error& caught) {
    text = lacks_thread(caught)
               ? fmt::format("cannot start a thread: {}{}", caught.what(), thread_advice())
               : caught.what();
  } catch (const std::exception& caught) {
    text = caught.what();
  } catch (...) {
    // Not derived from std::exception: no text is available.
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void report_uncaught(std::string who, UncaughtEnd end) {
  leave_faults(end);
  reported() = {.who = std::move(who), .end = end};
  std::set_new_handler(note_and_throw);
  std::set_terminate(end_with_a_line);
  std::signal(SIGABRT, end == UncaughtEnd::exit_code ? end_if_out_of_memory : SIG_DFL);
  // The C library loads its unwinder when it first needs it, and aborts if it has no memory then.
  void* here = nullptr;
  (void)::backtrace(&here, 1);
}

}  // namespace train
