#pragma once

/// Lists every kernel: its name and its params. Generated from this list: a device's kernel table
/// (backend.hpp) and both of its initialisers, the declarations of the kernel functions, and the
/// code that checks a call and hands it to the stream (backend_cpu.cpp, backend_cuda.cpp). A macro,
/// because no constexpr table declares a function or a member. Params are only declared: a caller
/// includes the header of the kernel that it calls. Sources that define kernels include this file
/// only to call another kernel: a new line recompiles callers of kernels alone, and a definition
/// whose params differ from its declaration's fails to link.
#define TRAIN_KERNELS(KERNEL)                                    \
  KERNEL(matmul, MatmulParams)                                   \
  KERNEL(embedding_forward, EmbeddingForwardParams)              \
  KERNEL(embedding_backward, EmbeddingBackwardParams)            \
  KERNEL(norm_forward, NormForwardParams)                        \
  KERNEL(norm_backward, NormBackwardParams)                      \
  KERNEL(rope_table, RopeTableParams)                            \
  KERNEL(rope_apply, RopeParams)                                 \
  KERNEL(attention_forward, AttentionForwardParams)              \
  KERNEL(attention_backward, AttentionBackwardParams)            \
  KERNEL(attention_sinks_backward, AttentionSinksBackwardParams) \
  KERNEL(attention_cached, AttentionCachedParams)                \
  KERNEL(key_value_append, KeyValueAppendParams)                 \
  KERNEL(join_heads, JoinHeadsParams)                            \
  KERNEL(split_heads, SplitHeadsParams)                          \
  KERNEL(latent_append, LatentAppendParams)                      \
  KERNEL(latent_cached, LatentCachedParams)                      \
  KERNEL(gelu_forward, GeluForwardParams)                        \
  KERNEL(gelu_backward, GeluBackwardParams)                      \
  KERNEL(swiglu_forward, SwigluForwardParams)                    \
  KERNEL(swiglu_backward, SwigluBackwardParams)                  \
  KERNEL(sigmoid_gate_forward, SigmoidGateForwardParams)         \
  KERNEL(sigmoid_gate_backward, SigmoidGateBackwardParams)       \
  KERNEL(activation_forward, ActivationForwardParams)            \
  KERNEL(activation_backward, ActivationBackwardParams)          \
  KERNEL(clamp_forward, ClampForwardParams)                      \
  KERNEL(clamp_backward, ClampBackwardParams)                    \
  KERNEL(bias_add, BiasAddParams)                                \
  KERNEL(bias_gradient, BiasGradientParams)                      \
  KERNEL(router_forward, RouterForwardParams)                    \
  KERNEL(router_backward, RouterBackwardParams)                  \
  KERNEL(router_groups, RouterGroupsParams)                      \
  KERNEL(router_loads, RouterLoadsParams)                        \
  KERNEL(router_balance, BalanceParams)                          \
  KERNEL(choice_bias_update, ChoiceBiasParams)                   \
  KERNEL(expert_sort, ExpertSortParams)                          \
  KERNEL(expert_matmul, ExpertMatmulParams)                      \
  KERNEL(expert_bias_forward, ExpertBiasForwardParams)           \
  KERNEL(expert_bias_backward, ExpertBiasBackwardParams)         \
  KERNEL(gather_rows, GatherRowsParams)                          \
  KERNEL(combine_rows, CombineRowsParams)                        \
  KERNEL(slot_weights_backward, SlotWeightsBackwardParams)       \
  KERNEL(causal_conv_forward, CausalConvForwardParams)           \
  KERNEL(causal_conv_backward, CausalConvBackwardParams)         \
  KERNEL(selective_scan_forward, SelectiveScanForwardParams)     \
  KERNEL(selective_scan_backward, SelectiveScanBackwardParams)   \
  KERNEL(head_scan_forward, HeadScanForwardParams)               \
  KERNEL(head_scan_backward, HeadScanBackwardParams)             \
  KERNEL(gated_norm_forward, GatedNormForwardParams)             \
  KERNEL(gated_norm_backward, GatedNormBackwardParams)           \
  KERNEL(head_loss, HeadLossParams)                              \
  KERNEL(token_log_probs, TokenLogProbsParams)                   \
  KERNEL(logits_log_probs, LogitsLogProbsParams)                 \
  KERNEL(row_distance, RowDistanceParams)                        \
  KERNEL(residual_add, ResidualAddParams)                        \
  KERNEL(tree_add, TreeAddParams)                                \
  KERNEL(scale, ScaleParams)                                     \
  KERNEL(mask_sign, MaskSignParams)                              \
  KERNEL(pack_bf16, PackBf16Params)                              \
  KERNEL(unpack_bf16, UnpackBf16Params)                          \
  KERNEL(fill, FillParams)                                       \
  KERNEL(copy, CopyParams)                                       \
  KERNEL(count_nonfinite, CountNonfiniteParams)                  \
  KERNEL(count_nonzero, CountNonzeroParams)                      \
  KERNEL(row_square_sums, RowSquareSumsParams)                   \
  KERNEL(tree_sum, TreeSumParams)                                \
  KERNEL(clip_scale, ClipScaleParams)                            \
  KERNEL(adamw_update, AdamwParams)                              \
  KERNEL(ademamix_update, AdemamixParams)                        \
  KERNEL(dana_update, DanaParams)                                \
  KERNEL(average_update, AverageParams)                          \
  KERNEL(muon_momentum, MuonMomentumParams)                      \
  KERNEL(muon_normalise, MuonNormaliseParams)                    \
  KERNEL(blend_bf16, BlendBf16Params)                            \
  KERNEL(muon_apply, MuonApplyParams)

namespace train::kernels {

class CudaStream;
class Stream;
struct KeyValueCache;
struct LogProbResults;
struct LossSums;
struct UpdateGuard;

// Checks of a kernel's params (<family>_checks.cpp), shared by all devices. Each throws
// CheckFailed, on the caller's thread and before anything is enqueued.
#define TRAIN_KERNEL_CHECK(name, Params) \
  struct Params;                         \
  void check_params(const Params& params);
TRAIN_KERNELS(TRAIN_KERNEL_CHECK)
#undef TRAIN_KERNEL_CHECK

namespace cpu {
// CPU kernel, twice: enqueued on a stream; and run at once on the caller's thread and `threads` - 1
// more. REQUIRES for the latter: checked params.
#define TRAIN_KERNEL_OF_CPU(name, Params)          \
  void name(Stream& stream, const Params& params); \
  void name(const Params& params, int threads);
TRAIN_KERNELS(TRAIN_KERNEL_OF_CPU)
#undef TRAIN_KERNEL_OF_CPU
}  // namespace cpu

namespace cuda {
// CUDA kernel, twice: submitted to a stream; and launched at once, without waiting, only from
// submitted work. REQUIRES for the latter: checked params. Throws DeviceError.
#define TRAIN_KERNEL_OF_CUDA(name, Params)         \
  void name(Stream& stream, const Params& params); \
  void name(CudaStream& stream, const Params& params);
TRAIN_KERNELS(TRAIN_KERNEL_OF_CUDA)
#undef TRAIN_KERNEL_OF_CUDA
}  // namespace cuda

}  // namespace train::kernels
