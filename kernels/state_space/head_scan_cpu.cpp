#include "kernels/state_space/head_scan.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"
#include "kernels/state_space/head_steps.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/head_scan_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/state_space/head_scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

void head_steps_row(const HeadScanInputs& in, std::int64_t row, float* steps, float* decays) {
  head_steps_of_row(in, row, steps, decays);
}

/// Rows whose states stay in registers while they move on, and channels side by side.
constexpr int kRowsAtOnce = HWY_TARGET == HWY_AVX3 ? 4 : 1;
constexpr int kChannelsAtOnce = 4;

/// Some rows of one head; b and c have whole Floats16.
template <int rows>
struct HeadRows {
  const float *b[rows], *c[rows], *x[rows];
  float* y[rows];
  float decays[rows];
  const float* steps_x;  ///< [rows, kMostHeadWidth].
  float skip;
};

/// Channels of these rows from `channel` on: their states, `whole` apart, move on.
template <int rows, int channels>
HWY_INLINE void scan_channels(const HeadRows<rows>& of, std::int64_t channel, std::int64_t whole,
                              float* states) {
  const Floats d;
  Floats16 sums[rows][channels];
  for (std::int64_t n = 0; n < whole; n += Floats16::count) {
    for (int vector = 0; vector < Floats16::vectors; ++vector) {
      const std::int64_t at = n + vector * Floats16::lanes;
      FloatVec state[channels];
      for (int k = 0; k < channels; ++k) {
        state[k] = hn::LoadU(d, states + k * whole + at);
      }
      for (int t = 0; t < rows; ++t) {
        const float* steps_x = of.steps_x + t * kMostHeadWidth + channel;
        const FloatVec b = hn::LoadU(d, of.b[t] + at);
        const FloatVec c = hn::LoadU(d, of.c[t] + at);
        const FloatVec decay = hn::Set(d, of.decays[t]);
        for (int k = 0; k < channels; ++k) {
          state[k] = hn::MulAdd(decay, state[k], hn::Mul(hn::Set(d, steps_x[k]), b));
          sums[t][k][vector] = hn::MulAdd(c, state[k], sums[t][k][vector]);
        }
      }
      for (int k = 0; k < channels; ++k) {
        hn::StoreU(state[k], d, states + k * whole + at);
      }
    }
  }
  for (int t = 0; t < rows; ++t) {
    const float* x = of.x[t] + channel;
    float* y = of.y[t] + channel;
    if constexpr (channels == 4) {
      const hn::FixedTag<float, 4> four;
      const auto skipped = hn::Mul(hn::Set(four, of.skip), hn::LoadU(four, x));
      hn::StoreU(hn::Add(sums_of_four(sums[t]), skipped), four, y);
    } else {
      *y = sum_of(sums[t][0]) + of.skip * *x;
    }
  }
}

/// `rows` rows of one head from `row` on: the states in `s` move on.
template <int rows>
void scan_head_rows(const HeadScanForwardParams& p, const HeadSteps& of, std::int64_t row,
                    std::int64_t head, float* s) {
  const HeadScanInputs& in = p.in;
  alignas(64) float padded[2 * rows][kMostHeadStates];
  alignas(64) float steps_x[rows * kMostHeadWidth];
  const std::int64_t whole = padded_states(in.states);
  HeadRows<rows> at;
  at.steps_x = steps_x;
  at.skip = in.d[head];
  for (int t = 0; t < rows; ++t) {
    const std::int64_t begin = (row + t) * in.x_stride;
    const std::int64_t group = begin + head / (in.heads / in.groups) * in.states;
    at.b[t] = whole_states(in.b, group, in.states, padded[2 * t]);
    at.c[t] = whole_states(in.c, group, in.states, padded[2 * t + 1]);
    at.x[t] = static_cast<const float*>(in.x) + begin + head * in.width;
    at.y[t] = static_cast<float*>(p.y) + (row + t) * p.y_stride + head * in.width;
    at.decays[t] = of.decays[(row + t) * in.heads + head];
    const float step = of.steps[(row + t) * in.heads + head];
    for (std::int64_t channel = 0; channel < in.width; ++channel) {
      steps_x[t * kMostHeadWidth + channel] = step * at.x[t][channel];
    }
    if (const std::int64_t next = 2 * rows; row + t + next < in.rows.count()) {
      fetch_row(at.x[t] + next * in.x_stride, in.width);
      fetch_row<true>(at.y[t] + next * p.y_stride, in.width);
    }
  }
  std::int64_t channel = 0;
  for (; channel + kChannelsAtOnce <= in.width; channel += kChannelsAtOnce) {
    scan_channels<rows, kChannelsAtOnce>(at, channel, whole, s + channel * whole);
  }
  for (; channel < in.width; ++channel) {
    scan_channels<rows, 1>(at, channel, whole, s + channel * whole);
  }
}

