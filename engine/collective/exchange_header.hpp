#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/collective/collective.hpp"
#include "engine/collective/direct_memory.hpp"

namespace train::engine {

/// "rank 3", "ranks 1, 2".
[[nodiscard]] inline std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

[[nodiscard]] inline std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

/// Small messages travel with the header: one hop less.
inline constexpr std::size_t kSmallBytes = 4096;

/// First message of each side. Only between processes of one program: native layout.
struct ExchangeHeader {
  std::uint64_t generation = 0;
  std::int64_t command = 0;
  std::uint64_t hash = 0;
  std::uint32_t channel = 0;
  std::uint32_t index = 0;
  std::uint64_t sent_bytes = 0;      ///< By the side that says it.
  std::uint64_t received_bytes = 0;  ///< By the side that says it.
  DirectOffer offer;                 ///< Offer of the sent bytes, if the peer reads them directly.
};

[[nodiscard]] inline ExchangeHeader header_of(const PairClaim& claim, const DirectOffer& offer) {
  const CollectiveIdentity& identity = claim.identity;
  return {.generation = identity.generation,
          .command = identity.command,
          .hash = identity.hash,
          .channel = static_cast<std::uint32_t>(identity.channel),
          .index = identity.index,
          .sent_bytes = claim.sent_bytes,
          .received_bytes = claim.received_bytes,
          .offer = offer};
}

[[nodiscard]] inline ExchangeHeader read_header(const std::byte* bytes) {
  ExchangeHeader header;
  std::memcpy(&header, bytes, sizeof(header));
  return header;
}

[[nodiscard]] inline PairClaim claim_of(const ExchangeHeader& header, int rank) {
  return {.rank = rank,
          .identity = {.generation = header.generation,
                       .command = header.command,
                       .channel = static_cast<Channel>(header.channel),
                       .index = header.index,
                       .hash = header.hash},
          .sent_bytes = header.sent_bytes,
          .received_bytes = header.received_bytes};
}

static_assert(sizeof(ExchangeHeader) + kSmallBytes <= kInboxMessageBytes);

}  // namespace train::engine
