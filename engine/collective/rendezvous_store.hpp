#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::engine {

/// Store in which the ranks of a world exchange their addresses. Keys are words of letters,
/// digits, '.', '_' and '-'. Used by one thread at a time.
///
/// Values in the store are trusted, and the secret of a generation is among them: only ranks of the
/// run may read and write the store.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  RendezvousStore(const RendezvousStore&) = delete;
  RendezvousStore& operator=(const RendezvousStore&) = delete;

  [[nodiscard]] virtual Status set(const std::string& key, const std::vector<char>& bytes) = 0;
  /// Waits until `key` is set. Errors: failure, after `timeout`.
  [[nodiscard]] virtual Result<std::vector<char>> get(const std::string& key,
                                                      std::chrono::milliseconds timeout) = 0;

 protected:
  RendezvousStore() = default;
};

}  // namespace train::engine
