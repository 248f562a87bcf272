#include "actors/cluster/network/tls.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>

namespace train::actors {
namespace {

Error unusable(const std::filesystem::path& path, const char* what) {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return user_error(fmt::format("{} is no {} of this run: {}; start the run again to renew it",
                                path.string(), what, reason != nullptr ? reason : "unreadable"));
}

Status load_files(SSL_CTX* context, const CredentialFiles& files, TlsEnd end) {
  const bool head = end == TlsEnd::head;
  const auto& certificate = head ? files.head_certificate : files.worker_certificate;
  const auto& key = head ? files.head_key : files.worker_key;
  ERR_clear_error();
  if (SSL_CTX_use_certificate_file(context, certificate.c_str(), SSL_FILETYPE_PEM) != 1) {
    return unusable(certificate, "certificate");
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return unusable(key, "key");
  }
  if (SSL_CTX_load_verify_locations(context, files.authority.c_str(), nullptr) != 1) {
    return unusable(files.authority, "certificate");
  }
  return {};
}

using Clock = std::chrono::steady_clock;

int until_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(
      std::clamp<std::int64_t>(left, 0, std::numeric_limits<std::int32_t>::max()));
}

Status connect_socket(int socket, const Endpoint& endpoint, Clock::time_point deadline, int stop) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr) != 1) {
    return failure("not an IPv4 address");
  }
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return {};
  }
  if (errno != EINPROGRESS) {
    return failure(std::generic_category().message(errno));
  }
  if (wait_ready(socket, POLLOUT, deadline, stop) != Waited::ready) {
    return failure("no answer");
  }
  int failed = 0;
  socklen_t size = sizeof(failed);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failed, &size);
  return failed == 0 ? Status() : failure(std::generic_category().message(failed));
}

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kForever{24 * 365};

}  // namespace

Result<TlsContext> TlsContext::load(const CredentialFiles& files, TlsEnd end) {
  const std::shared_ptr<ssl_ctx_st> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  TRAIN_CHECK(context != nullptr && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION));
  TRAIN_RETURN_IF_ERROR(load_files(context.get(), files, end));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Nobody comes back with a ticket; without them the head says nothing before it knows the peer.
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  return TlsContext(context, end);
}

void TlsSession::Free::operator()(ssl_st* session) const noexcept { SSL_free(session); }

TlsSession::TlsSession(const TlsContext& context, int socket) : session_(SSL_new(context.get())) {
  TRAIN_CHECK(session_ != nullptr && SSL_set_fd(session_.get(), socket) == 1);
  if (context.end() == TlsEnd::head) {
    SSL_set_accept_state(session_.get());
  } else {
    SSL_set_connect_state(session_.get());
  }
}

TlsSession::State TlsSession::judge(int result) const {
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_NONE:
      return State::done;
    case SSL_ERROR_WANT_READ:
      return State::wants_read;
    case SSL_ERROR_WANT_WRITE:
      return State::wants_write;
    default:
      return State::failed;
  }
}

TlsSession::State TlsSession::shake_hands() {
  ERR_clear_error();
  return judge(SSL_do_handshake(session_.get()));
}

std::string TlsSession::refusal() const {
  const long result = SSL_get_verify_result(session_.get());
  return result == X509_V_OK ? std::string() : X509_verify_cert_error_string(result);
}

TlsSession::State TlsSession::read(void* bytes, std::size_t size, std::size_t& moved) {
  ERR_clear_error();
  moved = 0;
  return judge(SSL_read_ex(session_.get(), bytes, size, &moved));
}

TlsSession::State TlsSession::write(const void* bytes, std::size_t size, std::size_t& moved) {
  ERR_clear_error();
  moved = 0;
  return judge(SSL_write_ex(session_.get(), bytes, size, &moved));
}

std::size_t TlsSession::pending() const {
  return static_cast<std::size_t>(SSL_pending(session_.get()));
}

Waited wait_ready(int socket, short events, Clock::time_point deadline, int stop) {
  std::array<pollfd, 2> watched = {{{.fd = socket, .events = events, .revents = 0},
                                    {.fd = stop, .events = POLLIN, .revents = 0}}};
  int result = -1;
  do {
    result = ::poll(watched.data(), watched.size(), until_ms(deadline));
  } while (result < 0 && errno == EINTR);
  return result <= 0 ? Waited::late : watched[1].revents != 0 ? Waited::stopped : Waited::ready;
}

Result<TlsConnection> connect_tls(const Endpoint& endpoint, const TlsContext& context,
                                  Clock::time_point deadline, TlsRefusal& refusal, int stop) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  TRAIN_RETURN_IF_ERROR(connect_socket(socket.get(), endpoint, deadline, stop));
  TlsSession session(context, socket.get());
  for (;;) {
    const TlsSession::State state = session.shake_hands();
    if (state == TlsSession::State::done) {
      return TlsConnection(std::move(socket), std::move(session));
    }
    if (state == TlsSession::State::failed) {
      refusal.final = !session.refusal().empty();
      return failure(refusal.final ? "its certificate is not of this run: " + session.refusal()
                                   : "it closed the connection while shaking hands");
    }
    const short events = state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
    if (wait_ready(socket.get(), events, deadline, stop) != Waited::ready) {
      return failure("it is silent");
    }
  }
}

Status TlsStream::wait(TlsSession::State state, Clock::time_point deadline) const {
  if (state == TlsSession::State::failed) {
    return failure("the connection is lost");
  }
  const short events = state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
  switch (wait_ready(connection_.first.get(), events, deadline, stop_)) {
    case Waited::ready:
      return {};
    case Waited::stopped:
      return failure("stopped");
    case Waited::late:
      break;
  }
  return failure("no answer");
}

Status TlsStream::send(std::span<const std::byte> bytes, std::chrono::milliseconds patience) {
  while (!bytes.empty()) {
    std::size_t moved = 0;
    const auto state = connection_.second.write(bytes.data(), bytes.size(), moved);
    bytes = bytes.subspan(moved);
    if (state != TlsSession::State::done) {
      TRAIN_RETURN_IF_ERROR(wait(state, Clock::now() + patience));
    }
  }
  return {};
}

Status TlsStream::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t moved = 0;
    const auto state = connection_.second.read(bytes.data(), bytes.size(), moved);
    bytes = bytes.subspan(moved);
    if (state != TlsSession::State::done) {
      TRAIN_RETURN_IF_ERROR(wait(state, Clock::now() + kForever));
    }
  }
  return {};
}

Status TlsStream::rest(std::chrono::milliseconds time) {
  switch (wait_ready(connection_.first.get(), POLLIN, Clock::now() + time, stop_)) {
    case Waited::late:
      return {};
    case Waited::stopped:
      return failure("stopped");
    case Waited::ready:
      break;
  }
  std::byte unexpected{};
  std::size_t moved = 0;
  const auto state = connection_.second.read(&unexpected, 1, moved);
  return state == TlsSession::State::wants_read ? Status() : failure("the connection is lost");
}

}  // namespace train::actors
