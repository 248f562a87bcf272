#include "kernels/activation/elementwise.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/kernel_list.hpp"

#include <cstddef>
#include <vector>

#include "kernels/backend.hpp"
#include "tests/support/devices/guarded_memory.hpp"

// Products are a library's on a device; here they are the CPU's: those of bf16 too, on the same
// values in fp32.
namespace train::kernels {

class MatmulPlans {};

namespace cuda {
namespace {

constexpr std::size_t at(std::int64_t count) { return static_cast<std::size_t>(count); }

/// `rows` rows of a bf16 matrix, with what lies between them.
std::vector<float> widened(const void* data, std::int64_t rows, std::int64_t cols,
                           std::int64_t stride) {
  std::vector<float> values(at((rows - 1) * stride + cols));
  const auto stream = make_inline_stream(1);
  cpu_backend().unpack_bf16(*stream, {.in = static_cast<const std::uint16_t*>(data),
                                      .out = values.data(),
                                      .count = static_cast<std::int64_t>(values.size())});
  return values;
}

/// The rows of C that are bf16: what lies between them stays.
void narrow(const std::vector<float>& values, const MatmulParams& p) {
  const auto stream = make_inline_stream(1);
  const KernelTable& cpu = cpu_backend();  // Once: it asks the processor, which takes microseconds.
  for (std::int64_t row = 0; row < p.m; ++row) {
    cpu.pack_bf16(*stream, {.in = values.data() + row * p.ldc,
                            .out = static_cast<std::uint16_t*>(p.c) + row * p.ldc,
                            .count = p.n});
  }
}

void gemm_of_bf16(const MatmulParams& params) {
  MatmulParams p = params;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;
  if (p.dtype == DType::bf16 && p.k > 0) {
    a = p.transpose_a ? widened(p.a, p.k, p.m, p.lda) : widened(p.a, p.m, p.k, p.lda);
    b = p.transpose_b ? widened(p.b, p.n, p.k, p.ldb) : widened(p.b, p.k, p.n, p.ldb);
    p.a = a.data();
    p.b = b.data();
  }
  if (p.output_dtype == DType::bf16) {
    c = widened(p.c, p.m, p.n, p.ldc);
    p.c = c.data();
  }
  cpu::matmul(p, 1);
  if (params.output_dtype == DType::bf16) {
    narrow(c, params);
  }
}

}  // namespace

void matmul(CudaStream& /*stream*/, const MatmulParams& params) {
  if (params.m == 0 || params.n == 0) {
    return;
  }
  const test::DeviceWork work;
  gemm_of_bf16(params);
}

std::string gemm_library() { return "emulated"; }

}  // namespace cuda
}  // namespace train::kernels
