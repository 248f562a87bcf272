#include <fmt/format.h>

#include <exception>

#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "cli/options.hpp"

namespace train::cli {
namespace {

int run_program(int argc, const char* const* argv) {
  const auto command = parse(argc, argv);
  const Result<int> code = command ? command->run() : Result<int>(command.error());
  if (!code) {
    log_error(code.error().message);  // one line on stderr
    return code.error().exit_code();
  }
  return *code;
}

}  // namespace
}  // namespace train::cli

int main(int argc, char* argv[]) {
  train::block_signals();
  try {
    return train::cli::run_program(argc, argv);
  } catch (const std::exception& error) {
    // A broken invariant or a device error outside the actors: one line, no stack trace.
    train::log_error(fmt::format("failed: {}", error.what()));
    return train::kExitFailure;
  }
}
