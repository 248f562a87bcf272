#include <algorithm>
#include <span>
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
#include "kernels/state_space/products-inl.hpp"
#include "kernels/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Scratch of one head. `states` and `width` are padded to whole Floats16; a state is
/// [channels, states].
struct HeadScratch {
  static constexpr std::int64_t pieces = kHeadChunk / kHeadPiece;
  std::int64_t states, width;
  float* begins;               ///< [pieces, a state]: those before each piece.
  float *b, *c, *db, *dc;      ///< [rows, states].
  float *x, *x_last;           ///< [rows, width]: D x; the same decayed up to the piece's end.
  float *dy, *dy_first;        ///< [rows, width]; and decayed up to the piece's begin.
  float *dx, *dx_last, *x_t;   ///< [rows, width]: of D x; by way of the carry. [width, rows].
  float *decays, *pairs;       ///< [rows, rows]: from row j to i; times <c[i], b[j]>.
  float *slopes, *both;        ///< [rows, rows]: decays times <dy[i], D x[j]>; of `pairs`, too.
  float *of_states, *of_last;  ///< [rows]: sums that decays of several rows are in.

  HeadScratch(Scratch& scratch, const HeadScanInputs& in)
      : states(padded_states(in.states)), width(padded_states(in.width)) {
    constexpr std::int64_t rows = kHeadPiece;
    const std::int64_t state = width * states;
    float* next = scratch.get<float>(pieces * state + rows * (4 * states + 7 * width) +
                                     rows * (4 * rows + 2));
    const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
    begins = take(pieces * state);
    for (float** array : {&b, &c, &db, &dc}) {
      *array = take(rows * states);
    }
    for (float** array : {&x, &x_last, &dy, &dy_first, &dx, &dx_last, &x_t}) {
      *array = take(rows * width);
    }
    for (float** array : {&decays, &pairs, &slopes, &both}) {
      *array = take(rows * rows);
    }
    of_states = take(rows);
    of_last = take(rows);
  }
};

/// One head of a call.
struct HeadCall {
  const HeadScanBackwardParams& p;
  const HeadBackward& of;
  std::int64_t head;
  HeadWalk& walk;

  [[nodiscard]] std::int64_t group() const { return head / (p.in.heads / p.in.groups); }
  [[nodiscard]] std::int64_t place(std::int64_t row) const {
    return row * p.in.x_stride + group() * p.in.states;
  }
  [[nodiscard]] const float* x(std::int64_t row) const {
    return static_cast<const float*>(p.in.x) + row * p.in.x_stride + head * p.in.width;
  }
  [[nodiscard]] const float* dy(std::int64_t row) const {
    return static_cast<const float*>(p.dy) + row * p.y_stride + head * p.in.width;
  }
  [[nodiscard]] float* dx(std::int64_t row) const {
    return static_cast<float*>(p.dx) + row * p.dx_stride + head * p.in.width;
  }
  [[nodiscard]] float step(std::int64_t row) const {
    return of.steps.steps[row * p.in.heads + head];
  }
  [[nodiscard]] float decay(std::int64_t row) const {
    return of.steps.decays[row * p.in.heads + head];
  }
};

/// Rows of one head: at most kHeadPiece of a document.
struct HeadPieceRows {
  std::int64_t begin, rows;
  const float* before;  ///< The states before the first.
  bool first, last;     ///< Ends of a document: no state before, no adjoint behind.
  RightFactor b, c;     ///< [rows, padded states]: of the head's group.
  float *db, *dc;       ///< As b, of this head.
  std::int64_t stride;  ///< Stride of db and dc.
};

/// b or c of a piece: in its place where nothing behind its states has to be zero, else in
/// `padded`.
HWY_INLINE RightFactor states_of_rows(const HeadCall& call, const void* matrix, std::int64_t begin,
                                      std::int64_t rows, float* padded) {
  const HeadScanInputs& in = call.p.in;
  const std::int64_t whole = padded_states(in.states);
  if (whole == in.states) {
    return {static_cast<const float*>(matrix) + call.place(begin), in.x_stride};
  }
  for (std::int64_t t = 0; t < rows; ++t) {
    load_states(matrix, call.place(begin + t), in.states, padded + t * whole);
  }
  return {padded, whole};
}

