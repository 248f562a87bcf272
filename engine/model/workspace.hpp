#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/elements.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// Activation checkpointing (Chen et al. 2016, https://arxiv.org/abs/1604.06174): what the backward
/// pass computes again rather than finds in memory, by the same kernels on the same values, so the
/// same bits.
struct Checkpointing {
  std::int64_t every = 0;  ///< Recompute every N-th layer; 0 disables.
  /// Recomputed part of such a layer: the branches whose blocks have this role, each from its norm
  /// to the input of its output map; "block": all, so that the layer keeps its input alone;
  /// "latent": what attention expands its latents to (queries, keys and values), not the attention.
  std::string part = "block";

  [[nodiscard]] bool computes_again(std::size_t layer, std::string_view role) const {
    return chosen(layer) && (part == "block" || part == role);
  }
  [[nodiscard]] bool expands_again(std::size_t layer) const {
    return chosen(layer) && part == "latent";
  }
  [[nodiscard]] bool chosen(std::size_t layer) const {
    return every > 0 && (static_cast<std::int64_t>(layer) + 1) % every == 0;
  }
};

/// A unit and bytes that belong to it.
struct UnitBytes {
  std::size_t unit = 0;
  std::size_t size_bytes = 0;
};

/// Scratch of two kinds that is never needed at once.
struct ScratchBytes {
  std::size_t head_unit = SIZE_MAX;  ///< The highest unit.
  std::size_t head_bytes = 0;        ///< Needed by its forward pass alone.
  std::size_t block_bytes = 0;
};

/// Layout of activations, of the gradients that take their place, and of scratch.
struct ArenaPlan {
  std::vector<std::size_t> kept;       ///< Offsets, as the slots were given.
  std::vector<std::size_t> gradients;  ///< Offsets, as the gradients were given.
  std::size_t head_scratch = 0, block_scratch = 0;
  std::size_t size_bytes = 0;
};

/// Places all in one piece of memory: activations from its begin, in the order of units, gradients
/// from its end, from the highest unit down. A unit's backward pass writes its gradient when the
/// activations of the units above it are no longer needed, so that the two may overlap; it is the
/// memory of one lane only: the next lane's forward pass writes over the gradients. The blocks'
/// scratch lies below the gradient of the head, which is there first; the head's own lies in the
/// same place, and where gradients of blocks will be.
///
/// `kept`: slots that must last from the forward pass of their unit to its backward pass, units
/// rising. `gradients`: of a group of units, named by its highest one, in any order.
[[nodiscard]] ArenaPlan plan_arena(const std::vector<UnitBytes>& kept,
                                   const std::vector<UnitBytes>& gradients,
                                   const ScratchBytes& scratch = {});

/// Bytes rounded up to whole cache lines, on which everything in shared memory begins.
[[nodiscard]] std::size_t whole_lines(std::size_t size_bytes);

/// Phase that needs scratch: a transformer block, one of its branches, or the head. Branches run
/// one after the other, so blocks of different roles share their scratch, as do layers and head.
enum class Phase : std::uint8_t { block, branch, head };

/// Form in which blocks that have the choice keep their decoding state.
enum class CacheForm : std::uint8_t {
  expanded,  ///< As the forward pass of training reads it: decoding has the same bits.
  latent,    ///< The narrower input of `expanded`: the same mathematics, rounded otherwise.
};

