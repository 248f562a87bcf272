#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/state_space/mamba_scan.hpp"
#include "engine/model/blocks/state_space/mamba_spec.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// MambaSpec's form: MambaScan between two maps, whose results the scan keeps.
class MambaBlock final : public Block {
 public:
  MambaBlock(const BlockContext& context, const MambaSpec& spec, const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  Workspace* workspace_;
  std::int64_t inner_, embedding_dim_;
  std::optional<LinearBlock> in_, out_;
  std::optional<MambaScan> scan_;
  Workspace::Slot inputs_ = 0, gated_ = 0;
};

}  // namespace train::engine
