#include "cli/report_error.hpp"

#include "base/log.hpp"

namespace train::cli {

int report_error(const Error& error) {
  log_error(error.message);
  return error.exit_code();
}

}  // namespace train::cli