/// factor * row, with zeros behind it.
HWY_INLINE void scale_row(const float* row, std::int64_t count, float factor, float* scaled) {
  const Floats d;
  each_sixteen(0, count, [&](std::int64_t i, auto part, auto) {
    hn::Store(hn::Mul(hn::Set(d, factor), load(d, row + i, part)), d, scaled + i);
  });
}

/// Sum of the products of two rows.
HWY_INLINE float dot_rows(const float* left, const float* right, std::int64_t count) {
  const Floats d;
  Floats16 sums(0.0F);
  each_sixteen(0, count, [&](std::int64_t i, auto part, auto which) {
    sums[which] = hn::MulAdd(load(d, left + i, part), load(d, right + i, part), sums[which]);
  });
  return sum_of(sums);
}

/// factor * memory, in its place; whole Floats16.
HWY_INLINE void scale_all(float factor, std::int64_t count, float* memory) {
  const Floats d;
  for (std::int64_t i = 0; i < count; i += Floats16::lanes) {
    hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, memory + i)), d, memory + i);
  }
}

/// <c[i], b[j]> of the rows of a piece and one group, [rows, kHeadPiece] `stride` apart.
void multiply_pairs(const HeadScanInputs& in, std::int64_t begin, std::int64_t rows,
                    std::int64_t group, float* products, std::int64_t stride) {
  alignas(64) float b_t[kMostHeadStates * kHeadPiece];
  const std::int64_t place = begin * in.x_stride + group * in.states;
  pack_across(Floats(), static_cast<const float*>(in.b) + place, in.x_stride, in.states, rows, b_t,
              kHeadPiece);
  product({static_cast<const float*>(in.c) + place, in.x_stride, 1}, {b_t, kHeadPiece},
          {products, stride}, {rows, in.states, kHeadPiece});
}

/// D x of the rows, decayed up to the last one. Returns the decay of all.
float load_inputs(const HeadCall& call, const HeadScratch& s, std::int64_t begin,
                  std::int64_t rows) {
  const HeadScanInputs& in = call.p.in;
  float decay = 1.0F;
  for (std::int64_t t = rows - 1; t >= 0; --t) {
    const std::int64_t row = begin + t;
    scale_row(call.x(row), in.width, call.step(row), s.x + t * s.width);
    scale_row(s.x + t * s.width, s.width, decay, s.x_last + t * s.width);
    decay *= call.decay(row);
  }
  return decay;
}

/// The states behind a piece from those before it.
void walk_piece(const HeadCall& call, const HeadScratch& s, std::int64_t begin, const float* before,
                float* after) {
  const std::int64_t width = call.p.in.width;
  const float decay = load_inputs(call, s, begin, kHeadPiece);
  std::copy_n(before, width * s.states, after);
  scale_all(decay, width * s.states, after);
  product({s.x_last, 1, s.width}, states_of_rows(call, call.p.in.b, begin, kHeadPiece, s.b),
          {after, s.states, true}, {width, kHeadPiece, s.states});
}

/// Loads the gradients of a piece's rows, and the decays between them: products, for no sum of
/// exponents keeps a small one beside a large one.
void load_gradients(const HeadCall& call, const HeadScratch& s, const HeadPieceRows& piece) {
  const HeadScanInputs& in = call.p.in;
  const Floats d;
  float decay = 1.0F;
  alignas(64) float row_decays[kHeadPiece] = {};
  for (std::int64_t t = 0; t < piece.rows; ++t) {
    const std::int64_t row = piece.begin + t;
    decay *= call.decay(row);
    scale_row(call.dy(row), in.width, 1.0F, s.dy + t * s.width);
    scale_row(s.dy + t * s.width, s.width, decay, s.dy_first + t * s.width);
    scale_all(call.decay(row), kHeadPiece, row_decays);
    row_decays[t] = 1.0F;
    if (const std::int64_t next = row - kHeadPiece; next >= 0) {
      fetch_row(call.x(next), in.width);
      fetch_row(call.dy(next), in.width);
      fetch_row<true>(call.dx(next), in.width);
    }
    std::copy_n(row_decays, kHeadPiece, s.decays + t * kHeadPiece);
  }
  pack_across(d, s.x, s.width, s.width, piece.rows, s.x_t, kHeadPiece);
}

