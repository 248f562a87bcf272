#include <algorithm>
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

/// Scratch of one block of channels. `lanes` of a vector, `partials` of a Floats16.
struct ScanScratch {
  static constexpr std::int64_t lanes = HWY_LANES(float);
  static constexpr std::int64_t partials = Floats16::count;

  float *decays, *states;        ///< [rows, states, lanes]; of states one row more: those before.
  float *steps, *values;         ///< [rows, lanes].
  float *b_parts, *c_parts;      ///< [rows, states, partials].
  float *carry, *da, *da_total;  ///< [states, kScanChannels].
  float *d_sums, *d_total;       ///< [2, kScanChannels]: of d, of delta_bias.

  ScanScratch(Scratch& scratch, std::int64_t n)
      : decays(scratch.get<float>(kScanChunk * (2 * n * (lanes + partials) + 2 * lanes) +
                                  n * lanes + (3 * n + 4) * kScanChannels)),
        states(decays + kScanChunk * n * lanes),
        steps(states + (kScanChunk + 1) * n * lanes),
        values(steps + kScanChunk * lanes),
        b_parts(values + kScanChunk * lanes),
        c_parts(b_parts + kScanChunk * n * partials),
        carry(c_parts + kScanChunk * n * partials),
        da(carry + n * kScanChannels),
        da_total(da + n * kScanChannels),
        d_sums(da_total + n * kScanChannels),
        d_total(d_sums + 2 * kScanChannels) {}
};

/// Rows [begin, end) of one vector of channels.
struct ScanPiece {
  const float* rates;  ///< [states, kScanChannels].
  std::int64_t begin, end, c0, i;
};

/// Walks the rows again as the forward pass did; ScanScratch::states has those before the first.
template <class Part>
HWY_INLINE void walk_again(const ScanInputs& in, const ScanPiece& piece, const ScanScratch& s,
                           Part part) {
  constexpr std::int64_t lanes = ScanScratch::lanes;
  const Floats d;
  const FloatVec skip = load(d, in.d + piece.c0 + piece.i, part);
  for (std::int64_t row = piece.begin; row < piece.end; ++row) {
    const std::int64_t t = row - piece.begin;
    const auto* b = static_cast<const float*>(in.b) + row * in.b_stride;
    const auto* c = static_cast<const float*>(in.c) + row * in.b_stride;
    const ScanRow at = scan_row(d, in, row, piece.c0 + piece.i, part);
    const float* before = s.states + t * in.states * lanes;
    float* after = s.states + (t + 1) * in.states * lanes;
    float* decays = s.decays + t * in.states * lanes;
    FloatVec sum = hn::Mul(skip, at.u);
    for (std::int64_t n = 0; n < in.states; ++n) {
      const FloatVec rate = hn::Load(d, piece.rates + n * kScanChannels + piece.i);
      const FloatVec decay = exp_of_negative(d, hn::Mul(at.step, rate));
      const FloatVec added = hn::Mul(at.step_u, hn::Set(d, b[n]));
      const FloatVec state = hn::MulAdd(decay, hn::Load(d, before + n * lanes), added);
      hn::Store(decay, d, decays + n * lanes);
      hn::Store(state, d, after + n * lanes);
      sum = hn::MulAdd(hn::Set(d, c[n]), state, sum);
    }
    hn::Store(at.step, d, s.steps + t * lanes);
    hn::Store(sum, d, s.values + t * lanes);
  }
}

HWY_INLINE void add_product(Floats d, FloatVec left, FloatVec right, float* sum) {
  hn::Store(hn::MulAdd(left, right, hn::Load(d, sum)), d, sum);
}

/// Gradients of a row by way of its states: sums over them of G b, and of A G exp(D A) h[t - 1].
struct StateSums {
  FloatVec of_b, of_decay;
};

template <class Part>
HWY_INLINE StateSums states_back(const ScanInputs& in, const ScanPiece& piece, const ScanScratch& s,
                                 std::int64_t row, FloatVec dv, FloatVec step, FloatVec step_u,
                                 Part part) {
  constexpr std::int64_t lanes = ScanScratch::lanes;
  const Floats d;
  const std::int64_t t = row - piece.begin;
  const auto* b = static_cast<const float*>(in.b) + row * in.b_stride;
  const auto* c = static_cast<const float*>(in.c) + row * in.b_stride;
  const float* before = s.states + t * in.states * lanes;
  const float* after = s.states + (t + 1) * in.states * lanes;
  const float* decays = s.decays + t * in.states * lanes;
  const std::int64_t partial =
      t * in.states * ScanScratch::partials + piece.i % ScanScratch::partials;
  StateSums sums{hn::Zero(d), hn::Zero(d)};
  for (std::int64_t n = 0; n < in.states; ++n) {
    const std::int64_t place = n * kScanChannels + piece.i;
    const FloatVec decay = hn::Load(d, decays + n * lanes);
    const FloatVec adjoint = hn::MulAdd(hn::Set(d, c[n]), dv, hn::Load(d, s.carry + place));
    float* b_part = s.b_parts + partial + n * ScanScratch::partials;
    float* c_part = s.c_parts + partial + n * ScanScratch::partials;
    store(hn::MulAdd(adjoint, step_u, hn::Load(d, b_part)), d, b_part, part);
    store(hn::MulAdd(dv, hn::Load(d, after + n * lanes), hn::Load(d, c_part)), d, c_part, part);
    sums.of_b = hn::MulAdd(adjoint, hn::Set(d, b[n]), sums.of_b);
    const FloatVec slope = hn::Mul(adjoint, hn::Mul(decay, hn::Load(d, before + n * lanes)));
    sums.of_decay = hn::MulAdd(hn::Load(d, piece.rates + place), slope, sums.of_decay);
    add_product(d, step, slope, s.da + place);
    hn::Store(hn::Mul(decay, adjoint), d, s.carry + place);
  }
  return sums;
}

