#include "engine/collective/nccl_link.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/collective/collective.hpp"
#include "engine/collective/exchange_header.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {
namespace {

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(as_index(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

NcclLink::NcclLink(std::unique_ptr<TcpLink> host, const kernels::NcclId& id, Milliseconds timeout)
    : host_(std::move(host)),
      limit_(timeout),
      comm_(std::make_unique<kernels::NcclComm>(id, rank(), world_size(),
                                                interrupt(all_ranks(world_size())))) {}

void NcclLink::set_limit(std::optional<Milliseconds> limit) {
  limit_ = limit;
  host_->set_limit(limit);
}

NcclLink::~NcclLink() { disconnect(true); }

Status NcclLink::run(const CollectiveIdentity& identity, const Transfer& transfer) {
  const std::vector<int> peers = peers_of(transfer, rank());
  TRAIN_RETURN_IF_ERROR(meet(identity, transfer, peers));
  if (Status moved = move(identity, transfer, peers); !moved) {
    comm_.reset();  // Aborts: from here on nothing touches the transfer's memory.
    return moved;
  }
  return meet(identity, transfer, peers);
}

Status NcclLink::meet(const CollectiveIdentity& identity, const Transfer& transfer,
                      const std::vector<int>& peers) {
  const std::size_t ranks = as_index(world_size());
  std::vector<PairSizes> own(ranks);
  std::vector<PairSizes> theirs(ranks);
  Transfer sizes;
  sizes.send.resize(ranks);
  sizes.receive.resize(ranks);
  for (const int peer : peers) {
    const std::size_t at = as_index(peer);
    own[at] = {transfer.send[at].size(), transfer.receive[at].size()};
    sizes.send[at] = std::as_bytes(std::span(&own[at], 1));
    sizes.receive[at] = std::as_writable_bytes(std::span(&theirs[at], 1));
  }
  TRAIN_RETURN_IF_ERROR(host_->run(identity, sizes));
  for (const int peer : peers) {
    const std::size_t at = as_index(peer);
    const PairClaim mine{rank(), identity, own[at].sent_bytes, own[at].received_bytes};
    const PairClaim other{peer, identity, theirs[at].sent_bytes, theirs[at].received_bytes};
    if (!agree(mine, other)) {
      return disagreement(mine, other);
    }
  }
  return {};
}

Status NcclLink::move(const CollectiveIdentity& identity, const Transfer& transfer,
                      const std::vector<int>& peers) {
  try {
    const std::size_t own = as_index(rank());
    if (const auto from = transfer.send[own];
        !from.empty() && from.data() != transfer.receive[own].data()) {
      comm_->copy(transfer.receive[own].data(), from.data(), from.size());
    }
    std::vector<kernels::NcclRange> ranges;
    for (const int peer : peers) {
      const std::size_t at = as_index(peer);
      ranges.push_back({.peer = peer,
                        .send = transfer.send[at].data(),
                        .send_bytes = transfer.send[at].size(),
                        .receive = transfer.receive[at].data(),
                        .receive_bytes = transfer.receive[at].size()});
    }
    if (!ranges.empty()) {
      comm_->exchange(ranges, interrupt(peers));
    }
    return {};
  } catch (const kernels::DeviceError& error) {
    return failure(fmt::format("{}: {}", to_string(identity), error.what()));
  }
}

kernels::NcclInterrupt NcclLink::interrupt(const std::vector<int>& peers) {
  return [this, peers, limit = limit_,
          begin = std::chrono::steady_clock::now()]() -> std::optional<std::string> {
    if (auto trouble = host_->trouble(peers)) {
      return trouble;
    }
    if (limit && std::chrono::steady_clock::now() - begin > *limit) {
      return fmt::format("waited {} ms for {} and NCCL", limit->count(), name_ranks(peers));
    }
    return std::nullopt;
  };
}

void NcclLink::abort(const std::string& reason) { host_->abort(reason); }

void NcclLink::disconnect(bool farewell) {
  comm_.reset();
  host_->disconnect(farewell);
}

}  // namespace train::engine
