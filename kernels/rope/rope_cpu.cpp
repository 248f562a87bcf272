#include "kernels/rope/rope.hpp"

#include "base/math/fixed_math.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void rotate_tokens(const RopeParams& p, std::int64_t begin, std::int64_t end) {
  const std::int64_t pairs = p.head_dim / 2;
  const float direction = p.inverse ? -1.0F : 1.0F;
  for (std::int64_t token = begin; token < end; ++token) {
    const std::int64_t position =
        p.positions == nullptr ? token % p.seq_len : std::int64_t{p.positions[token]};
    const std::int64_t entry = position * pairs;
    float* row = static_cast<float*>(p.x) + token * p.layout.outer_stride;
    for (std::int64_t head = 0; head < p.heads; ++head) {
      float* x = row + head * p.layout.inner_stride;
      if (p.pairing == RopePairing::half) {
        rotate_halves(x, p.cos + entry, p.sin + entry, pairs, direction);
      } else {
        rotate_row(x, p.cos + entry, p.sin + entry, pairs, direction);
      }
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(rotate_tokens);

void rope_table(const RopeTableParams& p, int threads) {
  const std::int64_t pairs = p.head_dim / 2;
  parallel_blocks(threads, p.seq_len, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(p.head_dim);
        double angle = static_cast<double>(t) * fixed::pow(p.theta, exponent);
        if (p.frequencies.given) {
          angle = static_cast<double>(static_cast<float>(t) *
                                      p.frequencies.values[static_cast<std::size_t>(i)]);
        }
        const auto factor = static_cast<double>(p.factor);
        const auto [sin, cos] = fixed::sin_cos(angle);
        p.cos[t * pairs + i] = static_cast<float>(factor * cos);
        p.sin[t * pairs + i] = static_cast<float>(factor * sin);
      }
    }
  });
}

void rope_apply(const RopeParams& p, int threads) {
  for (std::int64_t token = 0; p.positions != nullptr && token < p.tokens; ++token) {
    TRAIN_CHECK(p.positions[token] >= 0 && p.positions[token] < p.seq_len,
                "rope_apply: position {} of token {}, tables of {}", p.positions[token], token,
                p.seq_len);
  }
  const auto rotate = HWY_DYNAMIC_DISPATCH(rotate_tokens);
  parallel_blocks(threads, p.tokens, row_block(p.heads * p.head_dim),
                  [&](std::int64_t begin, std::int64_t end) { rotate(p, begin, end); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
