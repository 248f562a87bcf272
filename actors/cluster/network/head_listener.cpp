#include "actors/cluster/network/head_listener.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <set>
#include <thread>
#include <utility>

#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

namespace network = caf::io::network;

/// What a stream of the framework asks of its transport.
class TlsPolicy {
 public:
  explicit TlsPolicy(TlsSession session) : session_(std::move(session)) {}

  network::rw_state read_some(std::size_t& moved, network::native_socket, void* bytes,
                              std::size_t size) {
    return verdict(session_.read(bytes, size, moved));
  }
  network::rw_state write_some(std::size_t& moved, network::native_socket, const void* bytes,
                               std::size_t size) {
    moved = 0;
    return size == 0 ? network::rw_state::indeterminate
                     : verdict(session_.write(bytes, size, moved));
  }
  // Decrypted bytes do not make the socket readable again.
  bool must_read_more(network::native_socket, std::size_t wanted) const {
    return wanted > 0 && session_.pending() >= wanted;
  }

 private:
  static network::rw_state verdict(TlsSession::State state) {
    return state == TlsSession::State::failed ? network::rw_state::failure
                                              : network::rw_state::success;
  }

  TlsSession session_;
};

class SecureScribe : public caf::io::scribe {
 public:
  SecureScribe(network::default_multiplexer& multiplexer, int socket, TlsSession session)
      : scribe(network::conn_hdl_from_socket(socket)),
        stream_(multiplexer, socket, std::move(session)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!std::exchange(started_, true)) {
      stream_.start(this);
    }
  }
  void flush() override { stream_.flush(this); }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  std::string addr() const override {
    const auto address = network::remote_addr_of_fd(stream_.fd());
    return address ? *address : std::string();
  }
  std::uint16_t port() const override {
    const auto port = network::remote_port_of_fd(stream_.fd());
    return port ? *port : std::uint16_t{0};
  }

 private:
  bool started_ = false;
  network::stream_impl<TlsPolicy> stream_;
};

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenTries{100};
constexpr std::chrono::milliseconds kTryTime{2000};

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

caf::io::scribe_ptr make_secure_scribe(caf::actor_system& system, Descriptor socket,
                                       TlsSession session) {
  auto* multiplexer = dynamic_cast<network::default_multiplexer*>(&system.middleman().backend());
  TRAIN_CHECK(multiplexer != nullptr, "the system has no sockets");
  return caf::make_counted<SecureScribe>(*multiplexer, socket.release(), std::move(session));
}

Status HeadListener::check(const Options& options) {
  const auto listening = listen_on(options.address, options.port);
  return listening ? Status() : Status(listening.error());
}

Result<std::unique_ptr<HeadListener>> HeadListener::open(caf::actor_system& system,
                                                         const caf::actor& published,
                                                         const CredentialFiles& credentials,
                                                         const Options& options) {
  auto context = TlsContext::load(credentials, TlsEnd::head);
  TRAIN_RETURN_IF_ERROR(context);
  auto listening = listen_on(options.address, options.port);
  TRAIN_RETURN_IF_ERROR(listening);
  const std::uint16_t port = listening->second;
  auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  // Published on every connection by itself: the framework listens nowhere.
  auto admit = [&system, broker, published, port](Descriptor socket, TlsSession session) {
    auto scribe = make_secure_scribe(system, std::move(socket), std::move(session));
    caf::anon_send(broker, caf::publish_atom_v, std::move(scribe), port,
                   caf::actor_cast<caf::strong_actor_ptr>(published), std::set<std::string>());
  };
  Endpoint endpoint{.host = options.address, .port = port, .start = options.start};
  auto acceptor = std::make_unique<TlsAcceptor>(std::move(listening->first),
                                                std::move(context).value(), std::move(admit));
  if (!options.endpoint_file.empty()) {
    TRAIN_RETURN_IF_ERROR(storage::write_private_file(
        options.endpoint_file, fmt::format("{}\n{}\n", to_string(endpoint), endpoint.start)));
  }
  return std::unique_ptr<HeadListener>(
      new HeadListener(std::move(endpoint), options.endpoint_file, std::move(acceptor)));
}

HeadListener::~HeadListener() {
  acceptor_.reset();
  if (!file_.empty()) {
    ::unlink(file_.c_str());  // a courtesy: who reads it later learns at once that nobody is there
  }
}

Result<caf::actor> connect_to_head(caf::actor_system& system, const CredentialFiles& credentials,
                                   const Endpoint& endpoint, std::chrono::milliseconds timeout) {
  const auto context = TlsContext::load(credentials, TlsEnd::worker);
  TRAIN_RETURN_IF_ERROR(context);
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    Attempt attempt(endpoint, std::min(deadline, Clock::now() + kTryTime));
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
