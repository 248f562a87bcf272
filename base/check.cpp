#include "base/check.hpp"

namespace train {

void check_failed(const char* condition, const std::string& text,
                  const std::source_location& where) {
  throw CheckFailed(fmt::format("{}:{}: check failed: {}{}{}", where.file_name(), where.line(),
                                condition, text.empty() ? "" : ": ", text));
}

}  // namespace train