template <class Part>
HWY_INLINE void walk_back(const SelectiveScanBackwardParams& p, const ScanPiece& piece,
                          const ScanScratch& s, Part part) {
  const ScanInputs& in = p.in;
  const Floats d;
  const FloatVec one = hn::Set(d, 1.0F);
  const std::int64_t channel = piece.c0 + piece.i;
  const FloatVec skip = load(d, in.d + channel, part);
  const FloatVec bias = load(d, in.delta_bias + channel, part);
  for (std::int64_t row = piece.end - 1; row >= piece.begin; --row) {
    const std::int64_t t = row - piece.begin;
    const auto row_of = [&](const void* matrix, std::int64_t stride) {
      return static_cast<const float*>(matrix) + row * stride + channel;
    };
    const auto result_of = [&](void* matrix, std::int64_t stride) {
      return static_cast<float*>(matrix) + row * stride + channel;
    };
    const FloatVec u = load(d, row_of(in.u, in.u_stride), part);
    const FloatVec z = load(d, row_of(in.z, in.z_stride), part);
    const FloatVec raw = hn::Add(load(d, row_of(in.delta, in.delta_stride), part), bias);
    float* y = result_of(p.y, p.y_stride);
    const FloatVec dy = load(d, y, part);
    const FloatVec step = hn::Load(d, s.steps + t * ScanScratch::lanes);
    const FloatVec value = hn::Load(d, s.values + t * ScanScratch::lanes);
    const FloatVec open = sigmoid(d, z);
    const FloatVec gate = hn::Mul(z, open);
    const FloatVec slope = hn::MulAdd(gate, hn::Sub(one, open), open);
    const FloatVec dv = hn::Mul(dy, gate);
    store(hn::Mul(value, gate), d, y, part);
    store(hn::Mul(hn::Mul(dy, value), slope), d, result_of(p.dz, in.z_stride), part);
    const StateSums sums = states_back(in, piece, s, row, dv, step, hn::Mul(step, u), part);
    store(hn::MulAdd(step, sums.of_b, hn::Mul(skip, dv)), d, result_of(p.du, in.channels), part);
    const FloatVec dstep = hn::MulAdd(u, sums.of_b, sums.of_decay);
    const FloatVec draw = hn::Mul(dstep, sigmoid(d, raw));
    store(draw, d, result_of(p.ddelta, in.delta_stride), part);
    add_product(d, dv, u, s.d_sums + piece.i);
    add_product(d, draw, one, s.d_sums + kScanChannels + piece.i);
  }
}

/// One chunk of a document in one block of channels, `carry` being the adjoint of its last states.
void chunk_back(const SelectiveScanBackwardParams& p, const float* rates, const ScanScratch& s,
                std::int64_t begin, std::int64_t end, bool first, std::int64_t block) {
  const std::int64_t states = p.in.states;
  const std::int64_t c0 = block * kScanChannels;
  const std::int64_t width = std::min(kScanChannels, p.in.channels - c0);
  const Floats d;
  std::fill_n(s.b_parts, 2 * kScanChunk * states * ScanScratch::partials, 0.0F);
  const float* kept = p.kept + begin / kScanChunk * states * p.in.channels + c0;
  each_vector(0, width, [&](std::int64_t i, auto part) {
    for (std::int64_t n = 0; n < states; ++n) {
      hn::Store(first ? hn::Zero(d) : load(d, kept + n * p.in.channels + i, part), d,
                s.states + n * ScanScratch::lanes);
    }
    const ScanPiece piece{rates, begin, end, c0, i};
    walk_again(p.in, piece, s, part);
    walk_back(p, piece, s, part);
  });
  for (std::int64_t row = begin; row < end; ++row) {
    float* to = p.partial + (block * p.in.rows.count() + row) * 2 * states;
    for (std::int64_t n = 0; n < states; ++n) {
      const std::int64_t at = ((row - begin) * states + n) * ScanScratch::partials;
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
    auto* db = static_cast<float*>(p.db) + row * p.in.b_stride;
    auto* dc = static_cast<float*>(p.dc) + row * p.in.b_stride;
    for (std::int64_t n = 0; n < 2 * states; ++n) {
      float sum = 0.0F;
      for (std::int64_t block = 0; block < blocks; ++block) {
        sum += p.partial[(block * rows + row) * 2 * states + n];
      }
      (n < states ? db[n] : dc[n - states]) = sum;
    }
  });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
