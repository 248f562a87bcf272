#include "storage/files/digest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>
#if defined(__x86_64__)
// Redirects the names below to functions that use the processor's widest instructions (AVX2,
// AVX-512): 68 GB/s of cached bytes instead of 19 with SSE2.
#include <xxh_x86dispatch.h>
#endif

namespace train::storage {
namespace {

std::string text_of(const XXH128_hash_t& hash) {
  return fmt::format("xxh3-128:{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

struct StreamingDigest::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  // Allocated by the library, as it must be aligned to 64 bytes.
  std::unique_ptr<XXH3_state_t, Free> hash{XXH3_createState()};
};

std::string digest_bytes(std::span<const std::byte> bytes) {
  return text_of(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string digest_text(std::string_view text) {
  return digest_bytes(std::as_bytes(std::span(text)));
}

bool is_digest(std::string_view text) {
  constexpr std::string_view prefix = "xxh3-128:";
  return text.size() == prefix.size() + 32 && text.starts_with(prefix) &&
         text.find_first_not_of("0123456789abcdef", prefix.size()) == std::string_view::npos;
}

std::uint64_t short_digest(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

StreamingDigest::StreamingDigest() : state_(std::make_unique<State>()) {
  if (state_->hash == nullptr) {
    throw std::bad_alloc();
  }
  XXH3_128bits_reset(state_->hash.get());
}
StreamingDigest::StreamingDigest(StreamingDigest&&) noexcept = default;
StreamingDigest& StreamingDigest::operator=(StreamingDigest&&) noexcept = default;
StreamingDigest::~StreamingDigest() = default;

void StreamingDigest::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->hash.get(), bytes.data(), bytes.size());
}

std::string StreamingDigest::finish() const {
  return text_of(XXH3_128bits_digest(state_->hash.get()));
}

}  // namespace train::storage
