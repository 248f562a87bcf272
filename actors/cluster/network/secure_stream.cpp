#include "actors/cluster/network/secure_stream.hpp"

#include <fmt/format.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <utility>

namespace train::actors {
namespace {

using boost::system::error_code;

Error unusable(const std::filesystem::path& path, const char* what, const error_code& error) {
  return user_error(fmt::format("{} is not a {} of this run: {}; start the run again to renew it",
                                path.string(), what, error.message()));
}

}  // namespace

Result<Identity> load_identity(const CredentialFiles& files, StreamEnd end) {
  namespace ssl = asio::ssl;
  const auto& own = end == StreamEnd::head ? files.head : files.worker;
  auto identity = std::make_shared<ssl::context>(ssl::context::tls);
  error_code error;
  if (identity->use_certificate_file(own.string(), ssl::context::pem, error)) {
    return unusable(own, "certificate", error);
  }
  if (identity->use_private_key_file(own.string(), ssl::context::pem, error)) {
    return unusable(own, "key", error);
  }
  if (identity->load_verify_file(files.authority.string(), error)) {
    return unusable(files.authority, "certificate", error);
  }
  identity->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  SSL_CTX* const native = identity->native_handle();
  TRAIN_CHECK(SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION) == 1);
  // No tickets: sessions are never resumed, and without them the head sends nothing before it has
  // authenticated the peer.
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  return identity;
}

Deadline::Deadline(tcp::socket& socket, Time time)
    : socket_(std::make_shared<tcp::socket*>(&socket)), timer_(socket.get_executor(), time) {
  timer_.async_wait([watched = socket_](const error_code& error) {
    if (error_code ignored; !error && *watched != nullptr) {
      (*watched)->close(ignored);
    }
  });
}

asio::awaitable<Result<std::unique_ptr<SecureStream>>> connect_securely(Endpoint endpoint,
                                                                        Identity identity,
                                                                        Deadline::Time deadline) {
  error_code failed;
  const auto address = asio::ip::make_address_v4(endpoint.host, failed);
  if (failed) {
    co_return failure("not an IPv4 address");
  }
  auto stream =
      std::make_unique<SecureStream>(tcp::socket(co_await asio::this_coro::executor), *identity);
  tcp::socket& socket = stream->next_layer();
  const Deadline watch(socket, deadline);
  std::tie(failed) = co_await socket.async_connect({address, endpoint.port}, kUseTuple);
  if (failed) {
    co_return failure(socket.is_open() ? failed.message() : "no answer");
  }
  socket.set_option(tcp::no_delay(true), failed);
  std::tie(failed) = co_await stream->async_handshake(SecureStream::client, kUseTuple);
  if (const long verified = SSL_get_verify_result(stream->native_handle());
      failed && verified != X509_V_OK) {
    co_return user_error(fmt::format("its certificate is not of this run: {}",
                                     X509_verify_cert_error_string(verified)));
  }
  if (failed) {
    co_return failure(socket.is_open() ? "it closed the connection while shaking hands"
                                       : "it is silent");
  }
  co_return std::move(stream);
}

asio::awaitable<Status> send_all(SecureStream& stream, std::span<const std::byte> bytes,
                                 std::chrono::milliseconds patience,
                                 std::span<const std::byte> follows) {
  const Deadline watch(stream.next_layer(), std::chrono::steady_clock::now() + patience);
  const std::array buffers = {asio::buffer(bytes.data(), bytes.size()),
                              asio::buffer(follows.data(), follows.size())};
  const auto [failed, moved] = co_await asio::async_write(stream, buffers, kUseTuple);
  if (!failed) {
    co_return Status();
  }
  co_return failure(stream.next_layer().is_open() ? "the connection is lost" : "no answer");
}

asio::awaitable<bool> receive_all(SecureStream& stream, std::span<std::byte> bytes) {
  const auto [failed, moved] =
      co_await asio::async_read(stream, asio::buffer(bytes.data(), bytes.size()), kUseTuple);
  co_return !failed;
}

asio::awaitable<bool> rest(SecureStream& stream, std::chrono::milliseconds time) {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer timer(stream.get_executor(), time);
  const auto first = co_await (timer.async_wait(kUseTuple) ||
                               stream.next_layer().async_wait(tcp::socket::wait_read, kUseTuple));
  co_return first.index() == 0;
}

}  // namespace train::actors
