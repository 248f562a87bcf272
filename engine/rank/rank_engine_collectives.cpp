// Which bytes a rank sends and what it does with those it gets. Ranges of a rank's own are empty on
// both sides: pack() and unpack() see to its own rows.

#include <utility>

#include "base/check.hpp"
#include "engine/rank/rank_engine_parts.hpp"

namespace train::engine {
namespace {

std::size_t group_of(const CollectiveOp& op) { return static_cast<std::size_t>(op.group); }

std::size_t bytes(std::int64_t elements, std::size_t size) {
  return static_cast<std::size_t>(elements) * size;
}

/// Enqueues copies between memory and bytes on the wire, each of which is fp32 or bf16; what is
/// bf16 in memory is so on the wire.
class Wire {
 public:
  Wire(const kernels::KernelTable& kernels, kernels::Stream& stream, bool bf16)
      : kernels_(&kernels), stream_(&stream), bf16_(bf16) {}

  [[nodiscard]] std::size_t size() const { return bf16_ ? sizeof(std::uint16_t) : sizeof(float); }

  void put(ConstElements from, std::byte* wire, std::int64_t offset, std::int64_t count) const {
    std::byte* to = wire + bytes(offset, size());
    if (is_converted(from.dtype)) {
      kernels_->pack_bf16(*stream_, {.in = reinterpret_cast<const float*>(from.data),
                                     .out = reinterpret_cast<std::uint16_t*>(to),
                                     .count = count});
    } else {
      copy(to, from, count);
    }
  }

  void take(const std::byte* wire, std::int64_t offset, Elements to, std::int64_t count) const {
    const std::byte* from = wire + bytes(offset, size());
    if (is_converted(to.dtype)) {
      kernels_->unpack_bf16(*stream_, {.in = reinterpret_cast<const std::uint16_t*>(from),
                                       .out = reinterpret_cast<float*>(to.data),
                                       .count = count});
    } else {
      copy(to, from, count);
    }
  }

 private:
  [[nodiscard]] bool is_converted(kernels::DType memory) const {
    TRAIN_CHECK(bf16_ || memory == kernels::DType::f32, "bf16 goes over the wire as it is");
    return bf16_ && memory == kernels::DType::f32;
  }
  void copy(void* to, const void* from, std::int64_t count) const {
    const auto size_bytes = static_cast<std::int64_t>(bytes(count, size()));
    kernels_->copy(*stream_, {.out = to, .in = from, .size_bytes = size_bytes});
  }

