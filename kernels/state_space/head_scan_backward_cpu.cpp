#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"
#include "kernels/state_space/head_scan.hpp"
#include "kernels/state_space/head_steps.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/head_scan_backward_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/state_space/head_scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Sums of one head over rows.
struct HeadSums {
  float a_log = 0.0F, d = 0.0F, bias = 0.0F;

  void operator+=(const HeadSums& other) {
    a_log += other.a_log;
    d += other.d;
    bias += other.bias;
  }
};

/// Scratch of one head; a state is [width, padded states].
struct HeadScratch {
  static constexpr std::int64_t pieces = kHeadChunk / kHeadPiece;
  std::int64_t size;     ///< Size of a state.
  float *begins, *rows;  ///< [pieces, size]; [kHeadPiece + 1, size].
  float* carry;          ///< [size]: of the row behind, decayed.

  HeadScratch(Scratch& scratch, std::int64_t state)
      : size(state),
        begins(scratch.get<float>((pieces + kHeadPiece + 2) * state)),
        rows(begins + pieces * state),
        carry(rows + (kHeadPiece + 1) * state) {}
};

/// One head of a call.
struct HeadCall {
  const HeadScanBackwardParams& p;
  HeadSteps of;
  std::int64_t head;

  [[nodiscard]] std::int64_t group() const { return head / (p.in.heads / p.in.groups); }
  [[nodiscard]] std::int64_t place(std::int64_t row) const {
    return row * p.in.x_stride + group() * p.in.states;
  }
  [[nodiscard]] const float* x(std::int64_t row) const {
    return static_cast<const float*>(p.in.x) + row * p.in.x_stride + head * p.in.width;
  }
};

/// The states behind `row` from those before it.
void walk_row(const HeadCall& call, std::int64_t row, const float* before, float* after) {
  const HeadScanInputs& in = call.p.in;
  alignas(64) float b[kMostHeadStates];
  load_states(in.b, call.place(row), in.states, b);
  const std::int64_t whole = padded_states(in.states);
  const float* x = call.x(row);
  const std::int64_t at = row * in.heads + call.head;
  const float step = call.of.steps[at];
  const Floats d;
  const FloatVec decay = hn::Set(d, call.of.decays[at]);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t channel = 0; channel < in.width; ++channel) {
    const FloatVec added = hn::Set(d, step * x[channel]);
    const std::int64_t first = channel * whole;
    for (std::int64_t n = 0; n < whole; n += lanes) {
      hn::Store(next_state(d, decay, added, b + n, before + first + n), d, after + first + n);
    }
  }
}

/// The gradient of a row's step, and of what decay multiplies.
struct StepGradient {
  float of_x = 0.0F, of_decay = 0.0F;
};

/// Walks a row back through its states; leaves db and dc of this head in
/// `parts`.
StepGradient row_states_back(const HeadCall& call, const HeadScratch& s, std::int64_t row,
                             const float* before, float* parts, HeadSums& sums) {
  const HeadScanBackwardParams& p = call.p;
  const HeadScanInputs& in = p.in;
  alignas(64) float b[kMostHeadStates];
  alignas(64) float c[kMostHeadStates];
  alignas(64) float db[kMostHeadStates] = {};
  alignas(64) float dc[kMostHeadStates] = {};
  load_states(in.b, call.place(row), in.states, b);
  load_states(in.c, call.place(row), in.states, c);
  const std::int64_t whole = padded_states(in.states);
  const float* after = before + s.size;
  const float* x = call.x(row);
  const auto* dy = static_cast<const float*>(p.dy) + row * p.y_stride + call.head * in.width;
  auto* dx = static_cast<float*>(p.dx) + row * p.dx_stride + call.head * in.width;
  const std::int64_t at = row * in.heads + call.head;
  const float step = call.of.steps[at];
  const Floats d;
  const FloatVec decay = hn::Set(d, call.of.decays[at]);
  Floats16 of_decay(0.0F);
  StepGradient gradient;
  for (std::int64_t channel = 0; channel < in.width; ++channel) {
    const FloatVec dys = hn::Set(d, dy[channel]);
    const FloatVec steps = hn::Set(d, step * x[channel]);
    Floats16 of_x(0.0F);
    for (std::int64_t n = 0; n < whole; n += Floats16::count) {
      for (int vector = 0; vector < Floats16::vectors; ++vector) {
        const std::int64_t k = n + vector * Floats16::lanes;
        const std::int64_t place = channel * whole + k;
        const FloatVec adjoint = hn::MulAdd(hn::Load(d, c + k), dys, hn::Load(d, s.carry + place));
        hn::Store(hn::MulAdd(dys, hn::Load(d, after + place), hn::Load(d, dc + k)), d, dc + k);
        hn::Store(hn::MulAdd(adjoint, steps, hn::Load(d, db + k)), d, db + k);
        of_x[vector] = hn::MulAdd(adjoint, hn::Load(d, b + k), of_x[vector]);
        of_decay[vector] = hn::MulAdd(adjoint, hn::Load(d, before + place), of_decay[vector]);
        hn::Store(hn::Mul(decay, adjoint), d, s.carry + place);
      }
    }
    const float sum = sum_of(of_x);
    dx[channel] = step * sum + in.d[call.head] * dy[channel];
    gradient.of_x += x[channel] * sum;
    sums.d += dy[channel] * x[channel];
  }
  gradient.of_decay = sum_of(of_decay);
  std::copy_n(db, in.states, parts);
  std::copy_n(dc, in.states, parts + in.states);
  return gradient;
}

