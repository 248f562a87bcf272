#include "kernels/backend.hpp"

#include <fmt/format.h>

#include "kernels/device/cuda_device.hpp"
#include "kernels/gemm/gemm_cuda.hpp"

namespace train::kernels {
namespace {

std::string cuda_kernel_set() {
  return fmt::format("cuda-{} {}", cuda_device_name(), cuda::gemm_library());
}

}  // namespace

const KernelTable* cuda_backend() {
  static const KernelTable table{
      .name = "cuda",
      .device = &cuda_device(),
      .kernel_set = cuda_kernel_set,
      .matmul = cuda::matmul,
      .embedding_forward = cuda::embedding_forward,
      .embedding_backward = cuda::embedding_backward,
      .norm_forward = cuda::norm_forward,
      .norm_backward = cuda::norm_backward,
      .rope_table = cuda::rope_table,
      .rope_apply = cuda::rope_apply,
      .attention_forward = cuda::attention_forward,
      .attention_backward = cuda::attention_backward,
      .gelu_forward = cuda::gelu_forward,
      .gelu_backward = cuda::gelu_backward,
      .swiglu_forward = cuda::swiglu_forward,
      .swiglu_backward = cuda::swiglu_backward,
      .sigmoid_gate_forward = cuda::sigmoid_gate_forward,
      .sigmoid_gate_backward = cuda::sigmoid_gate_backward,
      .head_loss = cuda::head_loss,
      .residual_add = cuda::residual_add,
      .tree_add = cuda::tree_add,
      .scale_add = cuda::scale_add,
      .mask_sign = cuda::mask_sign,
      .pack_bf16 = cuda::pack_bf16,
      .unpack_bf16 = cuda::unpack_bf16,
      .fill = cuda::fill,
      .copy = cuda::copy,
      .count_nonfinite = cuda::count_nonfinite,
      .row_square_sums = cuda::row_square_sums,
      .tree_sum = cuda::tree_sum,
      .clip_scale = cuda::clip_scale,
      .adamw_update = cuda::adamw_update,
      .ademamix_update = cuda::ademamix_update,
      .dana_update = cuda::dana_update,
      .muon_momentum = cuda::muon_momentum,
      .muon_normalise = cuda::muon_normalise,
      .blend_bf16 = cuda::blend_bf16,
      .muon_apply = cuda::muon_apply,
  };
  return cuda_absence().empty() ? &table : nullptr;
}

}  // namespace train::kernels
