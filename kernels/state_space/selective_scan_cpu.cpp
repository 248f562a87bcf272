#include "kernels/state_space/selective_scan.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"
#include "kernels/state_space/scan_rates.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/selective_scan_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/state_space/scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// `count` states of a piece, from the first at `n`; rows in the inner loop, so that a state stays
/// in its register. h: [states, kScanChannels].
template <std::int64_t count, class Exp>
HWY_INLINE void scan_states(const ScanInputs& in, const ScanPiece& piece, const ScanRows& rows,
                            float* h, std::int64_t i, std::int64_t n, Exp power) {
  const Floats d;
  const std::int64_t first = n * kScanChannels + i;
  FloatVec rate[count];
  FloatVec state[count];
  for (std::int64_t k = 0; k < count; ++k) {
    rate[k] = hn::Load(d, piece.rates + first + k * kScanChannels);
    state[k] = hn::Load(d, h + first + k * kScanChannels);
  }
  const float* b = static_cast<const float*>(in.b) + piece.begin * in.b_stride + n;
  const float* c = static_cast<const float*>(in.c) + piece.begin * in.b_stride + n;
  for (std::int64_t t = 0; t < piece.rows(); ++t, b += in.b_stride, c += in.b_stride) {
    const FloatVec step = hn::Load(d, rows.steps + ScanRows::place(i, t));
    const FloatVec step_u = hn::Load(d, rows.steps_u + ScanRows::place(i, t));
    FloatVec sum = hn::Load(d, rows.sums + ScanRows::place(i, t));
    for (std::int64_t k = 0; k < count; ++k) {
      const FloatVec decay = power(d, hn::Mul(step, rate[k]));
      state[k] = hn::MulAdd(decay, state[k], hn::Mul(step_u, hn::Set(d, b[k])));
      sum = hn::MulAdd(hn::Set(d, c[k]), state[k], sum);
    }
    hn::Store(sum, d, rows.sums + ScanRows::place(i, t));
  }
  for (std::int64_t k = 0; k < count; ++k) {
    hn::Store(state[k], d, h + first + k * kScanChannels);
  }
}

/// Rows of a block of channels. h: [states, kScanChannels].
HWY_INLINE void scan_piece(const SelectiveScanForwardParams& p, const ScanPiece& piece, float* h) {
  alignas(64) float memory[3 * ScanRows::size];
  const ScanRows rows{memory, memory + ScanRows::size, memory + 2 * ScanRows::size};
  const ScanInputs in = p.in;  // Copies stay in registers: a vector's store may change any memory.
  const Floats d;
  for (std::int64_t t = 0; t < piece.rows(); ++t) {
    if (const std::int64_t next = t + kScanChunk; piece.begin + next < in.rows.count()) {
      fetch_row(piece.of(in.u, in.u_stride, next), piece.width);
      fetch_row(piece.of(in.delta, in.delta_stride, next), piece.width);
      fetch_row(piece.of(in.z, in.z_stride, next), piece.width);
      fetch_row<true>(piece.of(p.y, p.y_stride, next), piece.width);
    }
    each_vector(0, piece.width,
                [&](std::int64_t i, auto part) { begin_row(d, in, piece, rows, t, i, part); });
  }
  for (std::int64_t i = 0; i < piece.width; i += ScanRows::lanes) {
    const MostStep most(d, rows.steps + ScanRows::place(i, 0), piece.rows());
    each_four_states(in.states, [&](std::int64_t n, auto count) {
      if (most.gives_normal(d, piece.rates + n * kScanChannels + i, count)) {
        scan_states<count>(in, piece, rows, h, i, n, NormalExp());
      } else {
        scan_states<count>(in, piece, rows, h, i, n, AnyExp());
      }
    });
  }
  for (std::int64_t t = 0; t < piece.rows(); ++t) {
    const float* z = piece.of(in.z, in.z_stride, t);
    float* y = piece.of(p.y, p.y_stride, t);
    each_vector(0, piece.width, [&](std::int64_t i, auto part) {
      const FloatVec gate = load(d, z + i, part);
      const FloatVec sum = hn::Load(d, rows.sums + ScanRows::place(i, t));
      store(hn::Mul(sum, hn::Mul(gate, sigmoid(d, gate))), d, y + i, part);
    });
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
      // Those of the next block, mostly this thread's next, lie too far apart for the hardware.
      const std::int64_t next = c0 + kScanChannels;
      for (std::int64_t n = 0; n < states && next < p.in.channels; ++n) {
        for (std::int64_t line = 0; line < kScanChannels; line += 16) {
          hwy::Prefetch(text + n * p.in.channels + next + line);
        }
      }
      copy_state(text, false);
    }
    for (std::int64_t begin = first->first; begin < first->end(); begin += kScanChunk) {
      if (p.kept != nullptr && begin > first->first) {
        copy_state(p.kept + begin / kScanChunk * states * p.in.channels, true);
      }
      const std::int64_t end = std::min(begin + kScanChunk, first->end());
      scan_piece(p, {rates, begin, end, c0, width}, h);
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
  parallel_shares(threads, sequences * blocks, [&](std::int64_t item, int) {
    const auto sequence = static_cast<std::size_t>(item / blocks);
    const std::int64_t block = item % blocks;
    one(p, rates + block * kScanChannels * p.in.states, begins[sequence], begins[sequence + 1],
        block);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
