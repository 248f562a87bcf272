#include "kernels/gemm_cpu.hpp"

#include "kernels/checks.hpp"
#include "kernels/gemm_cuda.hpp"
#include "tests/support/guarded_memory.hpp"

// Products are a library's on a device; here they are the CPU's.
namespace train::kernels {

class MatmulPlans {};

namespace cuda {

void gemm(CudaStream& /*stream*/, const MatmulParams& params) {
  const test::DeviceWork work;
  cpu::gemm(1, params);
}

std::string gemm_library() { return "emulated"; }

void matmul(Stream& stream, const MatmulParams& params) {
  check_params(params);
  CudaStream& native = cuda_stream_of(stream);
  native.submit([&native, params] { gemm(native, params); });
}

}  // namespace cuda
}  // namespace train::kernels