  const kernels::KernelTable* kernels_;
  kernels::Stream* stream_;
  bool bf16_;
};

Transfer empty_transfer(std::int64_t ranks) {
  Transfer transfer;
  transfer.send.resize(static_cast<std::size_t>(ranks));
  transfer.receive.resize(static_cast<std::size_t>(ranks));
  return transfer;
}

}  // namespace

bool RankEngine::smaller_group(const CollectiveOp& op) const {
  return op.kind == CollectiveKind::gather &&
         schedule(op.command).gathers().at(static_cast<std::size_t>(op.part)).from_smaller_group;
}

bool RankEngine::packed_already(const CollectiveOp& op) const {
  return kernels_->device->is_host() && op.kind == CollectiveKind::gather && !smaller_group(op);
}

std::span<const std::byte> RankEngine::sent_directly(const CollectiveOp& op) const {
  const GroupLayout& layout = parts_->layout.group(group_of(op));
  const std::size_t size = parts_->layout.compute_size();
  if (op.kind == CollectiveKind::gather && smaller_group(op)) {
    return {parts_->gradients[group_of(op)].kept.data(),
            bytes(layout.kept_here.element_count, size)};
  }
  if (op.kind == CollectiveKind::gather) {
    return {parts_->states[group_of(op)].shard(), bytes(layout.state.element_count, size)};
  }
  if (op.kind == CollectiveKind::spread) {
    return {reinterpret_cast<const std::byte*>(parts_->reduced(group_of(op))),
            bytes(layout.reduce.element_count, sizeof(float))};
  }
  return {};
}

std::span<const std::byte> RankEngine::outgoing(const CollectiveOp& op) const {
  const std::span<const std::byte> direct = sent_directly(op);
  return !parts_->staged_on_host
             ? direct
             : std::span<const std::byte>(parts_->outgoing_of(op).data(), direct.size());
}

void RankEngine::bring_to_host(kernels::Stream& stream, const CollectiveOp& op) const {
  if (!parts_->staged_on_host || op.group < 0) {
    return;
  }
  const std::span<const std::byte> direct = sent_directly(op);
  if (!direct.empty()) {
    kernels_->copy(stream, {.out = parts_->outgoing_of(op).data(),
                            .in = direct.data(),
                            .size_bytes = static_cast<std::int64_t>(direct.size())});
  }
  const MirroredBuffer& slot = parts_->staged(op);
  const StagedOp staged = parts_->layout.staged(op, smaller_group(op));
  for (std::size_t rank = 0; rank < staged.send.size(); ++rank) {
    if (static_cast<std::int64_t>(rank) != options_.rank) {  // Its own sums stay where they are.
      const StagedOp::Range& range = staged.send[rank];
      slot.to_host(stream, slot.device<std::byte>() + range.offset, range.size_bytes);
    }
  }
}

void RankEngine::bring_to_device(kernels::Stream& stream, const CollectiveOp& op) const {
  if (!parts_->staged_on_host || op.group < 0) {
    return;
  }
  const MirroredBuffer& slot = parts_->staged(op);
  for (const StagedOp::Range& range : parts_->layout.staged(op, smaller_group(op)).receive) {
    slot.to_device(stream, slot.host<std::byte>() + range.offset, range.size_bytes);
  }
}

void RankEngine::pack(kernels::Stream& stream, const CollectiveOp& op) {
  if (op.kind == CollectiveKind::gather) {
    take_gathered(stream, op, /*own=*/true);  // while the others' rows travel
  } else if (op.kind == CollectiveKind::refresh) {
    pack_refresh(stream, op);
  } else if (op.kind == CollectiveKind::reduce) {
    pack_reduce(stream, op);
  }
  // The others send what lies there: shards, kept rows, sums that earlier work wrote.
  bring_to_host(stream, op);
}

void RankEngine::pack_refresh(kernels::Stream& stream, const CollectiveOp& op) {
  const Wire wire(*kernels_, stream, parts_->layout.compute_bf16());
  const GroupState& state = parts_->states[group_of(op)];
  for (const Segment& segment : parts_->layout.group(group_of(op)).reduce.segments) {
    wire.put(state.master(segment.parameter, segment.first_row),
             parts_->staged(op).device<std::byte>(), segment.packed_offset, segment.count);
  }
}

void RankEngine::pack_reduce(kernels::Stream& stream, const CollectiveOp& op) {
  GroupGradient& gradient = parts_->gradients[group_of(op)];
  std::vector<std::pair<LaneRange, const float*>> held;
  if (gradient.own) {
    held = gradient.own->held();
    gradient.own->clear();
  } else if (gradient.leaf_lane.count > 0) {
    held = {{gradient.leaf_lane, gradient.leaf}};
    gradient.leaf_lane = {};
  }
  const std::vector<LaneRange> expected = parts_->layout.sums(options_.rank, op.part);
  TRAIN_CHECK(held.size() == expected.size(), "{}: {} sums instead of {}", op.text(plan_),
              held.size(), expected.size());
  const StagedOp staged = parts_->layout.staged(op, false);
  const Wire wire(*kernels_, stream, parts_->layout.reduce_bf16());
  for (std::int64_t rank = 0; rank < plan_.ranks(); ++rank) {
    const Part& part = parts_->layout.reduce_part(group_of(op), rank);
    std::byte* to =
        parts_->staged(op).device<std::byte>() + staged.send[static_cast<std::size_t>(rank)].offset;
    for (std::size_t i = 0; i < held.size(); ++i) {
      TRAIN_CHECK(held[i].first.count == expected[i].count, "{}: another sum", op.text(plan_));
      for (const Segment& segment : part.segments) {
        wire.put(held[i].second + segment.flat_offset, to,
                 static_cast<std::int64_t>(i) * part.element_count + segment.packed_offset,
                 segment.count);
      }
    }
  }
}

Transfer RankEngine::transfer(const CollectiveOp& op) const {
  switch (op.kind) {
    case CollectiveKind::loss_and_norm:
    case CollectiveKind::eval_sums:
    case CollectiveKind::nonfinite:
      return transfer_blocks(op);
    case CollectiveKind::gather:
    case CollectiveKind::refresh:
    case CollectiveKind::reduce:
    case CollectiveKind::spread:
      break;
  }
  Transfer transfer = empty_transfer(plan_.ranks());
  const GroupLayout& layout = parts_->layout.group(group_of(op));
  const StagedOp staged = parts_->layout.staged(op, smaller_group(op));
  for (std::size_t rank = 0; rank < transfer.send.size(); ++rank) {
    if (static_cast<std::int64_t>(rank) == options_.rank) {
      continue;
    }
    const StagedOp::Range& send = staged.send[rank];
    const StagedOp::Range& receive = staged.receive[rank];
    auto* slot = parts_->staged_on_host ? parts_->staged(op).host<std::byte>()
                                        : parts_->staged(op).device<std::byte>();
    transfer.send[rank] = {slot + send.offset, send.size_bytes};
    transfer.receive[rank] = {slot + receive.offset, receive.size_bytes};
  }
  const auto send_to = [&](const std::vector<std::int64_t>& peers) {
    for (const std::int64_t peer : peers) {
      if (peer != options_.rank) {
        transfer.send[static_cast<std::size_t>(peer)] = outgoing(op);
      }
    }
  };
  if (op.kind == CollectiveKind::gather) {
    send_to((smaller_group(op) ? layout.kept : layout.shards).ranks);
  } else if (op.kind == CollectiveKind::spread) {
    send_to(plan_.replica_peers(group_of(op), options_.rank));
  }
  return transfer;
}

Transfer RankEngine::transfer_blocks(const CollectiveOp& op) const {
  Transfer transfer = empty_transfer(plan_.ranks());
  const auto block = [&](std::int64_t rank) -> std::span<std::byte> {
    const RankLayout& layout = parts_->layout;
    const auto range = [](const MirroredBuffer& buffer, std::int64_t first, std::int64_t end,
                          std::size_t size) {
      return std::span<std::byte>(buffer.host<std::byte>() + bytes(first, size),
                                  bytes(end - first, size));
    };
    if (op.kind == CollectiveKind::loss_and_norm) {
      return range(parts_->step_sums, layout.step_block(rank), layout.step_block(rank + 1),
                   sizeof(double));
    }
    if (op.kind == CollectiveKind::eval_sums) {
      return range(parts_->eval_sums, layout.eval_block(rank), layout.eval_block(rank + 1),
                   sizeof(kernels::LossSums));
    }
    return range(parts_->nonfinite, layout.lane_block(rank), layout.lane_block(rank + 1),
                 2 * unit_count() * sizeof(std::int64_t));
  };
  for (std::int64_t rank = 0; rank < plan_.ranks(); ++rank) {
    if (rank != options_.rank) {
      transfer.send[static_cast<std::size_t>(rank)] = block(options_.rank);
      transfer.receive[static_cast<std::size_t>(rank)] = block(rank);
    }
  }
  return transfer;
}

void RankEngine::unpack(kernels::Stream& stream, const CollectiveOp& op) {
  bring_to_device(stream, op);
  switch (op.kind) {
    case CollectiveKind::gather:
      return take_gathered(stream, op, /*own=*/false);
    case CollectiveKind::refresh:
      return unpack_refresh(stream, op);
    case CollectiveKind::reduce:
      return unpack_reduce(stream, op);
    case CollectiveKind::spread:
      return unpack_spread(stream, op);
    case CollectiveKind::loss_and_norm:
    case CollectiveKind::eval_sums:
    case CollectiveKind::nonfinite:
      return;  // Received where they are read.
  }
}

void RankEngine::take_gathered(kernels::Stream& stream, const CollectiveOp& op, bool own) {
  const Lease& lease = schedule(op.command).gathers().at(static_cast<std::size_t>(op.part));
  TRAIN_CHECK(lease.group == group_of(op), "{}: another group", op.text(plan_));
  const Elements weights{parts_->gather_buffers[static_cast<std::size_t>(lease.buffer)].data(),
                         parts_->layout.compute_dtype()};
  const GroupLayout& layout = parts_->layout.group(group_of(op));
  const GroupLayout::Sources& sources = lease.from_smaller_group ? layout.kept : layout.shards;
  const std::byte* own_rows = lease.from_smaller_group ? parts_->gradients[group_of(op)].kept.data()
                                                       : parts_->states[group_of(op)].shard();
  const StagedOp staged = parts_->layout.staged(op, lease.from_smaller_group);
  const Wire wire(*kernels_, stream, parts_->layout.compute_bf16());
  for (std::size_t i = 0; i < sources.ranks.size(); ++i) {
    if ((sources.ranks[i] == options_.rank) != own) {
      continue;
    }
    const auto rank = static_cast<std::size_t>(sources.ranks[i]);
    const std::byte* from =
        own ? own_rows : parts_->staged(op).device<std::byte>() + staged.receive[rank].offset;
    for (const Segment& segment : sources.parts[i].segments) {
      wire.take(from, segment.packed_offset, weights + segment.flat_offset, segment.count);
    }
  }
}

void RankEngine::unpack_refresh(kernels::Stream& stream, const CollectiveOp& op) {
  const Elements weights = parts_->states[group_of(op)].whole();
  const StagedOp staged = parts_->layout.staged(op, false);
  const Wire wire(*kernels_, stream, parts_->layout.compute_bf16());
  for (std::int64_t rank = 0; rank < plan_.ranks(); ++rank) {
    const std::byte* from = parts_->staged(op).device<std::byte>() +
                            staged.receive[static_cast<std::size_t>(rank)].offset;
    if (rank != options_.rank) {
      for (const Segment& segment : parts_->layout.reduce_part(group_of(op), rank).segments) {
        wire.take(from, segment.packed_offset, weights + segment.flat_offset, segment.count);
      }
    }
  }
}

void RankEngine::unpack_reduce(kernels::Stream& stream, const CollectiveOp& op) {
  GroupGradient& gradient = parts_->gradients[group_of(op)];
  if (!gradient.owner) {
    return;
  }
  const std::int64_t elements = parts_->layout.group(group_of(op)).reduce.element_count;
  const StagedOp staged = parts_->layout.staged(op, false);
  const Wire wire(*kernels_, stream, parts_->layout.reduce_bf16());
  for (std::int64_t rank = 0; rank < plan_.ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const std::byte* from =
        parts_->staged(op).device<std::byte>() +
        (rank == options_.rank ? staged.send[at].offset : staged.receive[at].offset);
    for (const LaneRange lanes : parts_->layout.sums(rank, op.part)) {
      if (parts_->layout.reduce_bf16()) {
        float* where = gradient.owner->place(lanes, parts_->sum_scratch.as<float>());
        wire.take(from, 0, where, elements);
        gradient.owner->settle(stream, lanes, where);
      } else {
        gradient.owner->add(stream, lanes, reinterpret_cast<const float*>(from));
      }
      from += bytes(elements, wire.size());
    }
  }
}

void RankEngine::unpack_spread(kernels::Stream& stream, const CollectiveOp& op) {
  const std::size_t group = group_of(op);
  const GroupLayout& layout = parts_->layout.group(group);
  const StagedOp staged = parts_->layout.staged(op, false);
  const Wire wire(*kernels_, stream, /*bf16=*/false);
  std::vector<const Segment*> state_of(plan_.groups()[group].parameters.size(), nullptr);
  for (const Segment& segment : layout.state.segments) {
    state_of[segment.parameter] = &segment;
  }
  for (const std::int64_t rank : plan_.replica_peers(group, options_.rank)) {
    const std::byte* from = rank == options_.rank
                                ? reinterpret_cast<const std::byte*>(parts_->reduced(group))
                                : parts_->staged(op).device<std::byte>() +
                                      staged.receive[static_cast<std::size_t>(rank)].offset;
    for (const Segment& segment : parts_->layout.reduce_part(group, rank).segments) {
      const Segment& state = *state_of[segment.parameter];
      float* to = parts_->optimizer_gradient(plan_, group, state);
      wire.take(from, segment.packed_offset, to + (segment.flat_offset - state.flat_offset),
                segment.count);
    }
  }
}

void RankEngine::keep_for_backward(kernels::Stream& stream, CommandKind kind, std::int32_t gather) {
  const Lease& lease = schedule(kind).gathers().at(static_cast<std::size_t>(gather));
  if (!lease.keeps_rows) {
    return;
  }
  const Wire wire(*kernels_, stream, parts_->layout.compute_bf16());
  const ConstElements weights{parts_->gather_buffers[static_cast<std::size_t>(lease.buffer)].data(),
                              parts_->layout.compute_dtype()};
  for (const Segment& segment : parts_->layout.group(lease.group).kept_here.segments) {
    wire.put(weights + segment.flat_offset, parts_->gradients[lease.group].kept.data(),
             segment.packed_offset, segment.count);
  }
}

}  // namespace train::engine
