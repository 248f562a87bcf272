#include "kernels/activation/elementwise.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/elementwise_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void residual_add_range(const ResidualAddParams& p, std::int64_t begin, std::int64_t end) {
  const auto* x = static_cast<const float*>(p.x);
  const auto* branch = static_cast<const float*>(p.branch);
  auto* out = static_cast<float*>(p.out);
  const Floats d;
  const FloatVec scale = hn::Set(d, p.scale);
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec sum = hn::MulAdd(scale, load(d, branch + i, part), load(d, x + i, part));
    store(sum, d, out + i, part);
  });
}

void tree_add_range(const TreeAddParams& p, std::int64_t begin, std::int64_t end) {
  const Floats d;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    store(hn::Add(load(d, p.left + i, part), load(d, p.right + i, part)), d, p.out + i, part);
  });
}

void scale_range(const ScaleParams& p, std::int64_t begin, std::int64_t end) {
  const auto* x = static_cast<const float*>(p.x);
  auto* y = static_cast<float*>(p.y);
  const Floats d;
  const FloatVec scale = hn::Set(d, p.factor == nullptr ? p.scale : p.scale * *p.factor);
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    store(hn::Mul(scale, load(d, x + i, part)), d, y + i, part);
  });
}

void mask_sign_range(const MaskSignParams& p, std::int64_t begin, std::int64_t end) {
  const Floats d;
  const FloatVec zero = hn::Zero(d);
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec g = load(d, p.g + i, part);
    const FloatVec other = load(d, p.other + i, part);
    const auto above = hn::And(hn::Gt(g, zero), hn::Gt(other, zero));
    const auto below = hn::And(hn::Lt(g, zero), hn::Lt(other, zero));
    const FloatVec masked = hn::IfThenElseZero(hn::Or(above, below), g);
    const auto nan = hn::Or(hn::IsNaN(g), hn::IsNaN(other));
    store(hn::IfThenElse(nan, hn::Add(g, other), masked), d, p.g + i, part);
  });
}

/// NaN and Inf are the values v with v - v != 0.
std::int64_t count_nonfinite_range(const float* x, std::int64_t begin, std::int64_t end) {
  const Floats d;
  std::int64_t count = 0;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec v = load(d, x + i, part);
    const auto finite = hn::Eq(hn::Sub(v, v), hn::Zero(d));
    count += static_cast<std::int64_t>(hn::CountTrue(d, hn::Not(finite)));
  });
  return count;
}

std::int64_t count_nonzero_range(const float* x, std::int64_t begin, std::int64_t end) {
  const Floats d;
  std::int64_t count = 0;
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const auto zero = hn::Eq(load(d, x + i, part), hn::Zero(d));
    count += static_cast<std::int64_t>(hn::CountTrue(d, hn::Not(zero)));
  });
  return count;
}

void pack_bf16_range(const PackBf16Params& p, std::int64_t begin, std::int64_t end) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::RebindToSigned<Floats> numbers;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto value = hn::LoadU(d, p.in + i);
    const auto bits = hn::BitCast(words, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1U));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, kBelowHalf)));
    const auto quiet = hn::Or(bits, hn::Set(words, kQuietBit));
    const auto chosen = hn::BitCast(
        words, hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, quiet), hn::BitCast(d, rounded)));
    // The values have at most 16 bits, so the narrowing does not saturate.
    hn::StoreU(hn::DemoteTo(halves, hn::BitCast(numbers, hn::ShiftRight<16>(chosen))), halves,
               p.out + i);
  }
  for (; i < end; ++i) {
    p.out[i] = to_bf16(p.in[i]);
  }
}

void unpack_bf16_range(const UnpackBf16Params& p, std::int64_t begin, std::int64_t end) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto wide = hn::PromoteTo(words, hn::LoadU(halves, p.in + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(wide)), d, p.out + i);
  }
  for (; i < end; ++i) {
    p.out[i] = from_bf16(p.in[i]);
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(residual_add_range);
HWY_EXPORT(tree_add_range);
HWY_EXPORT(scale_range);
HWY_EXPORT(mask_sign_range);
HWY_EXPORT(count_nonfinite_range);
HWY_EXPORT(count_nonzero_range);
HWY_EXPORT(pack_bf16_range);
HWY_EXPORT(unpack_bf16_range);

void residual_add(const ResidualAddParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(residual_add_range), p);
}

void tree_add(const TreeAddParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(tree_add_range), p);
}

void scale(const ScaleParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(scale_range), p);
}

void mask_sign(const MaskSignParams& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(mask_sign_range), p);
}

void fill(const FillParams& p, int threads) {
  parallel_blocks(threads, p.count, kElementBlock, [&](std::int64_t begin, std::int64_t end) {
    std::fill(p.out + begin, p.out + end, p.value);
  });
}

void copy(const CopyParams& p, int threads) {
  constexpr std::int64_t block_bytes = std::int64_t{1} << 18;
  if (p.in == p.out) {
    return;
  }
  parallel_blocks(threads, p.size_bytes, block_bytes, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(p.out) + begin, static_cast<const std::byte*>(p.in) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

namespace {

/// Sums the counts that `range` returns for blocks of `count` elements. Integers, so any order
/// gives the same.
template <class Range>
std::int64_t count_blocks(int threads, std::int64_t count, const Range& range) {
  std::atomic<std::int64_t> total = 0;
  parallel_blocks(threads, count, kElementBlock,
                  [&](std::int64_t begin, std::int64_t end) { total += range(begin, end); });
  return total;
}

}  // namespace

void count_nonfinite(const CountNonfiniteParams& p, int threads) {
  const auto range = HWY_DYNAMIC_DISPATCH(count_nonfinite_range);
  const auto* x = static_cast<const float*>(p.x);
  *p.nonfinite = count_blocks(threads, p.count, [&](auto... ends) { return range(x, ends...); });
}

void count_nonzero(const CountNonzeroParams& p, int threads) {
  const auto range = HWY_DYNAMIC_DISPATCH(count_nonzero_range);
  *p.nonzero = count_blocks(threads, p.count, [&](auto... ends) { return range(p.x, ends...); });
}

void pack_bf16(const PackBf16Params& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(pack_bf16_range), p);
}

void unpack_bf16(const UnpackBf16Params& p, int threads) {
  each_block(threads, p.count, HWY_DYNAMIC_DISPATCH(unpack_bf16_range), p);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