/// Products of each two rows i >= j, and zeros elsewhere.
void multiply_rows(const HeadCall& call, const HeadScratch& s, const HeadPieceRows& piece) {
  const HeadScanInputs& in = call.p.in;
  const Floats d;
  product({s.dy, s.width, 1}, {s.x_t, kHeadPiece}, {s.slopes, kHeadPiece},
          {piece.rows, in.width, kHeadPiece});
  for (std::int64_t i = 0; i < piece.rows; ++i) {
    const float* products =
        call.of.products + ((piece.begin + i) * in.groups + call.group()) * kHeadPiece;
    for (std::int64_t j = 0; j < kHeadPiece; j += Floats16::lanes) {
      const std::int64_t at = i * kHeadPiece + j;
      const auto behind =
          hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(0, i + 1 - j)));
      const FloatVec decay = hn::Load(d, s.decays + at);
      const FloatVec slope = hn::IfThenElseZero(behind, hn::Mul(decay, hn::Load(d, s.slopes + at)));
      const FloatVec pair = hn::IfThenElseZero(behind, hn::Load(d, products + j));
      hn::Store(slope, d, s.slopes + at);
      hn::Store(hn::Mul(decay, pair), d, s.pairs + at);
      hn::Store(hn::Mul(slope, pair), d, s.both + at);
    }
  }
}

/// dx of D x, dc and db of this head; leaves what decays multiply in `of_states` and `of_last`.
void piece_gradients(const HeadCall& call, const HeadScratch& s, const HeadPieceRows& piece) {
  const HeadScanInputs& in = call.p.in;
  const ProductSize wide{piece.rows, piece.rows, s.width, Terms::from_row};
  const ProductSize up{piece.rows, piece.rows, s.states, Terms::up_to_row};
  const ProductSize from{piece.rows, piece.rows, s.states, Terms::from_row};
  if (piece.first) {
    std::fill_n(s.of_states, piece.rows, 0.0F);
  } else {
    product({s.dy_first, s.width, 1}, {piece.before, s.states}, {piece.dc, piece.stride},
            {piece.rows, in.width, s.states});
    for (std::int64_t t = 0; t < piece.rows; ++t) {
      s.of_states[t] =
          dot_rows(piece.c.data + t * piece.c.stride, piece.dc + t * piece.stride, s.states);
    }
  }
  product({s.slopes, kHeadPiece, 1}, piece.b, {piece.dc, piece.stride, !piece.first}, up);
  if (piece.last) {
    std::fill_n(s.of_last, piece.rows, 0.0F);
  } else {
    product({piece.b.data, piece.b.stride, 1}, {call.walk.carry_t, s.width}, {s.dx_last, s.width},
            {piece.rows, in.states, s.width});
    product({s.x_last, s.width, 1}, {call.walk.carry, s.states}, {piece.db, piece.stride},
            {piece.rows, in.width, s.states});
    for (std::int64_t t = 0; t < piece.rows; ++t) {
      const float* to_last = s.decays + (piece.rows - 1) * kHeadPiece;
      s.of_last[t] = dot_rows(s.x_last + t * s.width, s.dx_last + t * s.width, s.width);
      scale_row(s.dx_last + t * s.width, s.width, to_last[t], s.dx + t * s.width);
    }
  }
  product({s.pairs, 1, kHeadPiece}, {s.dy, s.width}, {s.dx, s.width, !piece.last}, wide);
  product({s.slopes, 1, kHeadPiece}, piece.c, {piece.db, piece.stride, !piece.last}, from);
}

