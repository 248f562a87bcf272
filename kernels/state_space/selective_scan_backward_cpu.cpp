#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"
#include "kernels/state_space/scan_rates.hpp"
#include "kernels/state_space/selective_scan.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/selective_scan_backward_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/state_space/scan-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Scratch of one block of channels. `partials` of a Floats16.
struct ScanScratch {
  static constexpr std::int64_t lanes = ScanRows::lanes;
  static constexpr std::int64_t partials = Floats16::count;
  static constexpr std::int64_t arrays = 8;

  ScanRows rows;
  float *slopes, *opens;     ///< As the rows: of softplus; sigmoid(z).
  float* dv;                 ///< As the rows: dy silu(z).
  float *of_b, *of_decay;    ///< As the rows: sums over states of G b, of A G exp(D A) h[t - 1].
  float *decays, *states;    ///< [4, rows, lanes]; of states one row more: those before.
  float *b_parts, *c_parts;  ///< [states, rows, partials].
  float *carry, *da, *da_total;  ///< [states, kScanChannels].
  float *d_sums, *d_total;       ///< [2, kScanChannels]: of d, of delta_bias.

  ScanScratch(Scratch& scratch, std::int64_t n) {
    constexpr std::int64_t size = ScanRows::size;
    float* next = scratch.get<float>(arrays * size + 4 * (2 * kScanChunk + 1) * lanes +
                                     2 * kScanChunk * n * partials + (3 * n + 4) * kScanChannels);
    const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
    rows = {.steps = take(size), .steps_u = take(size), .sums = take(size)};
    for (float** array : {&slopes, &opens, &dv, &of_b, &of_decay}) {
      *array = take(size);
    }
    decays = take(4 * kScanChunk * lanes);
    states = take(4 * (kScanChunk + 1) * lanes);
    b_parts = take(kScanChunk * n * partials);
    c_parts = take(kScanChunk * n * partials);
    carry = take(n * kScanChannels);
    da = take(n * kScanChannels);
    da_total = take(n * kScanChannels);
    d_sums = take(2 * kScanChannels);
    d_total = take(2 * kScanChannels);
  }
};

/// Computes steps, slopes and gates of a piece's rows, which the walk over its states reads.
HWY_INLINE void rows_before(const SelectiveScanBackwardParams& p, const ScanPiece& piece,
                            ScanScratch s) {
  const ScanInputs in = p.in;  // Copies stay in registers: a vector's store may change any memory.
  const Floats d;
  for (std::int64_t t = 0; t < piece.rows(); ++t) {
    if (const std::int64_t next = t - kScanChunk; piece.begin + next >= 0) {
      fetch_row(piece.of(in.u, in.u_stride, next), piece.width);
      fetch_row<true>(piece.of(p.ddelta, in.delta_stride, next), piece.width);
      fetch_row<true>(piece.of(p.dz, in.z_stride, next), piece.width);
      fetch_row<true>(piece.of(p.y, p.y_stride, next), piece.width);
      fetch_row<true>(piece.of(p.du, in.channels, next), piece.width);
    }
    const float* y = piece.of(p.y, p.y_stride, t);
    each_vector(0, piece.width, [&](std::int64_t i, auto part) {
      const FloatVec raw = begin_row(d, in, piece, s.rows, t, i, part);
      const FloatVec z = load(d, piece.of(in.z, in.z_stride, t) + i, part);
      const FloatVec open = sigmoid(d, z);
      const std::int64_t place = ScanRows::place(i, t);
      hn::Store(sigmoid(d, raw), d, s.slopes + place);
      hn::Store(open, d, s.opens + place);
      hn::Store(hn::Mul(load(d, y + i, part), hn::Mul(z, open)), d, s.dv + place);
      hn::Store(hn::Zero(d), d, s.of_b + place);
      hn::Store(hn::Zero(d), d, s.of_decay + place);
    });
  }
}

