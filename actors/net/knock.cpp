#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <cerrno>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "actors/net/head_door.hpp"
#include "actors/net/secure_scribe.hpp"

namespace train::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr std::chrono::milliseconds kPatience{2000};  // of one try

int until_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

/// False: not ready before the deadline.
bool ready(int socket, short events, Clock::time_point deadline) {
  pollfd watched{.fd = socket, .events = events, .revents = 0};
  int result = -1;
  do {
    result = ::poll(&watched, 1, until_ms(deadline));
  } while (result < 0 && errno == EINTR);
  return result > 0;
}

/// One try to reach the head. Its errors are kept until the time is up; `refused` ends it at once.
class Attempt {
 public:
  Attempt(const Endpoint& endpoint, Clock::time_point deadline)
      : endpoint_(endpoint), deadline_(deadline) {}

  /// A connected socket whose peer has proved that it is the head.
  Result<std::pair<Descriptor, TlsSession>> connect(const TlsContext& context) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    TRAIN_RETURN_IF_ERROR(connect(socket.get()));
    TlsSession session(context, socket.get());
    for (;;) {
      const TlsSession::State state = session.shake_hands();
      if (state == TlsSession::State::done) {
        return std::pair(std::move(socket), std::move(session));
      }
      if (state == TlsSession::State::failed) {
        refused_ = !session.refusal().empty();
        return error(refused_ ? "its certificate is not of this run: " + session.refusal()
                              : "it closed the connection while shaking hands");
      }
      const short events = state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
      if (!ready(socket.get(), events, deadline_)) {
        return error("it is silent");
      }
    }
  }

  /// The published actor, by the framework's own handshake.
  Result<caf::actor> resolve(caf::actor_system& system, caf::io::scribe_ptr scribe) {
    Result<caf::actor> answer = error("it published no actor");
    caf::scoped_actor self(system);
    const auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
    self->request(broker, std::chrono::milliseconds(until_ms(deadline_)), caf::connect_atom_v,
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

  [[nodiscard]] bool refused() const { return refused_; }

 private:
  Status connect(int socket) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint_.port);
    if (::inet_pton(AF_INET, endpoint_.host.c_str(), &address.sin_addr) != 1) {
      return error("not an IPv4 address");
    }
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      return {};
    }
    if (errno != EINPROGRESS) {
      return error(std::generic_category().message(errno));
    }
    int failed = 0;
    socklen_t size = sizeof(failed);
    if (!ready(socket, POLLOUT, deadline_)) {
      return error("no answer");
    }
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failed, &size);
    return failed == 0 ? Status() : error(std::generic_category().message(failed));
  }

  Error error(const std::string& why) const {
    return failure(fmt::format("cannot join the head at {}: {}", to_string(endpoint_), why));
  }

  const Endpoint& endpoint_;
  Clock::time_point deadline_;
  bool refused_ = false;
};

}  // namespace

Result<caf::actor> knock(caf::actor_system& system, const CredentialFiles& credentials,
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
