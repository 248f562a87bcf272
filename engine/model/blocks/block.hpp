#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/tensor_map.hpp"

namespace train::engine {

/// The one part of a layer's branch that no norm is: attention, an MLP, or another map of rows to
/// rows. Built by its BlockSpec, which reserves its slots; keeps what its backward pass needs in
/// the workspace. Calls only enqueue.
class Block {
 public:
  virtual ~Block() = default;

  /// The forward pass in two parts: all that the backward pass needs from x, [rows,
  /// embedding_dim], and from that alone the branch, before the residual factor, to `branch`, of
  /// the same shape. Either may come again before the backward pass (checkpointing), and then
  /// gives the same bits.
  virtual void forward_kept(const BlockCall& call, ConstElements x) = 0;
  virtual void forward_output(const BlockCall& call, Elements branch) = 0;
  /// x as in forward_kept(). dbranch, dx: [rows, embedding_dim]; dx is overwritten, as is the
  /// gradient of every trained parameter.
  virtual void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                        Elements dx) = 0;
};

/// Decoding state that a block keeps of a text (CacheUse).
struct DecodingState {
  std::int64_t of_token = 0;  ///< Elements for a token.
  std::int64_t tokens = 0;    ///< Only the last so many tokens have them; 0: all.
};

/// A block as plain data and its properties; callers read the properties, never the block's kind.
/// Does not change once it is a model's.
class BlockSpec {
 public:
  virtual ~BlockSpec() = default;

  /// Adds its parameters and reserves its slots. `model`: dimensions and ropes; need not outlive
  /// the call.
  [[nodiscard]] virtual std::unique_ptr<Block> make(const BlockContext& context,
                                                    const ModelSpec& model) const = 0;
  /// The name by which memory.checkpointed_part chooses it. Blocks of different roles have their
  /// turns in the same scratch (Phase::branch).
  [[nodiscard]] virtual std::string_view role() const = 0;
  /// Texts for users: its name, its sizes ("8 heads of 64"), and a full description.
  [[nodiscard]] virtual std::string_view title() const = 0;
  [[nodiscard]] virtual std::string sizes() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Why it cannot be built, by the keys of a config.json; empty: it can.
  [[nodiscard]] virtual std::string mistake() const { return {}; }
  /// FLOPs of one token's forward pass in a sequence of `seq_len`, besides two an element of the
  /// matrices that it uses (Parameter::used_share).
  [[nodiscard]] virtual double score_flops(std::int64_t /*seq_len*/) const { return 0.0; }
  /// Names of its sums, as metrics.jsonl has their means: auxiliary losses, loads. For each lane
  /// forward_kept() writes their sum and count to Lane::block_sums, from the place on that
  /// Workspace::add_sums() gave it. Blocks of one name are one metric.
  [[nodiscard]] virtual std::vector<std::string> sums() const { return {}; }
  /// True if a lane's training pass reads these sums over all lanes of the step (Lane::step_sums):
  /// a forward pass of all lanes comes before it.
  [[nodiscard]] virtual bool reads_step_sums() const { return false; }
  /// How files of a dialect have its parameters and the norms of its branch. Without a rule a
  /// parameter is stored unchanged; in Dialect::gguf it is unknown.
  [[nodiscard]] virtual std::vector<TensorRule> tensor_rules(const ModelSpec& /*model*/,
                                                             const BranchSpec& /*branch*/,
                                                             Dialect /*dialect*/) const {
    return {};
  }
  /// State that it keeps of a text in that form; nullopt: it keeps the other form alone.
  [[nodiscard]] virtual std::optional<DecodingState> decoding_state(CacheForm form) const {
    return form == CacheForm::expanded ? std::optional(DecodingState{}) : std::nullopt;
  }
  /// Elements of its widest attention head; 0: it has none.
  [[nodiscard]] virtual std::int64_t widest_head() const { return 0; }
};

/// The first block of that kind, for code that builds one architecture; nullptr: there is none.
template <class Spec>
[[nodiscard]] const Spec* find_block(const LayerSpec& layer) {
  const Spec* found = nullptr;
  for (const BranchSpec& branch : layer.branches) {
    found = found == nullptr ? dynamic_cast<const Spec*>(branch.block.get()) : found;
  }
  return found;
}

/// Likewise. REQUIRES: there is one.
template <class Spec>
[[nodiscard]] const Spec& block_of(const LayerSpec& layer) {
  const Spec* found = find_block<Spec>(layer);
  TRAIN_CHECK(found != nullptr, "{} has no such block", layer.prefix);
  return *found;
}

}  // namespace train::engine
