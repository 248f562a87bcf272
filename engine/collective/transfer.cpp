#include "engine/collective/transfer.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "base/check.hpp"

namespace train::engine {
namespace {

std::string text(const PairClaim& claim) {
  return fmt::format("rank {} is at {} hash {:016x}, sends {} bytes and expects {}", claim.rank,
                     to_string(claim.identity), claim.identity.hash, claim.sent_bytes,
                     claim.received_bytes);
}

}  // namespace

std::size_t Transfer::sent_bytes(int rank) const {
  std::size_t bytes = 0;
  for (std::size_t peer = 0; peer < send.size(); ++peer) {
    bytes += peer == static_cast<std::size_t>(rank) ? 0 : send[peer].size();
  }
  return bytes;
}

void check_transfer(const Transfer& transfer, int rank, int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  TRAIN_CHECK(transfer.send.size() == ranks && transfer.receive.size() == ranks,
              "{} and {} ranges in a world of {}", transfer.send.size(), transfer.receive.size(),
              ranks);
  const auto own = static_cast<std::size_t>(rank);
  TRAIN_CHECK(transfer.send[own].size() == transfer.receive[own].size(), "{} own bytes into {}",
              transfer.send[own].size(), transfer.receive[own].size());
}

void copy_own(const Transfer& transfer, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  const std::span<const std::byte> from = transfer.send[own];
  const std::span<std::byte> to = transfer.receive[own];
  if (!from.empty() && from.data() != to.data()) {
    std::memmove(to.data(), from.data(), from.size());
  }
}

std::vector<int> peers_of(const Transfer& transfer, int rank) {
  std::vector<int> peers;
  for (std::size_t peer = 0; peer < transfer.send.size(); ++peer) {
    const bool empty = transfer.send[peer].empty() && transfer.receive[peer].empty();
    if (peer != static_cast<std::size_t>(rank) && !empty) {
      peers.push_back(static_cast<int>(peer));
    }
  }
  return peers;
}

bool agree(const PairClaim& own, const PairClaim& peer) {
  const CollectiveIdentity& a = own.identity;
  const CollectiveIdentity& b = peer.identity;
  return a.generation == b.generation && a.command == b.command && a.channel == b.channel &&
         a.index == b.index && a.hash == b.hash && own.sent_bytes == peer.received_bytes &&
         own.received_bytes == peer.sent_bytes;
}

Error disagreement(const PairClaim& own, const PairClaim& peer) {
  return failure(fmt::format("collectives differ: {}; {}", text(own), text(peer)));
}

}  // namespace train::engine
