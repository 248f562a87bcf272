#pragma once

#include <string>

#include "engine/collective/collective.hpp"

namespace train::engine {

/// The way of one rank to all others on one channel, on which a GlooChannel runs its exchanges.
///
/// Threading: one owner; abort() is safe from any thread.
class ChannelLink {
 public:
  virtual ~ChannelLink() = default;
  ChannelLink(const ChannelLink&) = delete;
  ChannelLink& operator=(const ChannelLink&) = delete;

  /// Runs one exchange to its end; blocks. After a failure the memory of the transfer is not
  /// touched any more, and nothing but disconnect() may be called. Errors: failure naming the rank
  /// that differs, that closed the connection or was waited for.
  [[nodiscard]] virtual Status run(const CollectiveIdentity& identity,
                                   const Transfer& transfer) = 0;
  /// Ends a run() under way, and later ones, with `reason`.
  virtual void abort(const std::string& reason) = 0;
  /// Closes the connections; may take a few milliseconds per rank. Peers that wait for this rank
  /// fail; without a farewell all do that wait for anybody.
  virtual void disconnect(bool farewell) = 0;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

 protected:
  ChannelLink() = default;
};

}  // namespace train::engine
