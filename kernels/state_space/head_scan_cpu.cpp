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

/// One row of one head: the states in `s` move on.
void head_scan_row(const HeadScanForwardParams& p, std::int64_t row, std::int64_t head, float step,
                   float decay, float* s) {
  const HeadScanInputs& in = p.in;
  alignas(64) float b[kMostHeadStates];
  alignas(64) float c[kMostHeadStates];
  const std::int64_t group = head / (in.heads / in.groups);
  const std::int64_t place = row * in.x_stride + group * in.states;
  load_states(in.b, place, in.states, b);
  load_states(in.c, place, in.states, c);
  const std::int64_t whole = padded_states(in.states);
  const auto* x = static_cast<const float*>(in.x) + row * in.x_stride + head * in.width;
  auto* y = static_cast<float*>(p.y) + row * p.y_stride + head * in.width;
  const Floats d;
  const FloatVec decays = hn::Set(d, decay);
  for (std::int64_t channel = 0; channel < in.width; ++channel) {
    float* state = s + channel * whole;
    const FloatVec added = hn::Set(d, step * x[channel]);
    Floats16 sums(0.0F);
    for (std::int64_t n = 0; n < whole; n += Floats16::count) {
      for (int vector = 0; vector < Floats16::vectors; ++vector) {
        const std::int64_t at = n + vector * Floats16::lanes;
        const FloatVec next = next_state(d, decays, added, b + at, state + at);
        hn::Store(next, d, state + at);
        sums[vector] = hn::MulAdd(hn::Load(d, c + at), next, sums[vector]);
      }
    }
    y[channel] = sum_of(sums) + in.d[head] * x[channel];
  }
}

/// The documents of one sequence in one head. steps, decays: [rows, heads].
void head_scan_documents(const HeadScanForwardParams& p, const float* steps, const float* decays,
                         const DocumentRange* first, const DocumentRange* last, std::int64_t head) {
  static thread_local Scratch scratch;
  const HeadScanInputs& in = p.in;
  const std::int64_t size = in.width * in.states;
  auto* s = scratch.get<float>(in.width * padded_states(in.states));
  for (; first != last; ++first) {
    float* text = p.states.data == nullptr
                      ? nullptr
                      : static_cast<float*>(p.states.data) +
                            (std::int64_t{p.states.texts[first->first]} * in.heads + head) * size;
    const bool goes_on = p.states.extend && in.rows.positions[first->first] > 0;
    load_head(goes_on ? text : nullptr, in.width, in.states, s);
    for (std::int64_t row = first->first; row < first->end(); ++row) {
      if (p.kept != nullptr && row > first->first && (row - first->first) % kHeadChunk == 0) {
        store_head(s, in.width, in.states,
                   p.kept + row / kHeadChunk * in.state_size() + head * size);
      }
      const std::int64_t at = row * in.heads + head;
      head_scan_row(p, row, head, steps[at], decays[at], s);
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
    one(p, of.steps, of.decays, begins[sequence], begins[sequence + 1], item % p.in.heads);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
