#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "engine/collective/link_channel.hpp"
#include "engine/collective/tcp_link.hpp"
#include "kernels/device/nccl.hpp"

namespace train::engine {

/// The connections of one rank on one channel whose bytes are memory of CUDA devices.
///
/// An exchange with a peer is: a TcpLink compares identity and sizes, as it does for bytes of the
/// host; then NCCL moves the bytes, straight between the devices; then the TcpLink meets the peer
/// once more, so that neither continues or leaves while the other still needs it. So a mismatch is
/// named before a byte moves, no rank launches an exchange that its peer has not reached, and a
/// rank that dies or is cancelled ends every wait: TcpLink notices, the communicator is aborted.
/// One communicator per channel: two channels have no order between them, so that a device may have
/// an exchange of each under way. One after the other would need an order that all ranks share, and
/// a gather that the next layer waits for would wait for a reduction. What could let the two wait
/// for each other is kept away instead: calls that wait for the whole device (kernels/device/
/// device_gate.hpp), and kernels that are loaded when they are first launched.
class NcclLink final : public ChannelLink {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `host`: open, to the same ranks. Blocks until all have come, at most `timeout`. Throws
  /// kernels::DeviceError.
  NcclLink(std::unique_ptr<TcpLink> host, const kernels::NcclId& id, Milliseconds timeout);
  ~NcclLink() override;

  /// See TcpLink::set_limit().
  void set_limit(std::optional<Milliseconds> limit);

  [[nodiscard]] Status run(const CollectiveIdentity& identity, const Transfer& transfer) override;
  void abort(const std::string& reason) override;
  void disconnect(bool farewell) override;

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int world_size() const override { return host_->world_size(); }

 private:
  /// Sizes that both sides of each pair have to agree on.
  struct PairSizes {
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
  };

  /// Tells each of `peers` the sizes and has its own: a difference is a failure.
  [[nodiscard]] Status meet(const CollectiveIdentity& identity, const Transfer& transfer,
                            const std::vector<int>& peers);
  [[nodiscard]] Status move(const CollectiveIdentity& identity, const Transfer& transfer,
                            const std::vector<int>& peers);
  /// Interrupt that ends a wait for NCCL: a failure of `peers`, or silence.
  [[nodiscard]] kernels::NcclInterrupt interrupt(const std::vector<int>& peers);

  std::unique_ptr<TcpLink> host_;
  std::optional<Milliseconds> limit_;        ///< Time limit of one exchange; none: unlimited.
  std::unique_ptr<kernels::NcclComm> comm_;  ///< None once disconnected.
};

}  // namespace train::engine
