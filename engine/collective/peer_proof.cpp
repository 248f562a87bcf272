#include "engine/collective/peer_proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <type_traits>

#include "base/check.hpp"

namespace train::engine {
namespace {

/// Input of a proof, without padding, so that both sides have the same bytes.
struct Proven {
  std::array<char, 32> purpose = {};
  ConnectionName name;
  Nonce challenge = {};
  Nonce hello = {};
};
static_assert(std::has_unique_object_representations_v<Proven>);
static_assert(std::has_unique_object_representations_v<Hello>);

constexpr std::array<char, 32> kConnected = {"actortrain peer that connected"};
constexpr std::array<char, 32> kAccepted = {"actortrain peer that accepted"};

}  // namespace

void ignore_openssl_configuration() {
  TRAIN_CHECK(::OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1,
              "OpenSSL does not start");
}

std::array<std::byte, 32> unguessable() {
  std::array<std::byte, 32> bytes = {};
  const int made = ::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size());
  TRAIN_CHECK(made == 1, "the system gives no random bytes");
  return bytes;
}

Proof prove(const GenerationSecret& secret, Side side, const ConnectionName& name,
            const Nonce& challenge, const Nonce& hello) {
  const Proven proven = {.purpose = side == Side::connected ? kConnected : kAccepted,
                         .name = name,
                         .challenge = challenge,
                         .hello = hello};
  Proof proof = {};
  unsigned size = proof.size();
  const unsigned char* made =
      ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
             reinterpret_cast<const unsigned char*>(&proven), sizeof(proven),
             reinterpret_cast<unsigned char*>(proof.data()), &size);
  TRAIN_CHECK(made != nullptr && size == proof.size(), "no HMAC-SHA-256 in this OpenSSL");
  return proof;
}

bool same_proof(const Proof& given, const Proof& expected) {
  return ::CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
}

}  // namespace train::engine
