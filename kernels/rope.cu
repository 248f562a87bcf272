#include "kernels/launch.cuh"
#include "kernels/rope.hpp"
#include "kernels/rotate.cuh"

namespace train::kernels::cuda {
namespace {

struct RopeTableEach {
  RopeTableParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pairs = p.head_dim / 2;
    const double exponent = -2.0 * static_cast<double>(i % pairs) / static_cast<double>(p.head_dim);
    const double angle = static_cast<double>(i / pairs) * pow(p.theta, exponent);
    p.cos[i] = static_cast<float>(cos(angle));
    p.sin[i] = static_cast<float>(sin(angle));
  }
};

template <class T>
struct RopeEach {
  RopeParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pairs = p.head_dim / 2;
    const std::int64_t pair = i % pairs;
    const std::int64_t row = i / pairs;
    const std::int64_t token = row / p.heads;
    const std::int64_t entry = token % p.seq_len * pairs + pair;
    T* x = static_cast<T*>(p.x) + token * p.layout.outer_stride +
           row % p.heads * p.layout.inner_stride + 2 * pair;
    rotate_pair(x, value_of(x[0]), value_of(x[1]), p.cos[entry],
                p.inverse ? -p.sin[entry] : p.sin[entry]);
  }
};

}  // namespace

void rope_table(Stream& stream, const RopeTableParams& params) {
  submit(stream, params, [](CudaStream& native, const RopeTableParams& p) {
    launch_each(native, p.seq_len * (p.head_dim / 2), RopeTableEach{p});
  });
}

void rope_apply(Stream& stream, const RopeParams& params) {
  submit(stream, params, [](CudaStream& native, const RopeParams& p) {
    launch_typed_each<RopeEach>(native, p.tokens * p.heads * (p.head_dim / 2), p);
  });
}

}  // namespace train::kernels::cuda
