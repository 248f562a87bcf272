#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/blocks/state_space/scan_spec.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Norms of what a scan is given: none (Mamba), RMS norms without weights (FalconMamba), with them.
enum class ScanNorms : std::uint8_t { none, plain, weighted };

/// Mamba's mixer (Gu & Dao 2023, https://arxiv.org/abs/2312.00752):
///   [u | z] = in x,  u = silu(conv(u)),  [r | B | C] = norms(select u),
///   out(scan(u, step r, B, C) silu(z)),
/// as kernels/state_space has convolution and scan.
struct MambaSpec final : ScanSpec {
  std::int64_t inner = 0;      ///< Channels.
  std::int64_t states = 16;    ///< State size of each channel.
  std::int64_t step_rank = 0;  ///< Width of r.
  ScanNorms norms = ScanNorms::none;
  float norm_eps = 1e-6F;
  Initializer step_init = {};
  std::string select = "mixer.x_proj", step = "mixer.dt_proj";
  std::string step_norm = {}, b_norm = {}, c_norm = {};  ///< Names of weighted norms.

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view title() const override { return "Mamba"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  [[nodiscard]] double score_flops(std::int64_t seq_len) const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;
};

}  // namespace train::engine
