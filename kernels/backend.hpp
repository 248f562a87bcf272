#pragma once

#include <string>

#include "kernels/activation/activation.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/convert.hpp"
#include "kernels/device/device.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"

namespace train::kernels {

/// The list of all kernels of one kind of device. Every kernel only enqueues on its stream and
/// returns; the params are copied, the memory they point to must live until the stream has passed.
/// Every kernel is deterministic, and its bits do not depend on the number of threads.
struct KernelTable {
  const char* name;
  const Device* device;         ///< What they run on.
  std::string (*kernel_set)();  ///< What decides their bits, by name; recorded in every manifest.

  void (*matmul)(Stream&, const MatmulParams&);
  void (*embedding_forward)(Stream&, const EmbeddingForwardParams&);
  void (*embedding_backward)(Stream&, const EmbeddingBackwardParams&);
  void (*norm_forward)(Stream&, const NormForwardParams&);
  void (*norm_backward)(Stream&, const NormBackwardParams&);
  void (*rope_table)(Stream&, const RopeTableParams&);
  void (*rope_apply)(Stream&, const RopeParams&);
  void (*attention_forward)(Stream&, const AttentionForwardParams&);
  void (*attention_backward)(Stream&, const AttentionBackwardParams&);
  void (*gelu_forward)(Stream&, const GeluForwardParams&);
  void (*gelu_backward)(Stream&, const GeluBackwardParams&);
  void (*swiglu_forward)(Stream&, const SwigluForwardParams&);
  void (*swiglu_backward)(Stream&, const SwigluBackwardParams&);
  void (*sigmoid_gate_forward)(Stream&, const SigmoidGateForwardParams&);
  void (*sigmoid_gate_backward)(Stream&, const SigmoidGateBackwardParams&);
  void (*head_loss)(Stream&, const HeadLossParams&);
  void (*residual_add)(Stream&, const ResidualAddParams&);
  void (*tree_add)(Stream&, const TreeAddParams&);
  void (*scale_add)(Stream&, const ScaleAddParams&);
  void (*mask_sign)(Stream&, const MaskSignParams&);
  void (*pack_bf16)(Stream&, const PackBf16Params&);
  void (*unpack_bf16)(Stream&, const UnpackBf16Params&);
  void (*fill)(Stream&, const FillParams&);
  void (*copy)(Stream&, const CopyParams&);
  void (*count_nonfinite)(Stream&, const CountNonfiniteParams&);
  void (*row_square_sums)(Stream&, const RowSquareSumsParams&);
  void (*tree_sum)(Stream&, const TreeSumParams&);
  void (*clip_scale)(Stream&, const ClipScaleParams&);
  void (*adamw_update)(Stream&, const AdamwParams&);
  void (*ademamix_update)(Stream&, const AdemamixParams&);
  void (*dana_update)(Stream&, const DanaParams&);
  void (*muon_momentum)(Stream&, const MuonMomentumParams&);
  void (*muon_normalise)(Stream&, const MuonNormaliseParams&);
  void (*blend_bf16)(Stream&, const BlendBf16Params&);
  void (*muon_apply)(Stream&, const MuonApplyParams&);
};

/// Always there: the fallback without a GPU, the oracle with one.
[[nodiscard]] const KernelTable& cpu_backend();
/// nullptr where the build has no CUDA, or the machine no device; cuda_absence() says why
/// (device/cuda_device.hpp).
[[nodiscard]] const KernelTable* cuda_backend();

/// The CPU's kernel set: its instruction set ("cpu-avx512").
[[nodiscard]] std::string kernel_set();
/// FLOP/s of `matmul` on this machine with `threads` threads, the best of several shapes measured
/// in turn for about `seconds` (blocking; start-up and benches only): the peak that MFU refers to.
[[nodiscard]] double measure_gemm_flops(int threads, double seconds);
/// The same of a device's `matmul` of `dtype`, in a stream of its own: square products that grow
/// until one is long enough. Throws DeviceError.
[[nodiscard]] double measure_gemm_flops(const KernelTable& table, DType dtype, double seconds);

}  // namespace train::kernels
