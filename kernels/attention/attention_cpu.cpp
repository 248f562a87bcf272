#include "kernels/attention/attention.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/attention_scratch.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// Query rows [first, first + rows) of one head: scores against every key that one of them sees.
HWY_INLINE void forward_block(const AttentionForwardParams& p, const AttentionSizes& s,
                              const AttentionForwardScratch& scratch, const float* q, float* out,
                              float* lse, std::int64_t first, std::int64_t rows) {
  const std::int64_t begin = first_key_of_block(first, p.window);
  const std::int64_t keys = first + rows - begin;
  const std::int64_t padded_keys = divide_up(keys, AttentionSizes::vector) * AttentionSizes::vector;
  multiply_block({.a = q + first * p.q_layout.outer_stride,
                  .a_row = p.q_layout.outer_stride,
                  .a_column = 1,
                  .b = scratch.k_transposed + begin,
                  .b_row = s.padded_len,
                  .c = scratch.scores,
                  .c_row = s.padded_len,
                  .m = rows,
                  .n = padded_keys,
                  .k = s.head_dim,
                  .accumulate = false});
  float inverse_sum[AttentionSizes::query_block];
  for (std::int64_t row = 0; row < rows; ++row) {
    float largest = 0.0F;
    const float sum = exponentiate_scores({.scores = scratch.scores + row * s.padded_len,
                                           .begin = first_key(first + row, p.window) - begin,
                                           .end = first + row + 1 - begin,
                                           .padded = padded_keys},
                                          p.scale, p.softcap, &largest);
    inverse_sum[row] = 1.0F / sum;
    lse[first + row] =
        static_cast<float>(static_cast<double>(largest) + std::log(static_cast<double>(sum)));
  }
  multiply_block({.a = scratch.scores,
                  .a_row = s.padded_len,
                  .a_column = 1,
                  .b = scratch.v + begin * s.padded_value,
                  .b_row = s.padded_value,
                  .c = scratch.out,
                  .c_row = s.padded_value,
                  .m = rows,
                  .n = s.padded_value,
                  .k = keys,
                  .accumulate = false});
  const Floats d;
  for (std::int64_t row = 0; row < rows; ++row) {
    float* to = out + (first + row) * p.out_layout.outer_stride;
    const float* from = scratch.out + row * s.padded_value;
    each_vector(0, s.value_dim, [&](std::int64_t c, auto part) {
      store(hn::Mul(hn::Set(d, inverse_sum[row]), load(d, from + c, part)), d, to + c, part);
    });
  }
}

/// All query rows of head `head` of one document.
void attention_forward_head(const AttentionForwardParams& p, const Document& document,
                            std::int64_t head, float* memory) {
  const AttentionSizes s = attention_sizes(document.length, p.head_dim, p.values());
  const AttentionForwardScratch scratch(memory, s);
  const auto start = [&](const RowLayout& layout, std::int64_t inner) {
    return (document.sequence * p.seq_len + document.first) * layout.outer_stride +
           inner * layout.inner_stride;
  };
  const std::int64_t kv_head = head / p.group();
  const float* q = static_cast<const float*>(p.q) + start(p.q_layout, head);
  const float* k = static_cast<const float*>(p.k) + start(p.k_layout, kv_head);
  const float* v = static_cast<const float*>(p.v) + start(p.v_layout, kv_head);
  float* out = static_cast<float*>(p.out) + start(p.out_layout, head);
  float* lse = p.lse + (document.sequence * p.heads + head) * p.seq_len + document.first;
  pack_transposed(k, p.k_layout.outer_stride, scratch.k_transposed, s.length, s.head_dim,
                  s.padded_len);
  pack_rows(v, p.v_layout.outer_stride, scratch.v, s.length, s.value_dim, s.padded_value, 1.0F);
  for (std::int64_t first = 0; first < s.length; first += AttentionSizes::query_block) {
    const std::int64_t rows = std::min(AttentionSizes::query_block, s.length - first);
    forward_block(p, s, scratch, q, out, lse, first, rows);
  }
}

/// delta = sum over the head of dout * out, the softmax gradient's row term.
HWY_INLINE float delta_row(const float* dout, const float* out, std::int64_t value_dim) {
  const Floats d;
  Floats16 sums(0.0F);
  each_sixteen(0, value_dim, [&](std::int64_t c, auto part, auto which) {
    sums[which] = hn::MulAdd(load(d, dout + c, part), load(d, out + c, part), sums[which]);
  });
  return sum_of(sums);
}

