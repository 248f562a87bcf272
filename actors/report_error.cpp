#include "actors/report_error.hpp"

#include "engine/base/log.hpp"

namespace train::actors {

int report_error(const Error& error) {
  log_error(error.message);
  return error.exit_code();
}

}  // namespace train::actors