/// Walks `count` states through the rows again, from the first at `n`, as the forward pass did.
template <std::int64_t count, class Exp>
HWY_INLINE void walk_again(const ScanInputs& in, const ScanPiece& piece, ScanScratch s,
                           const FloatVec* before, std::int64_t i, std::int64_t n, Exp power) {
  constexpr std::int64_t lanes = ScanScratch::lanes;
  const Floats d;
  FloatVec rate[count];
  FloatVec state[count];
  for (std::int64_t k = 0; k < count; ++k) {
    rate[k] = hn::Load(d, piece.rates + (n + k) * kScanChannels + i);
    state[k] = before[k];
    hn::Store(state[k], d, s.states + k * lanes);
  }
  const float* b = static_cast<const float*>(in.b) + piece.begin * in.b_stride + n;
  const float* c = static_cast<const float*>(in.c) + piece.begin * in.b_stride + n;
  for (std::int64_t t = 0; t < piece.rows(); ++t, b += in.b_stride, c += in.b_stride) {
    const FloatVec step = hn::Load(d, s.rows.steps + ScanRows::place(i, t));
    const FloatVec step_u = hn::Load(d, s.rows.steps_u + ScanRows::place(i, t));
    FloatVec sum = hn::Load(d, s.rows.sums + ScanRows::place(i, t));
    for (std::int64_t k = 0; k < count; ++k) {
      const FloatVec decay = power(d, hn::Mul(step, rate[k]));
      state[k] = hn::MulAdd(decay, state[k], hn::Mul(step_u, hn::Set(d, b[k])));
      sum = hn::MulAdd(hn::Set(d, c[k]), state[k], sum);
      hn::Store(decay, d, s.decays + (t * count + k) * lanes);
      hn::Store(state[k], d, s.states + ((t + 1) * count + k) * lanes);
    }
    hn::Store(sum, d, s.rows.sums + ScanRows::place(i, t));
  }
}

/// Walks them back.
template <std::int64_t count, class Part>
HWY_INLINE void walk_back(const ScanInputs& in, const ScanPiece& piece, ScanScratch s,
                          std::int64_t i, std::int64_t n, Part part) {
  constexpr std::int64_t lanes = ScanScratch::lanes;
  constexpr std::int64_t partials = ScanScratch::partials;
  const Floats d;
  const std::int64_t first = n * kScanChannels + i;
  FloatVec rate[count];
  FloatVec carry[count];
  FloatVec da[count];
  FloatVec after[count];
  for (std::int64_t k = 0; k < count; ++k) {
    rate[k] = hn::Load(d, piece.rates + first + k * kScanChannels);
    carry[k] = hn::Load(d, s.carry + first + k * kScanChannels);
    da[k] = hn::Load(d, s.da + first + k * kScanChannels);
    after[k] = hn::Load(d, s.states + (piece.rows() * count + k) * lanes);
  }
  const auto* b = static_cast<const float*>(in.b) + n;
  const auto* c = static_cast<const float*>(in.c) + n;
  for (std::int64_t t = piece.rows() - 1; t >= 0; --t) {
    const std::int64_t row = (piece.begin + t) * in.b_stride;
    const FloatVec step = hn::Load(d, s.rows.steps + ScanRows::place(i, t));
    const FloatVec step_u = hn::Load(d, s.rows.steps_u + ScanRows::place(i, t));
    const FloatVec dv = hn::Load(d, s.dv + ScanRows::place(i, t));
    FloatVec of_b = hn::Load(d, s.of_b + ScanRows::place(i, t));
    FloatVec of_decay = hn::Load(d, s.of_decay + ScanRows::place(i, t));
    for (std::int64_t k = 0; k < count; ++k) {
      const FloatVec decay = hn::Load(d, s.decays + (t * count + k) * lanes);
      const FloatVec before = hn::Load(d, s.states + (t * count + k) * lanes);
      const FloatVec adjoint = hn::MulAdd(hn::Set(d, c[row + k]), dv, carry[k]);
      const std::int64_t place = ((n + k) * kScanChunk + t) * partials + i % partials;
      float* b_part = s.b_parts + place;
      float* c_part = s.c_parts + place;
      store(hn::MulAdd(adjoint, step_u, hn::Load(d, b_part)), d, b_part, part);
      store(hn::MulAdd(dv, after[k], hn::Load(d, c_part)), d, c_part, part);
      of_b = hn::MulAdd(adjoint, hn::Set(d, b[row + k]), of_b);
      const FloatVec slope = hn::Mul(adjoint, hn::Mul(decay, before));
      of_decay = hn::MulAdd(rate[k], slope, of_decay);
      da[k] = hn::MulAdd(step, slope, da[k]);
      carry[k] = hn::Mul(decay, adjoint);
      after[k] = before;
    }
    hn::Store(of_b, d, s.of_b + ScanRows::place(i, t));
    hn::Store(of_decay, d, s.of_decay + ScanRows::place(i, t));
  }
  for (std::int64_t k = 0; k < count; ++k) {
    hn::Store(carry[k], d, s.carry + first + k * kScanChannels);
    hn::Store(da[k], d, s.da + first + k * kScanChannels);
  }
}

