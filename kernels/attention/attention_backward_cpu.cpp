#include "kernels/attention/attention.hpp"

#include <vector>

#include "kernels/attention/attention_division.hpp"
#include "kernels/attention/attention_scratch.hpp"
#include "kernels/attention/bf16_blocks.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_backward_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/attention/attention_backward-inl.hpp"
#include "kernels/attention/attention_blocks-inl.hpp"
#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// delta = sum over the head of dout * out, the softmax gradient's row term.
HWY_INLINE float delta_row(const float* dout, const float* out, std::int64_t value_dim) {
  const Floats d;
  Floats16 sums(0.0F);
  each_sixteen(0, value_dim, [&](std::int64_t c, auto part, auto which) {
    sums[which] = hn::MulAdd(load(d, dout + c, part), load(d, out + c, part), sums[which]);
  });
  return sum_of(sums);
}

/// Turns scores into probabilities exp(capped(scale score) - lse), and dscores into scale p
/// (dscores - delta) times the cap's slope; zeros for masked elements.
HWY_INLINE void softmax_backward_row(const ScoreRow& row, float* dscores, float lse, float delta,
                                     float softcap, float scale) {
  const Floats d;
  float* scores = row.scores;
  each_seen(row, [&](std::int64_t i, auto part, auto) {
    FloatVec score = load(d, scores + i, part);
    FloatVec slope = hn::Set(d, 1.0F);
    if (scale != 1.0F) {
      score = hn::Mul(hn::Set(d, scale), score);
    }
    if (softcap > 0.0F) {
      score = capped(d, score, softcap);
      const FloatVec tanh = hn::Mul(score, hn::Set(d, 1.0F / softcap));
      slope = hn::NegMulAdd(tanh, tanh, slope);
    }
    const FloatVec p = exp_of_negative(d, hn::Sub(score, hn::Set(d, lse)));
    const FloatVec dp = load(d, dscores + i, part);
    store(p, d, scores + i, part);
    FloatVec ds = hn::Mul(p, hn::Sub(dp, hn::Set(d, delta)));
    if (scale != 1.0F) {
      ds = hn::Mul(hn::Set(d, scale), ds);
    }
    store(softcap > 0.0F ? hn::Mul(ds, slope) : ds, d, dscores + i, part);
  });
  clear_unseen(row, scores);
  clear_unseen(row, dscores);
}

/// Recomputes the probabilities of the block's keys [from, to), `from` a multiple of the vector
/// width, computes the score gradients, and adds to dk and dv.
HWY_INLINE void backward_keys(const AttentionBackwardParams& p, const AttentionSizes& s,
                              const AttentionBackwardScratch& t, const AttentionHead& head,
                              const QueryBlock& block, std::int64_t from, std::int64_t to,
                              Operands operands) {
  const KeyRange keys{.from = from,
                      .to = to,
                      .padded = padded_keys(to - from),
                      .seen = block.first - block.begin - from};
  const bool bf16 = operands == Operands::bf16;
  bf16 ? score_pairs(s, t, block, keys) : score_products(s, t, block, keys);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const std::int64_t query = block.first + row;
    const std::int64_t first = block.begin + from;
    const std::int64_t seen = first_key(query, read_window(p.window, p.prefix)) - first;
    const std::int64_t unseen = query + 1 - first;
    const ScoreRow scores{.scores = t.scores + row * s.padded_len + from,
                          .begin = std::clamp<std::int64_t>(seen, 0, keys.padded),
                          .end = std::clamp<std::int64_t>(unseen, 0, keys.padded),
                          .padded = keys.padded};
    hide_scores(hidden_keys(query, p.window, p.prefix), first, scores);
    softmax_backward_row(scores, t.dscores + row * s.padded_len + from, head.lse[query],
                         head.delta[query], p.softcap, bf16 ? p.scale : 1.0F);
  }
  bf16 ? key_pairs(s, t, block, keys) : key_products(s, t, block, keys);
}

