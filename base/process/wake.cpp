#include "base/process/wake.hpp"

#include <sys/eventfd.h>

#include <cstdint>

#include "base/check.hpp"

namespace train {

Wake::Wake() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TRAIN_CHECK(event_); }

void Wake::set() const {
  const std::uint64_t one = 1;
  // Always succeeds unless the eventfd is full.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof(one));
}

void Wake::clear() const {
  std::uint64_t count = 0;
  // Fails if it was already clear.
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof(count));
}

}  // namespace train
