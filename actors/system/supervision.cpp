#include "actors/system/supervision.hpp"

#include <fmt/format.h>

#include <caf/deep_to_string.hpp>

namespace train::actors {

caf::error exception_error(const std::string& part, std::int64_t step,
                           const std::exception_ptr& error) {
  std::string text = step >= 0
                         ? fmt::format("{}, step {}: {}", part, step + 1, exception_text(error))
                         : fmt::format("{}: {}", part, exception_text(error));
  return caf::make_error(caf::sec::runtime_error, std::move(text));
}

caf::error nameless_error(std::exception_ptr& error) {
  return exception_error("a part at its start", -1, error);
}

std::string failure_text(const caf::error& reason) {
  if (!reason || reason == caf::exit_reason::user_shutdown || reason == caf::exit_reason::normal ||
      reason == caf::exit_reason::unreachable) {
    return {};
  }
  const caf::message& context = reason.context();
  if (!context.empty() && context.match_element<std::string>(0)) {
    return context.get_as<std::string>(0);
  }
  if (reason == caf::sec::runtime_error) {  // From the framework's own handler.
    return "an exception whose text is lost";
  }
  return caf::deep_to_string(reason);
}

}  // namespace train::actors