/// scores -> probabilities exp(capped(score) - lse); dscores -> p * (dscores - delta), times the
/// cap's slope; zeros where nothing is seen.
HWY_INLINE void softmax_backward_row(const ScoreRow& row, float* dscores, float lse, float delta,
                                     float softcap) {
  const Floats d;
  float* scores = row.scores;
  each_vector(row.begin, row.end, [&](std::int64_t i, auto part) {
    FloatVec score = load(d, scores + i, part);
    FloatVec slope = hn::Set(d, 1.0F);
    if (softcap > 0.0F) {
      score = capped(d, score, softcap);
      const FloatVec tanh = hn::Mul(score, hn::Set(d, 1.0F / softcap));
      slope = hn::NegMulAdd(tanh, tanh, slope);
    }
    const FloatVec p = exp_of_negative(d, hn::Sub(score, hn::Set(d, lse)));
    const FloatVec dp = load(d, dscores + i, part);
    store(p, d, scores + i, part);
    const FloatVec ds = hn::Mul(p, hn::Sub(dp, hn::Set(d, delta)));
    store(softcap > 0.0F ? hn::Mul(ds, slope) : ds, d, dscores + i, part);
  });
  for (float* values : {scores, dscores}) {
    std::fill(values, values + row.begin, 0.0F);
    std::fill(values + row.end, values + row.padded, 0.0F);
  }
}

/// The block's dq from the scratch, times the scale of the scores.
HWY_INLINE void store_query_gradients(const AttentionBackwardParams& p, const AttentionSizes& s,
                                      const AttentionBackwardScratch& t, const AttentionHead& head,
                                      std::int64_t first, std::int64_t rows) {
  const Floats d;
  for (std::int64_t row = 0; row < rows; ++row) {
    each_vector(0, s.head_dim, [&](std::int64_t c, auto part) {
      const FloatVec v = load(d, t.dq + row * s.padded_dim + c, part);
      store(hn::Mul(hn::Set(d, p.scale), v), d,
            head.dq + (first + row) * p.dq_layout.outer_stride + c, part);
    });
  }
}

/// Query rows [first, first + rows): their probabilities again, then their share of all gradients.
HWY_INLINE void backward_block(const AttentionBackwardParams& p, const AttentionSizes& s,
                               const AttentionBackwardScratch& t, const AttentionHead& head,
                               std::int64_t first, std::int64_t rows) {
  const std::int64_t begin = first_key_of_block(first, p.window);
  const std::int64_t keys = first + rows - begin;
  const std::int64_t padded_keys = divide_up(keys, AttentionSizes::vector) * AttentionSizes::vector;
  const float* q = t.q + first * s.padded_dim;
  const float* dout = t.dout + first * s.padded_value;
  BlockProduct scores{.a = q,
                      .a_row = s.padded_dim,
                      .a_column = 1,
                      .b = t.k_transposed + begin,
                      .b_row = s.padded_len,
                      .c = t.scores,
                      .c_row = s.padded_len,
                      .m = rows,
                      .n = padded_keys,
                      .k = s.head_dim,
                      .accumulate = false};
  multiply_block(scores);
  scores.a = dout;
  scores.a_row = s.padded_value;
  scores.b = t.v_transposed + begin;
  scores.c = t.dscores;
  scores.k = s.value_dim;
  multiply_block(scores);
  for (std::int64_t row = 0; row < rows; ++row) {
    softmax_backward_row({.scores = t.scores + row * s.padded_len,
                          .begin = first_key(first + row, p.window) - begin,
                          .end = first + row + 1 - begin,
                          .padded = padded_keys},
                         t.dscores + row * s.padded_len, head.lse[first + row],
                         head.delta[first + row], p.softcap);
  }
  BlockProduct to_keys{.a = t.scores,
                       .a_row = 1,
                       .a_column = s.padded_len,
                       .b = dout,
                       .b_row = s.padded_value,
                       .c = t.dv + begin * s.padded_value,
                       .c_row = s.padded_value,
                       .m = keys,
                       .n = s.padded_value,
                       .k = rows,
                       .accumulate = true};
  multiply_block(to_keys);
  to_keys.a = t.dscores;
  to_keys.b = q;
  to_keys.b_row = s.padded_dim;
  to_keys.c = t.dk + begin * s.padded_dim;
  to_keys.c_row = s.padded_dim;
  to_keys.n = s.padded_dim;
  multiply_block(to_keys);
  multiply_block({.a = t.dscores,
                  .a_row = s.padded_len,
                  .a_column = 1,
                  .b = t.k + begin * s.padded_dim,
                  .b_row = s.padded_dim,
                  .c = t.dq,
                  .c_row = s.padded_dim,
                  .m = rows,
                  .n = s.padded_dim,
                  .k = keys,
                  .accumulate = false});
  store_query_gradients(p, s, t, head, first, rows);
}

