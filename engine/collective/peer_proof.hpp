#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Proof between two ranks on a new connection that both belong to one generation.
//
//   accepting side    -> Challenge   a nonce, at once
//   connecting side   -> Hello       the connection's identity, its own nonce, its proof
//   accepting side    -> Welcome     its proof
//
// A proof is HMAC-SHA-256, under the secret of the generation, of the side that gives it, of the
// connection and of both nonces. So a proof needs the secret, a recorded proof is useless later,
// and one side's proof does not serve for the other. Every message has a fixed size. The proof does
// not protect against an attacker who can alter packets: the bytes that follow are neither
// encrypted nor signed.
namespace train::engine {

/// Secret that only the ranks of one generation know.
using GenerationSecret = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

/// Which connection of which generation.
struct ConnectionName {
  std::uint64_t generation = 0;
  std::uint32_t channel = 0;
  std::int32_t from = 0;  ///< The rank that connects.
  std::int32_t to = 0;    ///< The rank that accepts.
  std::uint32_t version = 1;

  [[nodiscard]] bool operator==(const ConnectionName&) const = default;
};

struct Challenge {
  Nonce nonce = {};
};

struct Hello {
  ConnectionName name;
  Nonce nonce = {};
  Proof proof = {};
};

struct Welcome {
  Proof proof = {};
};

enum class Side : std::uint8_t { connected, accepted };

/// Lets OpenSSL keep its defaults, here and in the control connection, whatever its configuration
/// on this machine (openssl.cnf, OPENSSL_CONF) says: that may be another version's, name modules
/// that this program cannot load, or refuse the keys of a run. Call it in main, before OpenSSL is
/// used.
void ignore_openssl_configuration();

/// Unpredictable random bytes. Throws CheckFailed where the system has none.
[[nodiscard]] std::array<std::byte, 32> unguessable();

/// The proof that `side` of the connection gives. `challenge`, `hello`: the nonces of both.
[[nodiscard]] Proof prove(const GenerationSecret& secret, Side side, const ConnectionName& name,
                          const Nonce& challenge, const Nonce& hello);

/// In a time that does not depend on where they differ.
[[nodiscard]] bool same_proof(const Proof& given, const Proof& expected);

}  // namespace train::engine