/// Adds to of_states[t] what else is multiplied by row t's decay: the sum of `both` over i >= t
/// and j < t, and of the states that go through the whole piece.
void add_decayed(const HeadCall& call, const HeadScratch& s, const HeadPieceRows& piece,
                 float decay) {
  const Floats d;
  const std::int64_t size = call.p.in.width * s.states;
  const float through =
      piece.first || piece.last ? 0.0F : decay * dot_rows(piece.before, call.walk.carry, size);
  alignas(64) float below[kHeadPiece] = {};  // Sums over the rows from t on.
  float behind = 0.0F;
  for (std::int64_t t = piece.rows - 1; t >= 0; --t) {
    Floats16 sums(0.0F);
    for (std::int64_t j = 0; j < kHeadPiece; j += Floats16::lanes) {
      const FloatVec sum =
          hn::Add(hn::Load(d, below + j), hn::Load(d, s.both + t * kHeadPiece + j));
      const auto before = hn::FirstN(d, static_cast<std::size_t>(std::max<std::int64_t>(0, t - j)));
      FloatVec& into = sums[static_cast<int>(j % Floats16::count / Floats16::lanes)];
      hn::Store(sum, d, below + j);
      into = hn::Add(into, hn::IfThenElseZero(before, sum));
    }
    behind += s.of_states[t];
    s.of_states[t] = sum_of(sums) + behind;
  }
  float ahead = 0.0F;
  for (std::int64_t t = 0; t < piece.rows; ++t) {
    s.of_states[t] += ahead + through;
    ahead += s.of_last[t];
  }
}

/// Slope of a step by delta: that of softplus, 0 beyond the limits.
HWY_INLINE float step_slope(const HeadScanInputs& in, float raw) {
  const Floats d;
  const FloatVec x = hn::Set(d, raw);
  const float step = hn::GetLane(softplus(d, x));
  return step < in.least_step || step > in.most_step ? 0.0F : hn::GetLane(sigmoid(d, x));
}

/// Leaves a row's gradients, dx and ddelta.
void finish_row(const HeadCall& call, const HeadScratch& s, float rate, std::int64_t row,
                std::int64_t t) {
  const HeadScanBackwardParams& p = call.p;
  const HeadScanInputs& in = p.in;
  const Floats d;
  HeadSums& sums = call.walk.of_document;
  const float step = call.step(row);
  const float* x = call.x(row);
  const float* dy = call.dy(row);
  const float* of_x = s.dx + t * s.width;
  float* dx = call.dx(row);
  const float of_step = dot_rows(x, of_x, in.width);
  sums.d += dot_rows(dy, x, in.width);
  each_vector(0, in.width, [&](std::int64_t i, auto part) {
    const FloatVec skip = hn::Mul(hn::Set(d, in.d[call.head]), load(d, dy + i, part));
    store(hn::MulAdd(hn::Set(d, step), hn::Load(d, of_x + i), skip), d, dx + i, part);
  });
  float* ddelta = static_cast<float*>(p.ddelta) + row * in.delta_stride + call.head;
  const float raw = static_cast<const float*>(in.delta)[row * in.delta_stride + call.head] +
                    in.delta_bias[call.head];
  *ddelta = (of_step + rate * s.of_states[t]) * step_slope(in, raw);
  sums.a_log += step * s.of_states[t];
  sums.bias += *ddelta;
}

/// One piece, `carry` being the adjoint of the states behind it; leaves that of those before it.
void head_piece_back(const HeadCall& call, const HeadScratch& s, float rate,
                     const HeadPieceRows& piece) {
  const HeadScanInputs& in = call.p.in;
  const float decay = load_inputs(call, s, piece.begin, piece.rows);
  load_gradients(call, s, piece);
  multiply_rows(call, s, piece);
  piece_gradients(call, s, piece);
  add_decayed(call, s, piece, decay);
  for (std::int64_t t = piece.rows - 1; t >= 0; --t) {
    finish_row(call, s, rate, piece.begin + t, t);
  }
  if (piece.first) {
    return;
  }
  if (!piece.last) {
    scale_all(decay, in.width * s.states, call.walk.carry);
  }
  product({s.dy_first, 1, s.width}, piece.c, {call.walk.carry, s.states, !piece.last},
          {in.width, piece.rows, s.states});
  pack_across(Floats(), call.walk.carry, s.states, in.states, in.width, call.walk.carry_t, s.width);
}