/// Slope of a step by delta: that of softplus, 0 beyond the limits.
HWY_INLINE float step_slope(const HeadScanInputs& in, float raw) {
  const Floats d;
  const FloatVec x = hn::Set(d, raw);
  const float step = hn::GetLane(softplus(d, x));
  return step < in.least_step || step > in.most_step ? 0.0F : hn::GetLane(sigmoid(d, x));
}

/// One row, `carry` being the adjoint of its states by way of those behind it.
void head_row_back(const HeadCall& call, const HeadScratch& s, float rate, std::int64_t row,
                   const float* before, HeadSums& sums) {
  const HeadScanBackwardParams& p = call.p;
  const HeadScanInputs& in = p.in;
  const std::int64_t at = row * in.heads + call.head;
  const float step = call.of.steps[at];
  float* parts = p.partial + (call.head * in.rows.count() + row) * 2 * in.states;
  const StepGradient gradient = row_states_back(call, s, row, before, parts, sums);
  const float of_decay = gradient.of_decay * call.of.decays[at];
  const float raw = static_cast<const float*>(in.delta)[row * in.delta_stride + call.head] +
                    in.delta_bias[call.head];
  const float ddelta = (gradient.of_x + rate * of_decay) * step_slope(in, raw);
  static_cast<float*>(p.ddelta)[row * in.delta_stride + call.head] = ddelta;
  sums.a_log += step * of_decay;
  sums.bias += ddelta;
}

/// Rows [begin, end) of a document, one chunk at most.
void head_chunk_back(const HeadCall& call, const HeadScratch& s, float rate, std::int64_t begin,
                     std::int64_t end, bool first, HeadSums& sums) {
  const HeadScanInputs& in = call.p.in;
  const float* kept =
      call.p.kept + begin / kHeadChunk * in.state_size() + call.head * in.width * in.states;
  load_head(first ? nullptr : kept, in.width, in.states, s.begins);
  const std::int64_t pieces = divide_up(end - begin, kHeadPiece);
  for (std::int64_t piece = 0; piece + 1 < pieces; ++piece) {
    const std::int64_t from = begin + piece * kHeadPiece;
    std::copy_n(s.begins + piece * s.size, s.size, s.rows);
    for (std::int64_t row = from; row < from + kHeadPiece; ++row) {
      walk_row(call, row, s.rows, s.rows);
    }
    std::copy_n(s.rows, s.size, s.begins + (piece + 1) * s.size);
  }
  for (std::int64_t piece = pieces - 1; piece >= 0; --piece) {
    const std::int64_t from = begin + piece * kHeadPiece;
    const std::int64_t to = std::min(from + kHeadPiece, end);
    std::copy_n(s.begins + piece * s.size, s.size, s.rows);
    for (std::int64_t row = from; row < to; ++row) {
      walk_row(call, row, s.rows + (row - from) * s.size, s.rows + (row - from + 1) * s.size);
    }
    for (std::int64_t row = to - 1; row >= from; --row) {
      head_row_back(call, s, rate, row, s.rows + (row - from) * s.size, sums);
    }
  }
}

/// One head through all documents, so that its sums have one order.
void head_back(const HeadScanBackwardParams& p, const float* steps, const float* decays,
               const std::vector<DocumentRange>& documents, std::int64_t head) {
  static thread_local Scratch scratch;
  const HeadScratch s(scratch, p.in.width * padded_states(p.in.states));
  const HeadCall call{p, {steps, decays}, head};
  const Floats d;
  const float rate = -hn::GetLane(exp_of(d, hn::Set(d, p.in.a_log[head])));
  HeadSums total;
  for (const DocumentRange& document : documents) {
    HeadSums sums;
    std::fill_n(s.carry, s.size, 0.0F);
    for (std::int64_t chunk = divide_up(document.length, kHeadChunk) - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = document.first + chunk * kHeadChunk;
      head_chunk_back(call, s, rate, begin, std::min(begin + kHeadChunk, document.end()),
                      chunk == 0, sums);
    }
    total += sums;
  }
  if (p.da_log != nullptr) {
    p.da_log[head] = rate * total.a_log;
  }
  if (p.dd != nullptr) {
    p.dd[head] = total.d;
  }
  if (p.ddelta_bias != nullptr) {
    p.ddelta_bias[head] = total.bias;
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(head_back);

namespace {

/// db and dc of a row: sums over the heads of each group, in order.
void add_heads(const HeadScanBackwardParams& p, std::int64_t row) {
  const std::int64_t states = p.in.states;
  const std::int64_t heads = p.in.heads / p.in.groups;
  auto* db = static_cast<float*>(p.db) + row * p.dx_stride;
  auto* dc = static_cast<float*>(p.dc) + row * p.dx_stride;
  for (std::int64_t group = 0; group < p.in.groups; ++group) {
    for (std::int64_t n = 0; n < 2 * states; ++n) {
      float sum = 0.0F;
      for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
        sum += p.partial[(head * p.in.rows.count() + row) * 2 * states + n];
      }
      (n < states ? db[group * states + n] : dc[group * states + n - states]) = sum;
    }
  }
}

}  // namespace

void head_scan_backward(const HeadScanBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::vector<DocumentRange> documents = document_ranges(p.in.rows);
  const HeadSteps of = head_steps(p.in, threads, scratch);
  const auto one = HWY_DYNAMIC_DISPATCH(head_back);
  parallel_for(threads, p.in.heads,
               [&](std::int64_t head, int) { one(p, of.steps, of.decays, documents, head); });
  each_row(threads, p.in.rows.count(), 2 * p.in.states * p.in.heads,
           [&](std::int64_t row) { add_heads(p, row); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
