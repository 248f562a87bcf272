#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/process/descriptor.hpp"
#include "base/process/joined_thread.hpp"
#include "base/result.hpp"

namespace train::engine {

/// Tells the owners of connections when these are closed or break, whatever the owners wait for;
/// and while one asks, when it could read or write. It reads and writes nothing. One thread for all
/// connections of a world, which sleeps until something happens.
///
/// Threading: thread-safe.
class ConnectionWatch {
 public:
  /// `over`: the other end has closed the connection, or it broke. Called on the thread of the
  /// watch: neither adds nor removes.
  using Changed = std::function<void(bool over)>;
  struct Asked {
    bool to_read = false;
    bool to_write = false;
  };

  /// Errors (failure): the system has no descriptors left.
  [[nodiscard]] static Result<std::shared_ptr<ConnectionWatch>> make();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;
  ~ConnectionWatch();

  /// `socket` stays open until remove(). Errors (failure): the system cannot watch it.
  [[nodiscard]] Status add(int socket, Changed changed);
  /// From here on `changed` is also called when this is possible: at once if it is, and then each
  /// time that it becomes so. REQUIRES: added.
  void ask(int socket, const Asked& asked);
  /// On return `changed` is not called any more.
  void remove(int socket);

 private:
  struct Watched {
    std::uint64_t id = 0;
    Changed changed;
  };

  ConnectionWatch(Descriptor epoll, Descriptor end);
  void loop();
  void tell(std::uint64_t id, bool over);

  Descriptor epoll_;
  Descriptor end_;  ///< An eventfd.
  std::mutex mutex_;
  std::map<int, Watched> watched_;      ///< By descriptor.
  std::map<std::uint64_t, int> by_id_;  ///< Sockets by epoll id, which is never reused.
  std::uint64_t last_id_ = 0;
  JoinedThread thread_;
};

}  // namespace train::engine
