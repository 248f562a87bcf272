#include "actors/cluster/network/head_listener.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <set>
#include <thread>
#include <utility>

#include "actors/cluster/network/byte_relay.hpp"
#include "actors/cluster/network/peer_acceptor.hpp"
#include "actors/cluster/network/system_config.hpp"
#include "base/text/log.hpp"

namespace train::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr std::chrono::milliseconds kTryTime{2000};

/// Wraps the connection for the framework's broker. The framework's own TLS layer performs the
/// handshake inside the broker: there a silent peer keeps the network thread spinning and is never
/// dropped. Here the framework gets a connection only after its peer has authenticated, as a plain
/// local socket.
Result<caf::io::scribe_ptr> make_scribe(caf::actor_system& system,
                                        std::unique_ptr<SecureStream> stream) {
  auto local = TRAIN_TRY(relay_bytes(loop_of(system), std::move(stream)));
  return system.middleman().backend().new_scribe(local.release());
}

/// Actor published at the other end, by the framework's handshake.
Result<caf::actor> take_published(caf::actor_system& system, std::unique_ptr<SecureStream> stream,
                                  std::uint16_t port, Clock::time_point deadline) {
  auto scribe = TRAIN_TRY(make_scribe(system, std::move(stream)));
  Result<caf::actor> answer = failure("it published no actor");
  caf::scoped_actor self(system);
  const auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  self->request(broker, std::max(left, std::chrono::milliseconds(0)), caf::connect_atom_v,
                std::move(scribe), port)
      .receive(
          [&](const caf::node_id&, const caf::strong_actor_ptr& actor,
              const std::set<std::string>&) {
            if (actor) {
              answer = caf::actor_cast<caf::actor>(actor);
            }
          },
          [&](const caf::error& reason) { answer = failure(system.render(reason)); });
  return answer;
}

}  // namespace

HeadListener::HeadListener(Endpoint endpoint, std::unique_ptr<Task> accepting)
    : endpoint_(std::move(endpoint)), accepting_(std::move(accepting)) {}

HeadListener::~HeadListener() = default;

Status HeadListener::check(const Options& options) {
  asio::io_context context;
  const auto listening = open_port(context, options.address, options.port);
  return listening ? Status() : Status(listening.error());
}

Result<std::unique_ptr<HeadListener>> HeadListener::open(caf::actor_system& system,
                                                         const caf::actor& published,
                                                         const CredentialFiles& credentials,
                                                         const Options& options) {
  auto identity = TRAIN_TRY(load_identity(credentials, StreamEnd::head));
  auto listening = TRAIN_TRY(open_port(loop_of(system).context(), options.address, options.port));
  const Endpoint endpoint{.host = options.address,
                          .port = listening.local_endpoint().port(),
                          .generation = options.generation};
  auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  // Published on every connection separately: the framework does not listen.
  auto admit = [=, &system, port = endpoint.port](std::unique_ptr<SecureStream> stream) {
    auto scribe = make_scribe(system, std::move(stream));
    if (!scribe) {
      return log_warning(fmt::format("peer_dropped {}", scribe.error().message));
    }
    caf::anon_send(broker, caf::publish_atom_v, std::move(scribe).value(), port,
                   caf::actor_cast<caf::strong_actor_ptr>(published), std::set<std::string>());
  };
  auto accepting = std::make_unique<Task>(
      loop_of(system), accept_peers(std::move(listening), std::move(identity), std::move(admit)));
  return std::unique_ptr<HeadListener>(new HeadListener(endpoint, std::move(accepting)));
}

Result<caf::actor> connect_to_head(caf::actor_system& system, const CredentialFiles& credentials,
                                   const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  const auto identity = TRAIN_TRY(load_identity(credentials, StreamEnd::worker));
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const auto try_until = std::min(deadline, Clock::now() + kTryTime);
    auto stream = run_on(loop_of(system), connect_securely(endpoint, identity, try_until));
    auto head = stream ? take_published(system, std::move(*stream), endpoint.port, try_until)
                       : Result<caf::actor>(stream.error());
    if (head) {
      return head;
    }
    // With another run's certificate no retry can succeed.
    if (head.error().kind == ErrorKind::user || Clock::now() + kBetweenTries >= deadline) {
      return failure(
          fmt::format("cannot join the head at {}: {}", to_string(endpoint), head.error().message));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace train::actors
