#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

#include "actors/cluster/network/head_listener.hpp"
#include "actors/cluster/network/secure_scribe.hpp"
#include "actors/cluster/network/tls_connect.hpp"

namespace train::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr std::chrono::milliseconds kPatience{2000};  // of one try

/// One try to reach the head. Its errors are kept until the time is up; `refused` ends it at once.
class Attempt {
 public:
  Attempt(const Endpoint& endpoint, Clock::time_point deadline)
      : endpoint_(endpoint), deadline_(deadline) {}

  /// A connected socket whose peer has proved that it is the head.
  Result<TlsConnection> connect(const TlsContext& context) {
    auto connected = connect_tls(endpoint_, context, deadline_, refusal_);
    return connected ? std::move(connected) : error(connected.error().message);
  }

  /// The published actor, by the framework's own handshake.
  Result<caf::actor> resolve(caf::actor_system& system, caf::io::scribe_ptr scribe) {
    Result<caf::actor> answer = error("it published no actor");
    caf::scoped_actor self(system);
    const auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    self->request(broker, std::max(left, std::chrono::milliseconds(0)), caf::connect_atom_v,
                  std::move(scribe), endpoint_.port)
        .receive(
            [&](const caf::node_id&, const caf::strong_actor_ptr& actor,
                const std::set<std::string>&) {
              if (actor) {
                answer = caf::actor_cast<caf::actor>(actor);
              }
            },
            [&](const caf::error& reason) { answer = error(system.render(reason)); });
    return answer;
  }

  [[nodiscard]] bool refused() const { return refusal_.final; }

 private:
  Error error(const std::string& why) const {
    return failure(fmt::format("cannot join the head at {}: {}", to_string(endpoint_), why));
  }

  const Endpoint& endpoint_;
  Clock::time_point deadline_;
  TlsRefusal refusal_;
};

}  // namespace

Result<caf::actor> connect_to_head(caf::actor_system& system, const CredentialFiles& credentials,
                                   const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  const auto context = TlsContext::load(credentials, TlsEnd::worker);
  if (!context) {
    return context.error();
  }
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    Attempt attempt(endpoint, std::min(deadline, Clock::now() + kPatience));
    auto connected = attempt.connect(*context);
    Result<caf::actor> head =
        connected ? attempt.resolve(system, make_secure_scribe(system, std::move(connected->first),
                                                               std::move(connected->second)))
                  : Result<caf::actor>(connected.error());
    if (head || attempt.refused() || Clock::now() + kBetweenTries >= deadline) {
      return head;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace train::actors
