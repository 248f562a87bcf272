#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "engine/collective/collective.hpp"
#include "engine/host_state.hpp"
#include "engine/rank/exec/log_probs/reference_log_probs.hpp"
#include "engine/rank/exec/rank_gradients.hpp"
#include "engine/rank/exec/totals/step_totals.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/gathered_weights.hpp"
#include "engine/rank/state/rank_state.hpp"
#include "engine/rank/state/reference_weights.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Bytes that this rank sends in a collective, and the processing of received ones.
///
/// An op takes three calls: pack() enqueues the work that fills the bytes to send; when the stream
/// has run it, transfer() tells which bytes go where; when they have arrived, unpack() enqueues
/// their processing. Op i of a channel uses staging slot i % kStagingSlots: its pack() may be
/// enqueued when the unpack() of op i - kStagingSlots has run; the first ops of a command, when
/// those of the command before have.
///
/// Threading: pack() and unpack() only enqueue, always on the same stream for a channel. That of
/// reductions and of what follows them up to StepTotals::combine() may be one of its own: a
/// reduce's pack() comes after the visits that it sends the sums of, combine() after all of it.
/// Ownership: owns staging; borrows all else.
class Exchanges {
 public:
  /// Sources and destinations of the exchanges, all of the same rank.
  struct Parts {
    const RankState& state;
    const GatheredWeights& gathered;
    RankGradients& gradients;
    const StepTotals& totals;
    ReferenceLogProbs& reference;
    const ReferenceWeights& reference_weights;
  };
  Exchanges(const RankPlan& rank, const Parts& parts);

  /// A gather's pack() already takes this rank's own rows in: its reservation may begin then. A
  /// reduce is packed after the group's last visit of the sync on this rank (if it has one), a
  /// broadcast after RankGradients::finish(), an all-gather after RankState::finalize().
  void pack(kernels::Stream& stream, const CollectiveOp& op);
  /// True if pack() has nothing to do for the op, which may start at once.
  [[nodiscard]] bool packed_already(const CollectiveOp& op) const;
  /// The ranges from and to this rank itself are empty: unpack() reads its own rows in place. Data
  /// that needs no conversion is sent from, and received into, its own memory; other data passes
  /// through the slot.
  [[nodiscard]] Transfer transfer(const CollectiveOp& op) const;
  void unpack(kernels::Stream& stream, const CollectiveOp& op);

  void add_allocated(MemoryPlan& memory) const;

 private:
  [[nodiscard]] const HostDeviceBuffer& slot_of(const CollectiveOp& op) const;
  [[nodiscard]] const kernels::Buffer& outgoing_of(const CollectiveOp& op) const;
  [[nodiscard]] bool smaller_group(const CollectiveOp& op) const;
  void pack_all_gather(kernels::Stream& stream, const CollectiveOp& op) const;
  void pack_reduce(kernels::Stream& stream, const CollectiveOp& op);
  [[nodiscard]] Transfer transfer_blocks(const CollectiveOp& op) const;
  /// Bytes that are sent in place, without packing; empty if `op` must be packed.
  [[nodiscard]] std::span<const std::byte> sent_directly(const CollectiveOp& op) const;
  /// Bytes that the op sends, in memory of the host.
  [[nodiscard]] std::span<const std::byte> outgoing(const CollectiveOp& op) const;
  /// Enqueue the copies between the device and what transports send and fill; nothing on the CPU.
  void bring_to_host(kernels::Stream& stream, const CollectiveOp& op) const;
  void bring_to_device(kernels::Stream& stream, const CollectiveOp& op) const;
  /// Copies rows of a gathered group into their place: this rank's own, or the others'.
  void take_gathered(kernels::Stream& stream, const CollectiveOp& op, bool own) const;
  void unpack_all_gather(kernels::Stream& stream, const CollectiveOp& op) const;
  void unpack_reduce(kernels::Stream& stream, const CollectiveOp& op);
  void unpack_broadcast(kernels::Stream& stream, const CollectiveOp& op) const;

  const RankPlan* rank_;
  Parts parts_;
  /// Transports move memory of the host, which is not what kernels work on: all that travels goes
  /// through copies. False on the CPU, and where they move the device's (parallel.transport
  /// "nccl").
  bool staged_on_host_ = false;
  std::array<std::array<HostDeviceBuffer, kStagingSlots>, kChannelCount> staging_;
  /// The host's copies of what is sent from where it lies, by slot; none unless staged_on_host_.
  std::array<std::array<kernels::Buffer, kStagingSlots>, kChannelCount> outgoing_;
  kernels::Buffer sum_scratch_;  // fp32 copy of a received bf16 sum.
};

}  // namespace train::engine
