#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/bf16_blocks.hpp"
#include "kernels/backend.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/experts/bf16_experts.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/gemm/bf16_gemm.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_cpu.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::kernels {
namespace {

/// Enqueues compute(params, threads).
template <auto compute, class Params>
void enqueue(Stream& stream, const Params& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] { compute(params, threads); });
}

/// Enqueues compute(params, threads, option).
template <auto compute, auto option, class Params>
void enqueue_with(Stream& stream, const Params& params) {
  enqueue<[](const Params& p, int threads) { compute(p, threads, option); }>(stream, params);
}

/// Differences from cpu_backend(): products, and the kernels built on them.
KernelTable bf16_table() {
  KernelTable table = cpu_backend();
  table.kernel_set = [] { return std::string("cpu-bf16-2"); };
  table.matmul = enqueue<cpu::matmul_bf16>;
  table.expert_matmul = enqueue<cpu::expert_matmul_bf16>;
  table.head_loss = enqueue_with<cpu::head_loss_with, cpu::matmul_bf16>;
  table.token_log_probs = enqueue_with<cpu::token_log_probs_with, cpu::matmul_bf16>;
  table.attention_forward = enqueue_with<cpu::attention_forward_with, cpu::Operands::bf16>;
  table.attention_backward = enqueue_with<cpu::attention_backward_with, cpu::Operands::bf16>;
  table.attention_cached = enqueue_with<cpu::attention_cached_with, cpu::Operands::bf16>;
  table.latent_cached = enqueue_with<cpu::latent_cached_with, cpu::Operands::bf16>;
  return table;
}

}  // namespace

const KernelTable* cpu_bf16_backend() {
  if (!cpu::has_bf16_products()) {
    return nullptr;
  }
  static const KernelTable table = bf16_table();
  return &table;
}

}  // namespace train::kernels