/// Computes dq of the block's rows [from, to), after backward_keys() of all its keys.
HWY_INLINE void backward_queries(const AttentionBackwardParams& p, const AttentionSizes& s,
                                 const AttentionBackwardScratch& t, const AttentionHead& head,
                                 const QueryBlock& block, std::int64_t from, std::int64_t to,
                                 Operands operands) {
  float* const gradients = t.dscores + from * s.padded_len;
  const std::int64_t seen = block.first + from - block.begin;
  if (operands == Operands::bf16) {
    pack_pairs_along(gradients, s.padded_len, pairs_in(gradients), s.padded_len, to - from,
                     padded_keys(block.keys));
    multiply_pairs({.a = pairs_in(gradients),
                    .a_row = s.padded_len,
                    .a_column = 1,
                    .b = pairs_in(t.k) + block.begin / 2 * s.padded_dim,
                    .b_row = s.padded_dim,
                    .c = t.dq + from * s.padded_dim,
                    .c_row = s.padded_dim,
                    .m = to - from,
                    .n = s.padded_dim,
                    .k = block.keys,
                    .zeros = ZeroPairs::after,
                    .seen = seen});
  } else {
    multiply_block({.a = gradients,
                    .a_row = s.padded_len,
                    .a_column = 1,
                    .b = t.k + block.begin * s.padded_dim,
                    .b_row = s.padded_dim,
                    .c = t.dq + from * s.padded_dim,
                    .c_row = s.padded_dim,
                    .m = to - from,
                    .n = s.padded_dim,
                    .k = block.keys,
                    .accumulate = false,
                    .causal = Causal::queries,
                    .seen = seen});
  }
  const Floats d;
  const FloatVec scale = hn::Set(d, operands == Operands::bf16 ? 1.0F : p.scale);
  for (std::int64_t row = from; row < to; ++row) {
    each_vector(0, s.head_dim, [&](std::int64_t c, auto part) {
      const FloatVec v = load(d, t.dq + row * s.padded_dim + c, part);
      store(hn::Mul(scale, v), d, head.dq + (block.first + row) * p.dq_layout.outer_stride + c,
            part);
    });
  }
}

/// Runs one of the kBackwardPacks tasks that fill a head's scratch, in any order. The first
/// kKeyPacks are equal for all heads of a group.
void attention_backward_pack(const AttentionBackwardParams& p, const AttentionHead& head,
                             std::int64_t length, float* memory, std::int64_t task,
                             Operands operands) {
  const AttentionSizes s = attention_sizes(length, p.head_dim, p.values());
  const AttentionBackwardScratch t(memory, s);
  const bool bf16 = operands == Operands::bf16;
  const auto transpose = [&](const float* from, std::int64_t from_row, float* to,
                             std::int64_t cols) {
    bf16 ? pack_pairs_transposed(from, from_row, pairs_in(to), s.padded_len, s.length, cols)
         : pack_transposed(from, from_row, to, s.length, cols, s.padded_len);
  };
  const auto rows = [&](const float* from, std::int64_t from_row, float* to, std::int64_t cols,
                        std::int64_t padded, float scale) {
    bf16 ? pack_pairs_across(from, from_row, pairs_in(to), padded, s.length, cols, padded)
         : pack_rows(from, from_row, to, s.length, cols, padded, scale);
  };
  const auto along = [&](const float* from, std::int64_t from_row, float* to, std::int64_t cols) {
    if (bf16) {
      pack_pairs_along(from, from_row, pairs_in(to), row_of_pairs(cols), s.length, cols);
    }
  };
  switch (task) {
    case 0:
      transpose(head.k, p.k_layout.outer_stride, t.k_transposed, s.head_dim);
      break;
    case 1:
      transpose(head.v, p.v_layout.outer_stride, t.v_transposed, s.value_dim);
      break;
    case 2:
      rows(head.k, p.k_layout.outer_stride, t.k, s.head_dim, s.padded_dim, 1.0F);
      break;
    case 3:
      rows(head.q, p.q_layout.outer_stride, t.q, s.head_dim, s.padded_dim, p.scale);
      along(head.q, p.q_layout.outer_stride, t.q_pairs, s.head_dim);
      std::fill_n(t.dk, s.length * s.padded_dim, 0.0F);
      break;
    default:
      std::fill_n(t.dv, s.length * s.padded_value, 0.0F);
      rows(head.dout, p.dout_layout.outer_stride, t.dout, s.value_dim, s.padded_value, 1.0F);
      along(head.dout, p.dout_layout.outer_stride, t.dout_pairs, s.value_dim);
      for (std::int64_t row = 0; row < s.length; ++row) {
        head.delta[row] = delta_row(head.dout + row * p.dout_layout.outer_stride,
                                    head.out + row * p.out_layout.outer_stride, s.value_dim);
      }
  }
}

/// Runs share `part` of `parts` of backward_keys() for the block of query rows from `first` on.
void attention_backward_keys(const AttentionBackwardParams& p, const AttentionHead& head,
                             std::int64_t length, float* memory, const BlockPart& part,
                             Operands operands) {
  const AttentionSizes s = attention_sizes(length, p.head_dim, p.values());
  const QueryBlock block = query_block_at(s, part.first, read_window(p.window, p.prefix));
  const std::int64_t size = divide_up(block.keys, AttentionSizes::kVector * part.parts);
  const std::int64_t from = part.part * size * AttentionSizes::kVector;
  const std::int64_t to = std::min(block.keys, from + size * AttentionSizes::kVector);
  if (from < to) {
    backward_keys(p, s, AttentionBackwardScratch(memory, s), head, block, from, to, operands);
  }
}