/// Content of a slot: activations or their gradients, in the dtype of the workspace; or sums,
/// statistics and angles, which are always fp32.
enum class Content : std::uint8_t { elements, floats };

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
  Workspace(std::int64_t sequences, std::int64_t seq_len, bool with_gradient,
            kernels::DType dtype = kernels::DType::f32);

  [[nodiscard]] std::int64_t sequences() const { return sequences_; }
  [[nodiscard]] std::int64_t seq_len() const { return seq_len_; }
  [[nodiscard]] std::int64_t rows() const { return sequences_ * seq_len_; }
  [[nodiscard]] bool with_gradient() const { return with_gradient_; }
  /// Dtype of activations.
  [[nodiscard]] kernels::DType dtype() const { return dtype_; }

  /// Slots kept from here on belong to `unit`, no lower one than before (at first 0).
  void begin_unit(std::size_t unit);
  /// While on, keep() reserves shared buffers, as without gradients: the units built so have no
  /// backward pass.
  void forward_only(bool on) { forward_only_ = on; }
  [[nodiscard]] bool has_backward() const { return with_gradient_ && !forward_only_; }
  /// A buffer of `owner` alone that lives until its backward pass. Without gradients nothing has to
  /// live that long, so it becomes share(name): one buffer for all owners.
  Slot keep(const std::string& owner, const std::string& name, std::int64_t count,
            Content content = Content::elements);
  /// keep(), for contents that are not computed again: choices, which come once a lane.
  Slot keep_always(const std::string& owner, const std::string& name, std::int64_t count,
                   Content content);
  /// keep(), for what the next unit needs and the backward pass of this one does not.
  Slot keep_for_next(const std::string& owner, const std::string& name, std::int64_t count);
  /// keep(), for contents that a cheap kernel gives again from what is kept anyway. When lean()
  /// they are scratch of `phase` that all owners share: each computes its contents again before it
  /// needs them in its backward pass.
  Slot keep_unless_lean(Phase phase, const std::string& owner, const std::string& name,
                        std::int64_t count);
  /// Texts that are generated at once, of seq_len tokens at most; 0: none. Set before the first
  /// slot is reserved.
  void cached_texts(std::int64_t texts, CacheForm form = CacheForm::expanded) {
    cached_texts_ = texts;
    cache_form_ = form;
  }
  [[nodiscard]] std::int64_t cached_texts() const { return cached_texts_; }
  [[nodiscard]] CacheForm cache_form() const { return cache_form_; }
  /// Decoding state of all cached_texts(): a buffer of one block alone, whose contents last from
  /// lane to lane (CacheUse).
  Slot keep_for_texts(const std::string& name, std::int64_t count,
                      Content content = Content::elements);
  /// Lets blocks that are built later find a slot by that name: those of layers that read what
  /// another one keeps.
  void publish(const std::string& name, Slot slot) { published_.emplace(name, slot); }
  /// REQUIRES: published.
  [[nodiscard]] Slot published(const std::string& name) const { return published_.at(name); }
  /// Adds `count` sums; returns the index of the first in Lane::block_sums, [sum, count] each.
  std::size_t add_sums(std::size_t count) { return std::exchange(sums_, sums_ + 2 * count); }
  /// Set before the first slot is reserved.
  void lean(bool on) { lean_ = on; }
  [[nodiscard]] bool lean() const { return lean_; }
  /// Slots from here on are of the branch `index` of its layer, whose block has that role.
  void begin_branch(std::size_t index, std::string_view role);
  /// While on, keep() reserves scratch of layers for the same branch of all that are built so: what
  /// it holds is computed again just before its backward pass (activation checkpointing).
  void recompute_kept(bool on) { recompute_kept_ = on; }
  /// While on, and unless all is computed again, blocks keep latents and not what they expand them
  /// to: keep_unless_expanded() reserves scratch of their branch, which they fill again at the
  /// begin of their backward pass.
  void expand_again(bool on) { expand_again_ = on; }
  [[nodiscard]] bool expands_again() const {
    return expand_again_ && has_backward() && !recompute_kept_;
  }
  Slot keep_unless_expanded(const std::string& owner, const std::string& name, std::int64_t count);
  /// The buffer called `name`, as large as the largest request; its contents last until the next
  /// user.
  Slot share(const std::string& name, std::int64_t count, Content content = Content::elements);
  /// share(), but without gradients it takes no memory.
  Slot share_backward(const std::string& name, std::int64_t count,
                      Content content = Content::elements);
  /// share() for contents that are not needed after `phase`.
  Slot scratch(Phase phase, const std::string& name, std::int64_t count,
               Content content = Content::elements);
  /// scratch(), but without gradients it takes no memory.
  Slot scratch_backward(Phase phase, const std::string& name, std::int64_t count,
                        Content content = Content::elements);

  /// Reserves gradients in the memory of dead activations (plan_arena()); before allocate().
  void share_gradients(std::vector<UnitBytes> gradients);

  /// Allocates all slots, of that kind. Throws kernels::DeviceError when there is no memory.
  void allocate(kernels::MemoryKind kind);

  /// Memory of the gradient at `index` of share_gradients(); valid until the next forward pass.
  [[nodiscard]] float* gradient(std::size_t index) const;
  [[nodiscard]] Elements at(Slot slot) const;
  /// REQUIRES: the slot holds floats.
  [[nodiscard]] float* floats_at(Slot slot) const;
  /// A slot of floats that holds as many indices.
  [[nodiscard]] std::int32_t* indices_at(Slot slot) const {
    return reinterpret_cast<std::int32_t*>(floats_at(slot));
  }
  /// True for the first caller, which must fill the slot, once for the life of the workspace.
  [[nodiscard]] bool first_use(Slot slot);

  /// Bytes of all slots reserved so far, allocated or not, besides those of gradients.
  [[nodiscard]] std::size_t size_bytes() const;
  /// Bytes of the buffers that exist, besides those of gradients.
  [[nodiscard]] std::size_t allocated_bytes() const;

 private:
  struct Reservation {
    std::string name;
    std::size_t size_bytes = 0;
    Content content = Content::elements;
    std::optional<std::size_t> unit = {};  ///< Kept for it; else shared.
    std::optional<Phase> phase = {};       ///< Scratch.
    std::string role = {};                 ///< Role of the branch in Phase::branch.
    bool for_texts = false;                ///< Never shared.
    bool used = false;
  };

  [[nodiscard]] std::size_t bytes_of(std::int64_t count, Content content) const;
  Slot share_in(std::optional<Phase> phase, const std::string& name, std::int64_t count,
                Content content);
  /// Bytes of the scratch of a phase; of Phase::branch: for the role that needs the most.
  [[nodiscard]] std::size_t scratch_bytes(Phase phase) const;
  [[nodiscard]] ArenaPlan plan_kept() const;
  [[nodiscard]] std::size_t shared_bytes() const;

  std::int64_t sequences_;
  std::int64_t seq_len_;
  bool with_gradient_;
  kernels::DType dtype_;
  bool recompute_kept_ = false;
  bool expand_again_ = false;
  bool lean_ = false;
  bool forward_only_ = false;
  std::int64_t cached_texts_ = 0;
  CacheForm cache_form_ = CacheForm::expanded;
  std::size_t unit_ = 0;
  std::size_t sums_ = 0;
  std::size_t branch_ = 0;
  std::string role_;
  std::vector<Reservation> reservations_;
  std::map<std::string, Slot> published_;
  std::vector<UnitBytes> shared_gradients_;
  std::vector<kernels::Buffer> buffers_;  ///< The first: what is kept, and scratch.
  std::vector<std::byte*> places_;        ///< By slot.
  std::vector<float*> gradients_;
};

}  // namespace train::engine
