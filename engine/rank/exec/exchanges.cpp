#include "engine/rank/exec/exchanges.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/rank/state/gathered_weights.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

std::size_t group_of(const CollectiveOp& op) { return static_cast<std::size_t>(op.group); }

Transfer empty_transfer(std::int64_t ranks) {
  Transfer transfer;
  transfer.send.resize(static_cast<std::size_t>(ranks));
  transfer.receive.resize(static_cast<std::size_t>(ranks));
  return transfer;
}

}  // namespace

Exchanges::Exchanges(const RankPlan& rank, const Parts& parts)
    : rank_(&rank),
      parts_(parts),
      staged_on_host_(!rank.device().is_host() && rank.options().parallel.transport != "nccl"),
      sum_scratch_(floats(rank.layout().sum_scratch_elements()), "received sum",
                   rank.device().memory) {
  for (const Channel channel : {Channel::gather, Channel::reduce}) {
    const auto at = static_cast<std::size_t>(channel);
    for (std::size_t slot = 0; slot < kStagingSlots; ++slot) {
      const std::string name = fmt::format("staging of {}", channel_name(channel));
      staging_[at][slot] = {rank.kernels(), rank.layout().staging_bytes(channel), name,
                            staged_on_host_};
      if (staged_on_host_) {
        outgoing_[at][slot] = {rank.layout().outgoing_bytes(channel), name + ", outgoing",
                               rank.device().staging};
      }
    }
  }
}

const HostDeviceBuffer& Exchanges::slot_of(const CollectiveOp& op) const {
  return staging_[static_cast<std::size_t>(op.channel)][op.index % kStagingSlots];
}

const kernels::Buffer& Exchanges::outgoing_of(const CollectiveOp& op) const {
  return outgoing_[static_cast<std::size_t>(op.channel)][op.index % kStagingSlots];
}

bool Exchanges::smaller_group(const CollectiveOp& op) const {
  return op.kind == CollectiveKind::gather && rank_->schedule(op.pass)
                                                  .gathers()
                                                  .at(static_cast<std::size_t>(op.part))
                                                  .from_smaller_group;
}

bool Exchanges::packed_already(const CollectiveOp& op) const {
  return rank_->device().is_host() && op.kind == CollectiveKind::gather && !smaller_group(op);
}

std::span<const std::byte> Exchanges::sent_directly(const CollectiveOp& op) const {
  const GroupLayout& layout = rank_->layout(group_of(op));
  const std::size_t size = rank_->layout().compute_size();
  if (op.kind == CollectiveKind::gather && smaller_group(op)) {
    return {parts_.gathered.kept(group_of(op)), bytes_of(layout.kept_here.element_count, size)};
  }
  if (op.kind == CollectiveKind::gather) {
    return {parts_.reference_weights.shard(op.pass, group_of(op)),
            bytes_of(layout.rows.element_count, size)};
  }
  if (op.kind == CollectiveKind::broadcast) {
    return {reinterpret_cast<const std::byte*>(parts_.gradients.reduced(group_of(op))),
            bytes_of(layout.reduce.element_count, sizeof(float))};
  }
  return {};
}

std::span<const std::byte> Exchanges::outgoing(const CollectiveOp& op) const {
  const std::span<const std::byte> direct = sent_directly(op);
  return !staged_on_host_ ? direct
                          : std::span<const std::byte>(outgoing_of(op).data(), direct.size());
}

void Exchanges::bring_to_host(kernels::Stream& stream, const CollectiveOp& op) const {
  if (!staged_on_host_ || op.group < 0) {
    return;
  }
  const std::span<const std::byte> direct = sent_directly(op);
  if (!direct.empty()) {
    rank_->kernels().copy(stream, {.out = outgoing_of(op).data(),
                                   .in = direct.data(),
                                   .size_bytes = static_cast<std::int64_t>(direct.size())});
  }
  const HostDeviceBuffer& slot = slot_of(op);
  const StagedOp staged = rank_->layout().staged(op, smaller_group(op));
  for (std::size_t rank = 0; rank < staged.send.size(); ++rank) {
    if (static_cast<std::int64_t>(rank) != rank_->rank()) {  // own sums stay in place
      const StagedOp::Range& range = staged.send[rank];
      slot.to_host(stream, slot.device<std::byte>() + range.offset, range.size_bytes);
    }
  }
}

void Exchanges::bring_to_device(kernels::Stream& stream, const CollectiveOp& op) const {
  if (!staged_on_host_ || op.group < 0) {
    return;
  }
  const HostDeviceBuffer& slot = slot_of(op);
  for (const StagedOp::Range& range : rank_->layout().staged(op, smaller_group(op)).receive) {
    slot.to_device(stream, slot.host<std::byte>() + range.offset, range.size_bytes);
  }
}

void Exchanges::pack(kernels::Stream& stream, const CollectiveOp& op) {
  if (op.kind == CollectiveKind::gather) {
    take_gathered(stream, op, /*own=*/true);  // while the others' rows travel
  } else if (op.kind == CollectiveKind::all_gather) {
    pack_all_gather(stream, op);
  } else if (op.kind == CollectiveKind::reduce) {
    pack_reduce(stream, op);
  }
  // Other kinds send in place: shards, kept rows, sums that earlier work wrote.
  bring_to_host(stream, op);
}