/// Rows [begin, end) of one head.
HWY_INLINE void scan_head(const HeadScanForwardParams& p, const HeadSteps& of, std::int64_t begin,
                          std::int64_t end, std::int64_t head, float* s) {
  for (; begin + kRowsAtOnce <= end; begin += kRowsAtOnce) {
    scan_head_rows<kRowsAtOnce>(p, of, begin, head, s);
  }
  for (; begin < end; ++begin) {
    scan_head_rows<1>(p, of, begin, head, s);
  }
}

/// The documents of one sequence in one head.
void head_scan_documents(const HeadScanForwardParams& p, const HeadSteps& of,
                         const DocumentRange* first, const DocumentRange* last, std::int64_t head) {
  static thread_local Scratch scratch;
  const HeadScanInputs& in = p.in;
  const std::int64_t size = in.width * in.states;
  const bool whole = in.states == padded_states(in.states);
  for (; first != last; ++first) {
    float* text = p.states.data == nullptr
                      ? nullptr
                      : static_cast<float*>(p.states.data) +
                            (std::int64_t{p.states.texts[first->first]} * in.heads + head) * size;
    const bool goes_on = p.states.extend && in.rows.positions[first->first] > 0;
    if (goes_on && whole) {  // In its place.
      scan_head(p, of, first->first, first->end(), head, text);
      continue;
    }
    auto* s = scratch.get<float>(in.width * padded_states(in.states));
    load_head(goes_on ? text : nullptr, in.width, in.states, s);
    for (std::int64_t begin = first->first; begin < first->end(); begin += kHeadChunk) {
      if (p.kept != nullptr && begin > first->first) {
        store_head(s, in.width, in.states,
                   p.kept + begin / kHeadChunk * in.state_size() + head * size);
      }
      scan_head(p, of, begin, std::min(begin + kHeadChunk, first->end()), head, s);
    }
    if (text != nullptr) {
      store_head(s, in.width, in.states, text);
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(head_steps_row);
HWY_EXPORT(head_scan_documents);

HeadSteps head_steps(const HeadScanInputs& in, int threads, Scratch& scratch) {
  const std::int64_t count = in.rows.count() * in.heads;
  auto* steps = scratch.get<float>(2 * count);
  const auto one = HWY_DYNAMIC_DISPATCH(head_steps_row);
  each_row(threads, in.rows.count(), in.heads, [&](std::int64_t row) {
    one(in, row, steps + row * in.heads, steps + count + row * in.heads);
  });
  return {steps, steps + count};
}

void head_scan_forward(const HeadScanForwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::vector<DocumentRange> documents = document_ranges(p.in.rows, p.states.extend);
  const HeadSteps of = head_steps(p.in, threads, scratch);
  const std::vector<const DocumentRange*> begins = sequence_begins(documents);
  const auto sequences = static_cast<std::int64_t>(begins.size()) - 1;
  const auto one = HWY_DYNAMIC_DISPATCH(head_scan_documents);
  parallel_for(threads, sequences * p.in.heads, [&](std::int64_t item, int) {
    const auto sequence = static_cast<std::size_t>(item / p.in.heads);
    one(p, of, begins[sequence], begins[sequence + 1], item % p.in.heads);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
