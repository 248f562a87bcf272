#include "engine/model/blocks/state_space/scan_spec.hpp"

#include <fmt/format.h>

#include "kernels/state_space/causal_conv.hpp"

namespace train::engine {

std::string ScanSpec::taps_mistake() const {
  return taps >= 1 && taps <= kernels::kMostTaps
             ? ""
             : fmt::format("conv_kernel (mamba_d_conv) is {}: convolutions have 1 to {} taps here",
                           taps, kernels::kMostTaps);
}

std::vector<TensorRule> ScanSpec::gguf_rules(const BranchSpec& branch,
                                             std::int64_t channels) const {
  std::vector<TensorRule> rules = {
      {in, "ssm_in"},
      {.parameter = conv + ".weight", .stored = "ssm_conv1d.weight", .shape = {channels, taps}},
      {conv + ".bias", "ssm_conv1d.bias"},
      {out, "ssm_out"}};
  add_norm_rules(branch, {"attn_norm", "post_attention_norm"}, rules);
  return rules;
}

}  // namespace train::engine
