#pragma once

#include "actors/net/descriptor.hpp"

namespace train::actors {

/// Ends another thread's wait for descriptors.
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

}  // namespace train::actors
