#include "kernels/state_space/selective_scan.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"
#include "kernels/state_space/scan_rates.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/selective_scan_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/state_space/scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Rows [begin, end) of the vector at channel c0 + i; rates and h: [states, kScanChannels].
template <class Part>
HWY_INLINE void scan_vector(const SelectiveScanForwardParams& p, const float* rates, float* h,
                            std::int64_t begin, std::int64_t end, std::int64_t c0, std::int64_t i,
                            Part part) {
  const ScanInputs& in = p.in;
  const Floats d;
  const FloatVec skip = load(d, in.d + c0 + i, part);
  for (std::int64_t row = begin; row < end; ++row) {
    const auto* b = static_cast<const float*>(in.b) + row * in.b_stride;
    const auto* c = static_cast<const float*>(in.c) + row * in.b_stride;
    const ScanRow at = scan_row(d, in, row, c0 + i, part);
    FloatVec sum = hn::Mul(skip, at.u);
    for (std::int64_t n = 0; n < in.states; ++n) {
      const std::int64_t place = n * kScanChannels + i;
      const FloatVec decay = exp_of_negative(d, hn::Mul(at.step, hn::Load(d, rates + place)));
      const FloatVec added = hn::Mul(at.step_u, hn::Set(d, b[n]));
      const FloatVec state = hn::MulAdd(decay, hn::Load(d, h + place), added);
      hn::Store(state, d, h + place);
      sum = hn::MulAdd(hn::Set(d, c[n]), state, sum);
    }
    const auto* z = static_cast<const float*>(in.z) + row * in.z_stride + c0 + i;
    const FloatVec gate = load(d, z, part);
    store(hn::Mul(sum, hn::Mul(gate, sigmoid(d, gate))), d,
          static_cast<float*>(p.y) + row * p.y_stride + c0 + i, part);
  }
}

/// The documents of one sequence in one block of channels.
void scan_documents(const SelectiveScanForwardParams& p, const float* rates,
                    const DocumentRange* first, const DocumentRange* last, std::int64_t block) {
  alignas(64) float h[kMostScanStates * kScanChannels];
  const std::int64_t states = p.in.states;
  const std::int64_t c0 = block * kScanChannels;
  const std::int64_t width = std::min(kScanChannels, p.in.channels - c0);
  const auto copy_state = [&](float* memory, bool into_memory) {
    for (std::int64_t n = 0; n < states; ++n) {
      float* there = memory + n * p.in.channels + c0;
      float* here = h + n * kScanChannels;
      into_memory ? std::copy_n(here, width, there) : std::copy_n(there, width, here);
    }
  };
  for (; first != last; ++first) {
    float* text = p.states.data == nullptr
                      ? nullptr
                      : static_cast<float*>(p.states.data) +
                            std::int64_t{p.states.texts[first->first]} * states * p.in.channels;
    std::fill_n(h, states * kScanChannels, 0.0F);
    if (p.states.extend && p.in.rows.positions[first->first] > 0) {
      copy_state(text, false);
    }
    for (std::int64_t begin = first->first; begin < first->end(); begin += kScanChunk) {
      if (p.kept != nullptr && begin > first->first) {
        copy_state(p.kept + begin / kScanChunk * states * p.in.channels, true);
      }
      const std::int64_t end = std::min(begin + kScanChunk, first->end());
      each_vector(0, width, [&](std::int64_t i, auto part) {
        scan_vector(p, rates, h, begin, end, c0, i, part);
      });
    }
    if (text != nullptr) {
      copy_state(text, true);
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(scan_documents);

void selective_scan_forward(const SelectiveScanForwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::vector<DocumentRange> documents = document_ranges(p.in.rows, p.states.extend);
  const float* rates = scan_rates(p.in.a_log, p.in.channels, p.in.states, threads, scratch);
  const std::vector<const DocumentRange*> begins = sequence_begins(documents);
  const std::int64_t blocks = divide_up(p.in.channels, kScanChannels);
  const auto sequences = static_cast<std::int64_t>(begins.size()) - 1;
  const auto one = HWY_DYNAMIC_DISPATCH(scan_documents);
  parallel_for(threads, sequences * blocks, [&](std::int64_t item, int) {
    const auto sequence = static_cast<std::size_t>(item / blocks);
    const std::int64_t block = item % blocks;
    one(p, rates + block * kScanChannels * p.in.states, begins[sequence], begins[sequence + 1],
        block);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