/// Runs share `part` of `parts` of backward_queries().
void attention_backward_queries(const AttentionBackwardParams& p, const AttentionHead& head,
                                std::int64_t length, float* memory, const BlockPart& part,
                                Operands operands) {
  const AttentionSizes s = attention_sizes(length, p.head_dim, p.values());
  const QueryBlock block = query_block_at(s, part.first, read_window(p.window, p.prefix));
  const std::int64_t size = divide_up(block.rows, part.parts);
  const std::int64_t from = std::min(block.rows, part.part * size);
  const std::int64_t to = std::min(block.rows, from + size);
  if (from < to) {
    backward_queries(p, s, AttentionBackwardScratch(memory, s), head, block, from, to, operands);
  }
}

/// Computes all gradients of one head in a document of `length` tokens; those of keys and values
/// stay in the scratch. Query blocks are processed in order, so dk and dv are summed in one order
/// for any number of threads. `first_pack`: first packing task still to be done.
void attention_backward_head(const AttentionBackwardParams& p, const AttentionHead& head,
                             std::int64_t length, float* memory, std::int64_t first_pack,
                             Operands operands) {
  for (std::int64_t task = first_pack; task < kBackwardPacks; ++task) {
    attention_backward_pack(p, head, length, memory, task, operands);
  }
  for (std::int64_t first = 0; first < length; first += AttentionSizes::kQueryBlock) {
    const BlockPart all{.first = first, .part = 0, .parts = 1};
    attention_backward_keys(p, head, length, memory, all, operands);
    attention_backward_queries(p, head, length, memory, all, operands);
  }
}

/// Copies or adds rows of the scratch to rows of a tensor.
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

HWY_EXPORT(attention_backward_pack);
HWY_EXPORT(attention_backward_keys);
HWY_EXPORT(attention_backward_queries);
HWY_EXPORT(attention_backward_head);
HWY_EXPORT(unpack_rows);

namespace {

/// Query head of a document.
struct HeadOfDocument {
  Document document;
  std::int64_t head;
};

/// Offset at which a document's row 0 of head `head` starts.
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

/// Adds dk and dv of a head, held in the scratch, to those of its group.
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

/// Runs attention_backward_head() with all threads.
void compute_together(const AttentionBackwardParams& p, const HeadOfDocument& of, float* memory,
                      std::int64_t first_pack, int threads, Operands operands) {
  const auto pack = HWY_DYNAMIC_DISPATCH(attention_backward_pack);
  const auto keys = HWY_DYNAMIC_DISPATCH(attention_backward_keys);
  const auto queries = HWY_DYNAMIC_DISPATCH(attention_backward_queries);
  const AttentionHead head = tensors_of(p, of);
  const std::int64_t length = of.document.length;
  parallel_for(threads, kBackwardPacks - first_pack, [&](std::int64_t task, int) {
    pack(p, head, length, memory, first_pack + task, operands);
  });
  for (std::int64_t first = 0; first < length; first += AttentionSizes::kQueryBlock) {
    parallel_for(threads, threads, [&](std::int64_t part, int) {
      keys(p, head, length, memory, {.first = first, .part = part, .parts = threads}, operands);
    });
    parallel_for(threads, threads, [&](std::int64_t part, int) {
      queries(p, head, length, memory, {.first = first, .part = part, .parts = threads}, operands);
    });
  }
}

}  // namespace

void attention_backward_with(const AttentionBackwardParams& p, int threads, Operands operands) {
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
  auto* memory = scratch.get<float>(size * threads);
  PackedKeys packed(threads);
  const auto first_pack = [&](std::int64_t i, std::int64_t slot) {
    const auto document = static_cast<std::size_t>(i / p.heads);
    return packed.has(slot, document, i % p.heads / group) ? kKeyPacks : 0;
  };
  const auto compute = [&](std::int64_t i, std::int64_t slot) {
    const HeadOfDocument of = nth(i);
    one_head(p, tensors_of(p, of), of.document.length, memory + slot * size, first_pack(i, slot),
             operands);
  };
  // One thread per group while there is a group for every thread; then one thread per head, whose
  // dk and dv are added afterwards; finally all threads on one head. Each way adds the heads of a
  // group in order, so the bits are equal.
  const std::int64_t whole = heads / group / threads * threads;
  parallel_shares(threads, whole, [&](std::int64_t i, int worker) {
    for (std::int64_t j = i * group; j < (i + 1) * group; ++j) {
      compute(j, worker);
      add_to_group(p, nth(j), memory + worker * size);
    }
  });
  const std::int64_t shared = heads_to_share(heads - whole * group, threads);
  for (std::int64_t first = whole * group; first < heads - shared; first += threads) {
    const std::int64_t count = std::min<std::int64_t>(threads, heads - shared - first);
    parallel_for(threads, count, [&](std::int64_t i, int) { compute(first + i, i); });
    for (std::int64_t i = 0; i < count; ++i) {
      add_to_group(p, nth(first + i), memory + i * size);
    }
  }
  for (std::int64_t i = heads - shared; i < heads; ++i) {
    compute_together(p, nth(i), memory, first_pack(i, 0), threads, operands);
    add_to_group(p, nth(i), memory);
  }
}

void attention_backward(const AttentionBackwardParams& p, int threads) {
  attention_backward_with(p, threads, Operands::f32);
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