/// All gradients of one head in a document of `length` tokens, those of keys and values left in the
/// scratch: the query blocks follow each other, so dk and dv are summed in one order whatever the
/// number of threads.
void attention_backward_head(const AttentionBackwardParams& p, const AttentionHead& head,
                             std::int64_t length, float* memory) {
  const AttentionSizes s = attention_sizes(length, p.head_dim, p.values());
  const AttentionBackwardScratch t(memory, s);
  pack_transposed(head.k, p.k_layout.outer_stride, t.k_transposed, s.length, s.head_dim,
                  s.padded_len);
  pack_transposed(head.v, p.v_layout.outer_stride, t.v_transposed, s.length, s.value_dim,
                  s.padded_len);
  pack_rows(head.q, p.q_layout.outer_stride, t.q, s.length, s.head_dim, s.padded_dim, p.scale);
  pack_rows(head.k, p.k_layout.outer_stride, t.k, s.length, s.head_dim, s.padded_dim, 1.0F);
  pack_rows(head.dout, p.dout_layout.outer_stride, t.dout, s.length, s.value_dim, s.padded_value,
            1.0F);
  std::fill_n(t.dk, s.length * s.padded_dim, 0.0F);
  std::fill_n(t.dv, s.length * s.padded_value, 0.0F);
  for (std::int64_t row = 0; row < s.length; ++row) {
    head.delta[row] = delta_row(head.dout + row * p.dout_layout.outer_stride,
                                head.out + row * p.out_layout.outer_stride, s.value_dim);
  }
  for (std::int64_t first = 0; first < s.length; first += AttentionSizes::query_block) {
    const std::int64_t rows = std::min(AttentionSizes::query_block, s.length - first);
    backward_block(p, s, t, head, first, rows);
  }
}

/// Rows of the scratch to rows of a tensor, or added to them.
void unpack_rows(const float* from, std::int64_t padded, float* to, std::int64_t to_row,
                 std::int64_t rows, std::int64_t cols, bool add) {
  const Floats d;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (!add) {
      std::copy_n(from + row * padded, cols, to + row * to_row);
      continue;
    }
    each_vector(0, cols, [&](std::int64_t c, auto part) {
      const FloatVec sum =
          hn::Add(load(d, to + row * to_row + c, part), load(d, from + row * padded + c, part));
      store(sum, d, to + row * to_row + c, part);
    });
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(attention_forward_head);
HWY_EXPORT(attention_backward_head);
HWY_EXPORT(unpack_rows);

namespace {

/// The documents of all sequences, in their order.
template <class Params>
std::vector<Document> documents_of(const Params& p) {
  std::vector<Document> documents;
  for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
    if (p.positions == nullptr) {
      documents.push_back({sequence, 0, p.seq_len});
      continue;
    }
    const std::int32_t* positions = p.positions + sequence * p.seq_len;
    for (std::int64_t t = 0; t < p.seq_len; ++t) {
      if (positions[t] == 0) {
        documents.push_back({sequence, t, 0});
      }
      TRAIN_CHECK(positions[t] == 0 || (t > 0 && positions[t] == positions[t - 1] + 1),
                  "attention: position {} of token {} of sequence {}", positions[t], t, sequence);
      ++documents.back().length;
    }
  }
  return documents;
}

std::int64_t longest(const std::vector<Document>& documents) {
  std::int64_t length = 0;
  for (const Document& document : documents) {
    length = std::max(length, document.length);
  }
  return length;
}

}  // namespace

void attention_forward(const AttentionForwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::vector<Document> documents = documents_of(p);
  const std::int64_t size =
      AttentionForwardScratch::size(attention_sizes(longest(documents), p.head_dim, p.values()));
  const auto one_head = HWY_DYNAMIC_DISPATCH(attention_forward_head);
  auto* memory = scratch.get<float>(size * threads);
  const auto count = static_cast<std::int64_t>(documents.size()) * p.heads;
  parallel_for(threads, count, [&](std::int64_t i, int worker) {
    one_head(p, documents[static_cast<std::size_t>(i / p.heads)], i % p.heads,
             memory + worker * size);
  });
}

