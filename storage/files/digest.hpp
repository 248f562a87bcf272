#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace train::storage {

/// "xxh3-128:" and 32 hexadecimal digits (canonical, most significant first). Detects damage; not
/// collision-resistant against an attacker.
[[nodiscard]] std::string digest_bytes(std::span<const std::byte> bytes);
[[nodiscard]] std::string digest_text(std::string_view text);
/// True if `text` has the form of a digest.
[[nodiscard]] bool is_digest(std::string_view text);

/// XXH3-64, for blocks, of which there are many.
[[nodiscard]] std::uint64_t short_digest(std::span<const std::byte> bytes);

/// digest_bytes() of bytes that come in pieces.
class StreamingDigest {
 public:
  StreamingDigest();
  StreamingDigest(StreamingDigest&&) noexcept;
  StreamingDigest& operator=(StreamingDigest&&) noexcept;
  ~StreamingDigest();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  [[nodiscard]] std::string finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace train::storage