void Exchanges::pack_all_gather(kernels::Stream& stream, const CollectiveOp& op) const {
  const Wire wire(rank_->kernels(), stream, rank_->layout().compute_bf16());
  const GroupState& state = parts_.state.group(group_of(op));
  for (const Segment& segment : rank_->layout(group_of(op)).reduce.segments) {
    wire.put(state.master(segment.parameter, segment.first_row), slot_of(op).device<std::byte>(),
             segment.packed_offset, segment.count,
             rank_->group(group_of(op)).parameters[segment.parameter].exact);
  }
}

void Exchanges::pack_reduce(kernels::Stream& stream, const CollectiveOp& op) {
  const auto held = parts_.gradients.take_sums(group_of(op));
  const std::vector<LaneRange> expected = rank_->layout().sums(rank_->rank(), op.part);
  TRAIN_CHECK(held.size() == expected.size(), "{}: {} sums instead of {}", op.text(rank_->plan()),
              held.size(), expected.size());
  const StagedOp staged = rank_->layout().staged(op, false);
  const Wire wire(rank_->kernels(), stream, rank_->layout().reduce_bf16());
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    const Part part = rank_->layout().reduce_part(group_of(op), rank);
    std::byte* to =
        slot_of(op).device<std::byte>() + staged.send[static_cast<std::size_t>(rank)].offset;
    for (std::size_t i = 0; i < held.size(); ++i) {
      TRAIN_CHECK(held[i].first.count == expected[i].count, "{}: another sum",
                  op.text(rank_->plan()));
      for (const Segment& segment : part.segments) {
        wire.put(held[i].second + segment.gradient_offset, to,
                 static_cast<std::int64_t>(i) * part.element_count + segment.packed_offset,
                 segment.count);
      }
    }
  }
}

Transfer Exchanges::transfer(const CollectiveOp& op) const {
  switch (op.kind) {
    case CollectiveKind::loss_and_norm:
    case CollectiveKind::eval_sums:
    case CollectiveKind::nonfinite:
    case CollectiveKind::reference:
    case CollectiveKind::block_sums:
      return transfer_blocks(op);
    case CollectiveKind::gather:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
      break;
  }
  Transfer transfer = empty_transfer(rank_->ranks());
  const GroupLayout& layout = rank_->layout(group_of(op));
  const StagedOp staged = rank_->layout().staged(op, smaller_group(op));
  for (std::size_t rank = 0; rank < transfer.send.size(); ++rank) {
    if (static_cast<std::int64_t>(rank) == rank_->rank()) {
      continue;
    }
    const StagedOp::Range& send = staged.send[rank];
    const StagedOp::Range& receive = staged.receive[rank];
    auto* slot = staged_on_host_ ? slot_of(op).host<std::byte>() : slot_of(op).device<std::byte>();
    transfer.send[rank] = {slot + send.offset, send.size_bytes};
    transfer.receive[rank] = {slot + receive.offset, receive.size_bytes};
  }
  const auto send_to = [&](const std::vector<std::int64_t>& peers) {
    for (const std::int64_t peer : peers) {
      if (peer != rank_->rank()) {
        transfer.send[static_cast<std::size_t>(peer)] = outgoing(op);
      }
    }
  };
  if (op.kind == CollectiveKind::gather) {
    send_to((smaller_group(op) ? layout.kept : layout.shards).ranks);
  } else if (op.kind == CollectiveKind::broadcast) {
    send_to(rank_->plan().replica_peers(group_of(op), rank_->rank()));
  }
  return transfer;
}

Transfer Exchanges::transfer_blocks(const CollectiveOp& op) const {
  const auto block = [&](std::int64_t rank) {
    return op.kind == CollectiveKind::reference ? parts_.reference.block(rank)
                                                : parts_.totals.block(op.kind, rank);
  };
  Transfer transfer = empty_transfer(rank_->ranks());
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    if (rank != rank_->rank()) {
      transfer.send[static_cast<std::size_t>(rank)] = block(rank_->rank());
      transfer.receive[static_cast<std::size_t>(rank)] = block(rank);
    }
  }
  return transfer;
}

void Exchanges::unpack(kernels::Stream& stream, const CollectiveOp& op) {
  bring_to_device(stream, op);
  switch (op.kind) {
    case CollectiveKind::gather:
      return take_gathered(stream, op, /*own=*/false);
    case CollectiveKind::all_gather:
      return unpack_all_gather(stream, op);
    case CollectiveKind::reduce:
      return unpack_reduce(stream, op);
    case CollectiveKind::broadcast:
      return unpack_broadcast(stream, op);
    case CollectiveKind::loss_and_norm:
    case CollectiveKind::eval_sums:
    case CollectiveKind::nonfinite:
    case CollectiveKind::reference:
    case CollectiveKind::block_sums:
      return;  // Received where they are read.
  }
}

