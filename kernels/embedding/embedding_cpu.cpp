#include "kernels/embedding/embedding.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {
namespace {

/// Checks the ids, which are device data and readable only when the stream runs this.
void require_in_vocabulary(const char* kernel, const std::int32_t* tokens, std::int64_t rows,
                           std::int64_t vocab) {
  for (std::int64_t i = 0; i < rows; ++i) {
    TRAIN_CHECK(tokens[i] >= 0 && tokens[i] < vocab,
                "{}: token id {} at position {} is outside the vocabulary of {}", kernel, tokens[i],
                i, vocab);
  }
}

/// Positions grouped by token, ascending within a group (counting sort).
struct Groups {
  std::vector<std::int64_t> first;     // [vocab + 1]: start of each token's group.
  std::vector<std::int64_t> position;  // [rows].
};

Groups group_by_token(const std::int32_t* tokens, std::int64_t rows, std::int64_t vocab) {
  Groups groups;
  groups.first.assign(static_cast<std::size_t>(vocab + 1), 0);
  groups.position.resize(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    ++groups.first[static_cast<std::size_t>(tokens[i]) + 1];
  }
  std::partial_sum(groups.first.begin(), groups.first.end(), groups.first.begin());
  std::vector<std::int64_t> next(groups.first.begin(), groups.first.end() - 1);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto slot = next[static_cast<std::size_t>(tokens[i])]++;
    groups.position[static_cast<std::size_t>(slot)] = i;
  }
  return groups;
}

void sum_group(const EmbeddingBackwardParams& p, const Groups& groups, std::int64_t token) {
  const auto* dout = static_cast<const float*>(p.dout);
  float* sum = p.dweight + token * p.cols;
  if (!p.accumulate) {
    std::fill_n(sum, p.cols, 0.0F);
  }
  const auto begin = groups.first[static_cast<std::size_t>(token)];
  const auto end = groups.first[static_cast<std::size_t>(token) + 1];
  for (std::int64_t slot = begin; slot < end; ++slot) {
    const float* row = dout + groups.position[static_cast<std::size_t>(slot)] * p.cols;
    for (std::int64_t c = 0; c < p.cols; ++c) {
      sum[c] += p.scale * row[c];
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForwardParams& p, int threads) {
  require_in_vocabulary("embedding_forward", p.tokens, p.rows, p.vocab);
  const auto* weight = static_cast<const float*>(p.weight);
  auto* out = static_cast<float*>(p.out);
  each_row(threads, p.rows, p.cols, [&](std::int64_t i) {
    const float* row = weight + p.tokens[i] * p.cols;
    std::transform(row, row + p.cols, out + i * p.cols, [&](float x) { return p.scale * x; });
  });
}

void embedding_backward(const EmbeddingBackwardParams& p, int threads) {
  require_in_vocabulary("embedding_backward", p.tokens, p.rows, p.vocab);
  const Groups groups = group_by_token(p.tokens, p.rows, p.vocab);
  constexpr std::int64_t block = 32;  // Small, as a frequent token is a long group.
  parallel_blocks(threads, p.vocab, block, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      sum_group(p, groups, token);
    }
  });
}

}  // namespace train::kernels::cpu