/// Gradients of the rows by what their states have left.
HWY_INLINE void rows_behind(const SelectiveScanBackwardParams& p, const ScanPiece& piece,
                            ScanScratch s) {
  const ScanInputs in = p.in;
  const Floats d;
  const FloatVec one = hn::Set(d, 1.0F);
  for (std::int64_t t = piece.rows() - 1; t >= 0; --t) {
    each_vector(0, piece.width, [&](std::int64_t i, auto part) {
      const std::int64_t place = ScanRows::place(i, t);
      const FloatVec u = load(d, piece.of(in.u, in.u_stride, t) + i, part);
      const FloatVec z = load(d, piece.of(in.z, in.z_stride, t) + i, part);
      float* y = piece.of(p.y, p.y_stride, t) + i;
      const FloatVec dy = load(d, y, part);
      const FloatVec value = hn::Load(d, s.rows.sums + place);
      const FloatVec dv = hn::Load(d, s.dv + place);
      const FloatVec of_b = hn::Load(d, s.of_b + place);
      const FloatVec open = hn::Load(d, s.opens + place);
      const FloatVec gate = hn::Mul(z, open);
      const FloatVec slope = hn::MulAdd(gate, hn::Sub(one, open), open);
      const FloatVec skip = load(d, in.d + piece.c0 + i, part);
      const FloatVec du = hn::MulAdd(hn::Load(d, s.rows.steps + place), of_b, hn::Mul(skip, dv));
      const FloatVec dstep = hn::MulAdd(u, of_b, hn::Load(d, s.of_decay + place));
      const FloatVec draw = hn::Mul(dstep, hn::Load(d, s.slopes + place));
      store(hn::Mul(value, gate), d, y, part);
      store(hn::Mul(hn::Mul(dy, value), slope), d, piece.of(p.dz, in.z_stride, t) + i, part);
      store(du, d, piece.of(p.du, in.channels, t) + i, part);
      store(draw, d, piece.of(p.ddelta, in.delta_stride, t) + i, part);
      float* d_sum = s.d_sums + i;
      float* bias_sum = d_sum + kScanChannels;
      hn::Store(hn::MulAdd(dv, u, hn::Load(d, d_sum)), d, d_sum);
      hn::Store(hn::Add(draw, hn::Load(d, bias_sum)), d, bias_sum);
    });
  }
}

/// The states of one vector of channels; `kept`: those before the first row, nullptr: none.
template <class Part>
HWY_INLINE void vector_back(const SelectiveScanBackwardParams& p, const ScanPiece& piece,
                            const ScanScratch& s, const float* kept, std::int64_t i, Part part) {
  const Floats d;
  const MostStep most(d, s.rows.steps + ScanRows::place(i, 0), piece.rows());
  each_four_states(p.in.states, [&](std::int64_t n, auto count) {
    FloatVec before[count];
    for (std::int64_t k = 0; k < count; ++k) {
      before[k] = kept == nullptr ? hn::Zero(d) : load(d, kept + (n + k) * p.in.channels + i, part);
    }
    if (most.gives_normal(d, piece.rates + n * kScanChannels + i, count)) {
      walk_again<count>(p.in, piece, s, before, i, n, NormalExp());
    } else {
      walk_again<count>(p.in, piece, s, before, i, n, AnyExp());
    }
    walk_back<count>(p.in, piece, s, i, n, part);
  });
}

/// Folds the chunk's sums over the block's channels: db, then dc of each row.
HWY_INLINE void fold_parts(const SelectiveScanBackwardParams& p, const ScanScratch& s,
                           std::int64_t begin, std::int64_t end, std::int64_t block) {
  const std::int64_t states = p.in.states;
  const Floats d;
  for (std::int64_t row = begin; row < end; ++row) {
    float* to = p.partial + (block * p.in.rows.count() + row) * 2 * states;
    for (std::int64_t n = 0; n < states; ++n) {
      const std::int64_t at = (n * kScanChunk + row - begin) * ScanScratch::partials;
      for (const bool of_c : {false, true}) {
        const float* from = (of_c ? s.c_parts : s.b_parts) + at;
        Floats16 parts(0.0F);
        for (int vector = 0; vector < Floats16::vectors; ++vector) {
          parts[vector] = hn::Load(d, from + vector * Floats16::lanes);
        }
        to[(of_c ? states : 0) + n] = sum_of(parts);
      }
    }
  }
}

