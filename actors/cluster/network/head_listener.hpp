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

// Connection of workers to the head: one port, one published actor, certificates on both sides.
namespace train::actors {

class Task;

/// Publishes one actor, while it lives, to peers with a worker certificate of this run. Handles
/// already given out stay valid afterwards.
///
/// Threading: any one thread except that of the system's event loop, which serves it.
class HeadListener {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    std::uint16_t port = 0;        ///< 0: any free port.
    std::uint32_t generation = 0;  ///< As in Endpoint.
  };

  /// Checks, without listening, that the address and port of `options` are free, so that errors are
  /// reported before anything starts. Errors (user): as open().
  [[nodiscard]] static Status check(const Options& options);

  /// Listens on return. Errors: port taken or not allowed, address not of this node (user); errors
  /// of the credential files. REQUIRES: `system` is configured by ControlConfig and outlives this
  /// object.
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

/// Returns the actor that the head publishes. Retries until `timeout`, as the head may be busy or
/// not yet there; blocks. Errors: certificates do not match, or no answer in time (failure); errors
/// of the credential files. REQUIRES: `system` is configured by ControlConfig.
[[nodiscard]] Result<caf::actor> connect_to_head(caf::actor_system& system,
                                                 const CredentialFiles& credentials,
                                                 const Endpoint& endpoint,
                                                 std::chrono::milliseconds timeout);

}  // namespace train::actors
