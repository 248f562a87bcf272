#pragma once

#include <stdexcept>

namespace train::kernels {

/// Out of device memory, a failed launch, a library's error status: statement, place and reason in
/// one line. Caught in one place: the stream's failure handler or the actor's exception handler.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace train::kernels
