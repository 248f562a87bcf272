#include "actors/cluster/network/tls.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <filesystem>
#include <utility>

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

}  // namespace train::actors
