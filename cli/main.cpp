#include <fmt/format.h>

#include <algorithm>
#include <any>
#include <exception>
#include <string_view>
#include <system_error>

#include "base/exit_codes.hpp"
#include "base/math/float_mode.hpp"
#include "base/process/descriptor_limit.hpp"
#include "base/process/own_program.hpp"
#include "base/process/stack_limit.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "base/text/uncaught.hpp"
#include "cli/options.hpp"
#include "engine/collective/peer_proof.hpp"
#include "engine/rank/plan/run_device.hpp"

namespace train::cli {
namespace {

Result<int> run_command(int argc, const char* const* argv) {
  TRAIN_RETURN_IF_ERROR(raise_stack_limit());
  TRAIN_RETURN_IF_ERROR(engine::check_processor());
  const auto command = TRAIN_TRY(parse(argc, argv));
  const int exit_code = TRAIN_TRY(command.run());
  const int lost = standard_output().failure();
  // Training does not depend on its lines; what other commands print is their result.
  const bool trains = std::any_cast<RunOptions>(&command.options) != nullptr ||
                      std::any_cast<QuickstartOptions>(&command.options) != nullptr;
  if (lost != 0 && exit_code == kExitFinished && !trains) {
    return failure(
        fmt::format("cannot write the output to the end: {}; make room, or send it "
                    "elsewhere",
                    std::generic_category().message(lost)));
  }
  return exit_code;
}

int run_program(int argc, const char* const* argv) {
  const Result<int> code = run_command(argc, argv);
  if (!code) {
    for (std::string_view rest = code.error().message; !rest.empty();) {  // A line a mistake.
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      log_error(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return code.error().exit_code();
  }
  return *code;
}

}  // namespace
}  // namespace train::cli

int main(int argc, char* argv[]) {
  train::keep_standard_descriptors();
  train::name_process();
  train::set_float_mode();
  train::block_signals();
  train::raise_descriptor_limit();
  train::report_uncaught();
  try {
    train::engine::ignore_openssl_configuration();
    return train::cli::run_program(argc, argv);
  } catch (const std::exception&) {
    // A broken invariant or a device error outside the actors: one line, no stack trace.
    train::log_error(fmt::format("failed: {}", train::exception_text(std::current_exception())));
    return train::kExitFailure;
  }
}
