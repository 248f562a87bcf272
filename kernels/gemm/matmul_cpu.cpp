#include "kernels/gemm/matmul.hpp"

#include "kernels/cpu_support.hpp"
#include "kernels/gemm/gemm_cpu.hpp"

namespace train::kernels::cpu {

void matmul(Stream& stream, const MatmulParams& params) {
  check_cpu_params(params);
  stream.enqueue([params, threads = stream.threads()] { gemm(threads, params); });
}

}  // namespace train::kernels::cpu