namespace {

/// One query head of one document.
struct HeadOfDocument {
  Document document;
  std::int64_t head;
};

/// Where a document's row 0 of head `head` starts.
std::int64_t head_start(const AttentionBackwardParams& p, const Document& document,
                        std::int64_t head, const RowLayout& layout) {
  return (document.sequence * p.seq_len + document.first) * layout.outer_stride +
         head * layout.inner_stride;
}

AttentionHead tensors_of(const AttentionBackwardParams& p, const HeadOfDocument& of) {
  const Document& document = of.document;
  const auto at = [&](const void* tensor, const RowLayout& layout, std::int64_t inner) {
    return static_cast<const float*>(tensor) + head_start(p, document, inner, layout);
  };
  const std::int64_t first_row =
      (document.sequence * p.heads + of.head) * p.seq_len + document.first;
  const std::int64_t kv_head = of.head / p.group();
  return {.q = at(p.q, p.q_layout, of.head),
          .k = at(p.k, p.k_layout, kv_head),
          .v = at(p.v, p.v_layout, kv_head),
          .out = at(p.out, p.out_layout, of.head),
          .dout = at(p.dout, p.dout_layout, of.head),
          .lse = p.lse + first_row,
          .delta = p.delta + first_row,
          .dq = static_cast<float*>(p.dq) + head_start(p, document, of.head, p.dq_layout)};
}

/// dk and dv of a head, which the scratch holds, to those of its group.
void add_to_group(const AttentionBackwardParams& p, const HeadOfDocument& of, float* memory) {
  const AttentionSizes s = attention_sizes(of.document.length, p.head_dim, p.values());
  const AttentionBackwardScratch t(memory, s);
  const auto unpack = HWY_DYNAMIC_DISPATCH(unpack_rows);
  const std::int64_t kv_head = of.head / p.group();
  const bool add = of.head % p.group() != 0;
  unpack(t.dk, s.padded_dim,
         static_cast<float*>(p.dk) + head_start(p, of.document, kv_head, p.dk_layout),
         p.dk_layout.outer_stride, s.length, s.head_dim, add);
  unpack(t.dv, s.padded_value,
         static_cast<float*>(p.dv) + head_start(p, of.document, kv_head, p.dv_layout),
         p.dv_layout.outer_stride, s.length, s.value_dim, add);
}

}  // namespace

void attention_backward(const AttentionBackwardParams& p, int threads) {
  static thread_local Scratch scratch;
  const std::vector<Document> documents = documents_of(p);
  const std::int64_t size =
      AttentionBackwardScratch::size(attention_sizes(longest(documents), p.head_dim, p.values()));
  const auto one_head = HWY_DYNAMIC_DISPATCH(attention_backward_head);
  const std::int64_t group = p.group();
  const std::int64_t heads = static_cast<std::int64_t>(documents.size()) * p.heads;
  const auto nth = [&](std::int64_t i) {
    return HeadOfDocument{documents[static_cast<std::size_t>(i / p.heads)], i % p.heads};
  };
  const auto compute = [&](const HeadOfDocument& of, float* memory) {
    one_head(p, tensors_of(p, of), of.document.length, memory);
  };
  auto* memory = scratch.get<float>(size * threads);
  // A thread a group; or, where groups are too few for that, a thread a head, whose shares of dk
  // and dv are added afterwards. Either adds the heads of a group in order: the same bits.
  if (group == 1 || heads / group >= threads) {
    parallel_for(threads, heads / group, [&](std::int64_t i, int worker) {
      for (std::int64_t j = i * group; j < (i + 1) * group; ++j) {
        compute(nth(j), memory + worker * size);
        add_to_group(p, nth(j), memory + worker * size);
      }
    });
    return;
  }
  for (std::int64_t first = 0; first < heads; first += threads) {
    const std::int64_t count = std::min<std::int64_t>(threads, heads - first);
    parallel_for(threads, count,
                 [&](std::int64_t i, int) { compute(nth(first + i), memory + i * size); });
    for (std::int64_t i = 0; i < count; ++i) {
      add_to_group(p, nth(first + i), memory + i * size);
    }
  }
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
