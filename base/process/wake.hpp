#pragma once

#include "base/process/descriptor.hpp"

namespace train {

/// Interrupts another thread's wait on descriptors.
class Wake {
 public:
  Wake();
  /// Readable from set() to clear(). Thread-safe.
  [[nodiscard]] int descriptor() const { return event_.get(); }
  void set() const;
  void clear() const;

 private:
  Descriptor event_;
};

}  // namespace train