void Exchanges::take_gathered(kernels::Stream& stream, const CollectiveOp& op, bool own) const {
  const Reservation& reservation =
      rank_->schedule(op.pass).gathers().at(static_cast<std::size_t>(op.part));
  TRAIN_CHECK(reservation.group == group_of(op), "{}: another group", op.text(rank_->plan()));
  const Elements weights = parts_.gathered.of(reservation);
  const GroupLayout& layout = rank_->layout(group_of(op));
  const GroupLayout::Sources& sources =
      reservation.from_smaller_group ? layout.kept : layout.shards;
  const std::byte* own_rows = reservation.from_smaller_group
                                  ? parts_.gathered.kept(group_of(op))
                                  : parts_.reference_weights.shard(op.pass, group_of(op));
  const StagedOp staged = rank_->layout().staged(op, reservation.from_smaller_group);
  const Wire wire(rank_->kernels(), stream, rank_->layout().compute_bf16());
  for (std::size_t i = 0; i < sources.ranks.size(); ++i) {
    if ((sources.ranks[i] == rank_->rank()) != own) {
      continue;
    }
    const auto rank = static_cast<std::size_t>(sources.ranks[i]);
    const std::byte* from =
        own ? own_rows : slot_of(op).device<std::byte>() + staged.receive[rank].offset;
    const Part part = rank_->layout().gathered_part(group_of(op), sources.ranks[i],
                                                    reservation.from_smaller_group);
    for (const Segment& segment : part.segments) {
      const Parameter& parameter = rank_->group(group_of(op)).parameters[segment.parameter];
      wire.take(from, segment.packed_offset, rows_in(weights, parameter, segment.first_row),
                segment.count, parameter.exact);
    }
  }
}

void Exchanges::unpack_all_gather(kernels::Stream& stream, const CollectiveOp& op) const {
  const Elements weights = parts_.state.group(group_of(op)).whole();
  const StagedOp staged = rank_->layout().staged(op, false);
  const Wire wire(rank_->kernels(), stream, rank_->layout().compute_bf16());
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    const std::byte* from =
        slot_of(op).device<std::byte>() + staged.receive[static_cast<std::size_t>(rank)].offset;
    if (rank != rank_->rank()) {
      const Part part = rank_->layout().reduce_part(group_of(op), rank);
      for (const Segment& segment : part.segments) {
        const Parameter& parameter = rank_->group(group_of(op)).parameters[segment.parameter];
        wire.take(from, segment.packed_offset, rows_in(weights, parameter, segment.first_row),
                  segment.count, parameter.exact);
      }
    }
  }
}

void Exchanges::unpack_reduce(kernels::Stream& stream, const CollectiveOp& op) {
  LaneTree* tree = parts_.gradients.owner_tree(group_of(op));
  if (tree == nullptr) {
    return;
  }
  const std::int64_t elements = rank_->layout(group_of(op)).reduce.element_count;
  const StagedOp staged = rank_->layout().staged(op, false);
  const Wire wire(rank_->kernels(), stream, rank_->layout().reduce_bf16());
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const std::byte* from =
        slot_of(op).device<std::byte>() +
        (rank == rank_->rank() ? staged.send[at].offset : staged.receive[at].offset);
    for (const LaneRange lanes : rank_->layout().sums(rank, op.part)) {
      if (rank_->layout().reduce_bf16()) {
        float* where = tree->place(lanes, sum_scratch_.as<float>());
        wire.take(from, 0, where, elements);
        tree->finalize(stream, lanes, where);
      } else {
        tree->add(stream, lanes, reinterpret_cast<const float*>(from));
      }
      from += bytes_of(elements, wire.size());
    }
  }
}

void Exchanges::unpack_broadcast(kernels::Stream& stream, const CollectiveOp& op) const {
  const std::size_t group = group_of(op);
  const GroupLayout& layout = rank_->layout(group);
  const StagedOp staged = rank_->layout().staged(op, false);
  const Wire wire(rank_->kernels(), stream, /*bf16=*/false);
  std::vector<const Segment*> state_of(rank_->plan().groups()[group].parameters.size(), nullptr);
  for (const Segment& segment : layout.state.segments) {
    state_of[segment.parameter] = &segment;
  }
  for (const std::int64_t rank : rank_->plan().replica_peers(group, rank_->rank())) {
    const std::byte* from =
        rank == rank_->rank() ? reinterpret_cast<const std::byte*>(parts_.gradients.reduced(group))
                              : slot_of(op).device<std::byte>() +
                                    staged.receive[static_cast<std::size_t>(rank)].offset;
    const Part part = rank_->layout().reduce_part(group, rank);
    for (const Segment& segment : part.segments) {
      const Segment& state = *state_of[segment.parameter];
      float* to = parts_.gradients.for_optimizer(group, state);
      wire.take(from, segment.packed_offset, to + (segment.flat_offset - state.flat_offset),
                segment.count);
    }
  }
}

void Exchanges::add_allocated(MemoryPlan& memory) const {
  memory.transfer_bytes += sum_scratch_.size_bytes();
  for (const auto& channel : staging_) {
    for (const HostDeviceBuffer& slot : channel) {
      memory.transfer_bytes += slot.size_bytes();
    }
  }
}

}  // namespace train::engine
