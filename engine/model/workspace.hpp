#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device/buffer.hpp"

namespace train::engine {

/// Activations and scratch of one model: the residual stream at each unit boundary, what each block
/// keeps for its backward pass, scratch that all blocks share, the gradient of the residual stream.
///
/// Blocks reserve slots while they are built; allocate() comes after the last of them. A workspace
/// that is never allocated is a plan: its size_bytes() is what `--dry-run` prints.
/// Threading: one owner. Ownership: owns all buffers.
class Workspace {
 public:
  using Slot = std::size_t;

  /// `sequences` x `seq_len`: the largest lane. `with_gradient`: keep what the backward pass needs.
  Workspace(std::int64_t sequences, std::int64_t seq_len, bool with_gradient);

  [[nodiscard]] std::int64_t sequences() const { return sequences_; }
  [[nodiscard]] std::int64_t seq_len() const { return seq_len_; }
  [[nodiscard]] std::int64_t rows() const { return sequences_ * seq_len_; }
  [[nodiscard]] bool with_gradient() const { return with_gradient_; }

  /// A buffer of `owner` alone that lives until its backward pass. Without gradients nothing has to
  /// live that long, so it becomes share(name): one buffer for all owners.
  Slot keep(const std::string& owner, const std::string& name, std::int64_t floats);
  /// While on, keep() reserves one buffer for all owners that are built so: what it holds is
  /// computed again just before its backward pass (activation checkpointing).
  void recompute_kept(bool on) { recompute_kept_ = on; }
  /// The buffer called `name`, as large as the largest request; its contents last until the next
  /// user.
  Slot share(const std::string& name, std::int64_t floats);
  /// share(), but without gradients it takes no memory.
  Slot share_backward(const std::string& name, std::int64_t floats);

  /// Allocates all slots. Throws kernels::DeviceError when there is no memory.
  void allocate();

  [[nodiscard]] float* at(Slot slot) const;
  /// True for the first caller: who asks fills the slot, once for the life of the workspace.
  [[nodiscard]] bool first_use(Slot slot);

  /// Bytes of all slots reserved so far, allocated or not.
  [[nodiscard]] std::size_t size_bytes() const;
  /// Bytes of the buffers that exist.
  [[nodiscard]] std::size_t allocated_bytes() const;

 private:
  struct Reservation {
    std::string name;
    std::size_t size_bytes = 0;
    bool shared = false;
    bool used = false;
  };

  std::int64_t sequences_;
  std::int64_t seq_len_;
  bool with_gradient_;
  bool recompute_kept_ = false;
  std::vector<Reservation> reservations_;
  std::vector<kernels::Buffer> buffers_;
};

}  // namespace train::engine