/// As head_piece_back(); db and dc go to `parts`, [rows, 2, states].
HWY_INLINE void head_piece_back_into(const HeadCall& call, const HeadScratch& s, float rate,
                                     HeadPieceRows piece, float* parts) {
  const HeadScanInputs& in = call.p.in;
  const bool whole = s.states == in.states;
  piece.b = states_of_rows(call, in.b, piece.begin, piece.rows, s.b);
  piece.c = states_of_rows(call, in.c, piece.begin, piece.rows, s.c);
  piece.db = whole ? parts : s.db;
  piece.dc = whole ? parts + in.states : s.dc;
  piece.stride = whole ? 2 * in.states : s.states;
  head_piece_back(call, s, rate, piece);
  for (std::int64_t t = 0; !whole && t < piece.rows; ++t) {
    store_head(s.db + t * s.states, 1, in.states, parts + t * 2 * in.states);
    store_head(s.dc + t * s.states, 1, in.states, parts + t * 2 * in.states + in.states);
  }
}

void head_chunk_back(const HeadCall& call, const HeadScratch& s, float rate,
                     const HeadChunkRows& chunk) {
  const HeadScanInputs& in = call.p.in;
  const auto& [document, begin, end, place] = chunk;
  const std::int64_t size = in.width * s.states;
  const float* kept =
      call.p.kept + begin / kHeadChunk * in.state_size() + call.head * in.width * in.states;
  load_head(begin == document.first ? nullptr : kept, in.width, in.states, s.begins);
  const std::int64_t pieces = divide_up(end - begin, kHeadPiece);
  for (std::int64_t piece = 0; piece + 1 < pieces; ++piece) {
    walk_piece(call, s, begin + piece * kHeadPiece, s.begins + piece * size,
               s.begins + (piece + 1) * size);
  }
  float* parts = call.p.partial + (call.head * call.of.window + place) * 2 * in.states;
  for (std::int64_t piece = pieces - 1; piece >= 0; --piece) {
    const std::int64_t from = begin + piece * kHeadPiece;
    head_piece_back_into(call, s, rate,
                         {.begin = from,
                          .rows = std::min(kHeadPiece, end - from),
                          .before = s.begins + piece * size,
                          .first = from == document.first,
                          .last = from + kHeadPiece >= document.end(),
                          .b = {},
                          .c = {},
                          .db = nullptr,
                          .dc = nullptr,
                          .stride = 0},
                         parts + (from - begin) * 2 * in.states);
  }
}

/// One head through some chunks, in their order, so that its sums have one order.
void head_back(const HeadScanBackwardParams& p, const HeadBackward& of,
               std::span<const HeadChunkRows> chunks, std::int64_t head, HeadWalk& walk) {
  static thread_local Scratch scratch;
  const HeadScratch s(scratch, p.in);
  const HeadCall call{p, of, head, walk};
  const Floats d;
  const float rate = -hn::GetLane(exp_of(d, hn::Set(d, p.in.a_log[head])));
  for (const HeadChunkRows& chunk : chunks) {
    head_chunk_back(call, s, rate, chunk);
    if (chunk.begin == chunk.document.first) {
      walk.of_all += std::exchange(walk.of_document, {});
    }
  }
  if (p.da_log != nullptr) {
    p.da_log[head] = rate * walk.of_all.a_log;
  }
  if (p.dd != nullptr) {
    p.dd[head] = walk.of_all.d;
  }
  if (p.ddelta_bias != nullptr) {
    p.ddelta_bias[head] = walk.of_all.bias;
  }
}

