#include "base/error.hpp"

#include <utility>

#include "base/text/one_line.hpp"

namespace train {

Error user_error(std::string message) {
  return {ErrorKind::user, without_controls(std::move(message))};
}

Error failure(std::string message) {
  return {ErrorKind::failure, without_controls(std::move(message))};
}

Error damage(std::string message) {
  return {ErrorKind::damage, without_controls(std::move(message))};
}

}  // namespace train