/// One chunk of a document in one block of channels, `carry` being the adjoint of its last states.
void chunk_back(const SelectiveScanBackwardParams& p, const float* rates, const ScanScratch& s,
                std::int64_t begin, std::int64_t end, bool first, std::int64_t block) {
  const std::int64_t states = p.in.states;
  const std::int64_t c0 = block * kScanChannels;
  const std::int64_t width = std::min(kScanChannels, p.in.channels - c0);
  std::fill_n(s.b_parts, 2 * kScanChunk * states * ScanScratch::partials, 0.0F);
  const float* kept = first ? nullptr : p.kept + begin / kScanChunk * states * p.in.channels + c0;
  const ScanPiece piece{rates, begin, end, c0, width};
  rows_before(p, piece, s);
  each_vector(0, width,
              [&](std::int64_t i, auto part) { vector_back(p, piece, s, kept, i, part); });
  rows_behind(p, piece, s);
  fold_parts(p, s, begin, end, block);
}

/// One block of channels through all documents, so that its sums have one order.
void scan_block_back(const SelectiveScanBackwardParams& p, const float* rates,
                     const std::vector<DocumentRange>& documents, std::int64_t block) {
  static thread_local Scratch scratch;
  const std::int64_t states = p.in.states;
  const ScanScratch s(scratch, states);
  const auto add_all = [](const float* from, float* to, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      to[k] += from[k];
    }
  };
  std::fill_n(s.da_total, states * kScanChannels, 0.0F);
  std::fill_n(s.d_total, 2 * kScanChannels, 0.0F);
  for (const DocumentRange& document : documents) {
    std::fill_n(s.carry, 2 * states * kScanChannels, 0.0F);  // And `da` behind it.
    std::fill_n(s.d_sums, 2 * kScanChannels, 0.0F);
    const std::int64_t chunks = divide_up(document.length, kScanChunk);
    for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = document.first + chunk * kScanChunk;
      chunk_back(p, rates, s, begin, std::min(begin + kScanChunk, document.end()), chunk == 0,
                 block);
    }
    add_all(s.da, s.da_total, states * kScanChannels);
    add_all(s.d_sums, s.d_total, 2 * kScanChannels);
  }
  const std::int64_t c0 = block * kScanChannels;
  const std::int64_t width = std::min(kScanChannels, p.in.channels - c0);
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t n = 0; p.da_log != nullptr && n < states; ++n) {
      const std::int64_t place = n * kScanChannels + c;
      p.da_log[(c0 + c) * states + n] = rates[place] * s.da_total[place];
    }
    if (p.dd != nullptr) {
      p.dd[c0 + c] = s.d_total[c];
    }
    if (p.ddelta_bias != nullptr) {
      p.ddelta_bias[c0 + c] = s.d_total[kScanChannels + c];
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(scan_block_back);

void selective_scan_backward(const SelectiveScanBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::int64_t states = p.in.states;
  const std::vector<DocumentRange> documents = document_ranges(p.in.rows);
  const float* rates = scan_rates(p.in.a_log, p.in.channels, states, threads, scratch);
  const std::int64_t blocks = divide_up(p.in.channels, kScanChannels);
  const std::int64_t rows = p.in.rows.count();
  const auto one = HWY_DYNAMIC_DISPATCH(scan_block_back);
  parallel_for(threads, blocks, [&](std::int64_t block, int) {
    one(p, rates + block * kScanChannels * states, documents, block);
  });
  each_row(threads, rows, 2 * states * blocks, [&](std::int64_t row) {
    float sums[2 * kMostScanStates] = {};
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float* of_block = p.partial + (block * rows + row) * 2 * states;
      for (std::int64_t n = 0; n < 2 * states; ++n) {
        sums[n] += of_block[n];
      }
    }
    std::copy_n(sums, states, static_cast<float*>(p.db) + row * p.in.b_stride);
    std::copy_n(sums + states, states, static_cast<float*>(p.dc) + row * p.in.b_stride);
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