std::int64_t head_state_floats(const HeadScanInputs& in) {
  return padded_states(in.width) * padded_states(in.states);
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(head_back);
HWY_EXPORT(head_state_floats);
HWY_EXPORT(multiply_pairs);

namespace {

using HeadChunks = std::vector<HeadChunkRows>;

/// The chunks of all documents in the order of the walk.
HeadChunks head_chunks(const std::vector<DocumentRange>& documents) {
  HeadChunks chunks;
  for (const DocumentRange& document : documents) {
    for (std::int64_t chunk = divide_up(document.length, kHeadChunk) - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = document.first + chunk * kHeadChunk;
      chunks.push_back({.document = document,
                        .begin = begin,
                        .end = std::min(begin + kHeadChunk, document.end())});
    }
  }
  return chunks;
}

/// <c[i], b[j]> of each two rows of a piece, for all heads of a group: [rows, groups, kHeadPiece].
const float* products_of_pairs(const HeadScanInputs& in, const HeadChunks& chunks, int threads,
                               Scratch& scratch) {
  auto* products = scratch.get<float>(in.rows.count() * in.groups * kHeadPiece);
  const auto one = HWY_DYNAMIC_DISPATCH(multiply_pairs);
  parallel_for(threads, std::ssize(chunks) * in.groups, [&](std::int64_t item, int) {
    const HeadChunkRows& chunk = chunks[static_cast<std::size_t>(item / in.groups)];
    const std::int64_t group = item % in.groups;
    for (std::int64_t begin = chunk.begin; begin < chunk.end; begin += kHeadPiece) {
      one(in, begin, std::min(kHeadPiece, chunk.end - begin), group,
          products + (begin * in.groups + group) * kHeadPiece, in.groups * kHeadPiece);
    }
  });
  return products;
}

/// db and dc of a row, at `place` of its window: sums over the heads of each group, in order.
void add_heads(const HeadScanBackwardParams& p, std::int64_t window, std::int64_t row,
               std::int64_t place) {
  const std::int64_t states = p.in.states;
  const std::int64_t heads = p.in.heads / p.in.groups;
  for (std::int64_t group = 0; group < p.in.groups; ++group) {
    float sums[2 * kMostHeadStates] = {};
    for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
      const float* of_head = p.partial + (head * window + place) * 2 * states;
      for (std::int64_t n = 0; n < 2 * states; ++n) {
        sums[n] += of_head[n];
      }
    }
    const std::int64_t to = row * p.dx_stride + group * states;
    std::copy_n(sums, states, static_cast<float*>(p.db) + to);
    std::copy_n(sums + states, states, static_cast<float*>(p.dc) + to);
  }
}

/// The chunks from `first` on whose rows one window holds, with their places; at least one.
std::span<const HeadChunkRows> next_window(HeadChunks& chunks, std::size_t first,
                                           std::int64_t window) {
  std::int64_t rows = 0;
  std::size_t last = first;
  for (; last < chunks.size(); ++last) {
    const std::int64_t length = chunks[last].end - chunks[last].begin;
    if (rows + length > window) {
      break;
    }
    chunks[last].place = std::exchange(rows, rows + length);
  }
  return std::span(chunks).subspan(first, last - first);
}

}  // namespace

void head_scan_backward(const HeadScanBackwardParams& p, int threads) {
  static thread_local Scratch scratch_of_steps, scratch_of_products, scratch_of_walks;
  HeadChunks chunks = head_chunks(document_ranges(p.in.rows));
  const HeadBackward of{.steps = head_steps(p.in, threads, scratch_of_steps),
                        .products = products_of_pairs(p.in, chunks, threads, scratch_of_products),
                        .window = std::min(kHeadChunk, p.in.rows.count())};
  const std::int64_t state = HWY_DYNAMIC_DISPATCH(head_state_floats)(p.in);
  auto* carry = scratch_of_walks.get<float>(2 * p.in.heads * state);
  std::vector<HeadWalk> walks(static_cast<std::size_t>(p.in.heads));
  for (HeadWalk& walk : walks) {
    walk.carry = std::exchange(carry, carry + state);
    walk.carry_t = std::exchange(carry, carry + state);
  }
  const auto one = HWY_DYNAMIC_DISPATCH(head_back);
  std::size_t done = 0;
  do {  // Once for no rows, whose sums are zero.
    const auto window = next_window(chunks, done, of.window);
    parallel_for(threads, p.in.heads, [&](std::int64_t head, int) {
      one(p, of, window, head, walks[static_cast<std::size_t>(head)]);
    });
    for (const HeadChunkRows& chunk : window) {
      each_row(threads, chunk.end - chunk.begin, 2 * p.in.states * p.in.heads,
               [&](std::int64_t t) { add_heads(p, of.window, chunk.begin + t, chunk.place + t); });
    }
    done += window.size();
  } while (done < chunks.size());
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
