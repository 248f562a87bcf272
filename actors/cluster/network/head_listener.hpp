#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "base/result.hpp"

// How workers find the head: one port, one published actor, certificates on both sides.
namespace train::actors {

class Task;

/// Publishes one actor to whoever holds a worker's certificate of this run, for as long as this
/// lives. Handles that workers have taken stay good after that.
///
/// Threading: any one thread but that of the system's event loop, which serves it.
class HeadListener {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;        ///< 0: any free one.
    std::uint32_t generation = 0;  ///< As in Endpoint.
  };

  /// Whether the address and the port of `options` are free to listen on, without doing so: to say
  /// so before anything is begun. Errors (user): as open().
  [[nodiscard]] static Status check(const Options& options);

  /// On return the port listens.
  /// Errors: port taken or not allowed, address not of this node (user); files as credentials say.
  /// REQUIRES: `system` is configured by ControlConfig and outlives this.
  [[nodiscard]] static Result<std::unique_ptr<HeadListener>> open(
      caf::actor_system& system, const caf::actor& published, const CredentialFiles& credentials,
      const Options& options);
  ~HeadListener();
  HeadListener(const HeadListener&) = delete;
  HeadListener& operator=(const HeadListener&) = delete;

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

 private:
  HeadListener(Endpoint endpoint, std::unique_ptr<Task> accepting);

  Endpoint endpoint_;
  std::unique_ptr<Task> accepting_;
};

/// The actor that the head has published. Tries again until `timeout`, for the head may be busy or
/// not there yet; blocks.
/// Errors: the certificates do not fit, or nobody answered in time (failure); files as credentials
/// say. REQUIRES: `system` is configured by ControlConfig.
[[nodiscard]] Result<caf::actor> connect_to_head(caf::actor_system& system,
                                                 const CredentialFiles& credentials,
                                                 const Endpoint& endpoint,
                                                 std::chrono::milliseconds timeout);

}  // namespace train::actors
