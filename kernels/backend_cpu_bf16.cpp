#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/bf16_blocks.hpp"
#include "kernels/backend.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/gemm/bf16_gemm.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_cpu.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::kernels {
namespace cpu_bf16 {
namespace {

/// Differences from cpu_backend(): products, and the kernels built on them.
void matmul(Stream& stream, const MatmulParams& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] { cpu::matmul_bf16(params, threads); });
}

void head_loss(Stream& stream, const HeadLossParams& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] {
    cpu::head_loss_with(params, threads, cpu::matmul_bf16);
  });
}

void token_log_probs(Stream& stream, const TokenLogProbsParams& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] {
    cpu::token_log_probs_with(params, threads, cpu::matmul_bf16);
  });
}

void attention_forward(Stream& stream, const AttentionForwardParams& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] {
    cpu::attention_forward_with(params, threads, cpu::Operands::bf16);
  });
}

void attention_backward(Stream& stream, const AttentionBackwardParams& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] {
    cpu::attention_backward_with(params, threads, cpu::Operands::bf16);
  });
}

void attention_cached(Stream& stream, const AttentionCachedParams& params) {
  cpu::check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] {
    cpu::attention_cached_with(params, threads, cpu::Operands::bf16);
  });
}

KernelTable table() {
  KernelTable table = cpu_backend();
  table.kernel_set = [] { return std::string("cpu-bf16-2"); };
  table.matmul = matmul;
  table.head_loss = head_loss;
  table.token_log_probs = token_log_probs;
  table.attention_forward = attention_forward;
  table.attention_backward = attention_backward;
  table.attention_cached = attention_cached;
  return table;
}

}  // namespace
}  // namespace cpu_bf16

const KernelTable* cpu_bf16_backend() {
  if (!cpu::has_bf16_products()) {
    return nullptr;
  }
  static const KernelTable table = cpu_bf16::table();
  return &table;
}

}  // namespace train::kernels
