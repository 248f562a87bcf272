#include "kernels/convert.hpp"

#include "kernels/bf16.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

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
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, below_half)));
    const auto quiet = hn::Or(bits, hn::Set(words, quiet_bit));
    const auto chosen = hn::BitCast(
        words, hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, quiet), hn::BitCast(d, rounded)));
    // At most 16 bits are left, so the saturation of the narrowing changes nothing.
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

HWY_EXPORT(pack_bf16_range);
HWY_EXPORT(unpack_bf16_range);

void pack_bf16(Stream& stream, const PackBf16Params& params) {
  check_cpu_params(params);
  stream.enqueue([p = params, threads = stream.threads()] {
    const auto range = HWY_DYNAMIC_DISPATCH(pack_bf16_range);
    parallel_blocks(threads, p.count, element_block,
                    [&](std::int64_t begin, std::int64_t end) { range(p, begin, end); });
  });
}

void unpack_bf16(Stream& stream, const UnpackBf16Params& params) {
  check_cpu_params(params);
  stream.enqueue([p = params, threads = stream.threads()] {
    const auto range = HWY_DYNAMIC_DISPATCH(unpack_bf16_range);
    parallel_blocks(threads, p.count, element_block,
                    [&](std::int64_t begin, std::int64_t end) { range(p, begin, end); });
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
