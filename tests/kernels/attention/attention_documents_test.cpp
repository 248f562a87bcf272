#include <algorithm>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/attention.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::attention_documents_test {
namespace {

/// What the documents below are attended with. All tensors are packed.
struct Shape {
  std::int64_t heads, kv_heads, head_dim, value_dim;
  std::int64_t window = 0;
  float softcap = 0.0F;

  [[nodiscard]] RowLayout query() const { return {heads * head_dim, head_dim}; }
  [[nodiscard]] RowLayout key() const { return {kv_heads * head_dim, head_dim}; }
  [[nodiscard]] RowLayout value() const { return {kv_heads * value_dim, value_dim}; }
  [[nodiscard]] RowLayout out() const { return {heads * value_dim, value_dim}; }
  [[nodiscard]] std::string name() const {
    return std::to_string(heads) + " heads of " + std::to_string(head_dim) + " and " +
           std::to_string(value_dim) + ", " + std::to_string(kv_heads) + " of keys, window " +
           std::to_string(window) + ", cap " + std::to_string(softcap);
  }
};

/// Rows of one or more sequences, and what attention gives for them.
struct Rows {
  const KernelTable* kernels = &cpu_backend();
  std::int64_t sequences = 1, seq_len = 0;
  Values q = {}, k = {}, v = {}, dout = {};
  std::vector<std::int32_t> positions = {};  ///< Empty: a sequence is one document.
  Values out = {}, dq = {}, dk = {}, dv = {};
  Values lse = {};  ///< [sequences, heads, seq_len].
};

Rows random_rows(const Shape& shape, std::int64_t sequences, std::int64_t seq_len) {
  const std::int64_t tokens = sequences * seq_len;
  Rows rows{.sequences = sequences, .seq_len = seq_len};
  rows.q = random_values(tokens * shape.query().outer_stride, 1, 2.0F);
  rows.k = random_values(tokens * shape.key().outer_stride, 2, 2.0F);
  rows.v = random_values(tokens * shape.value().outer_stride, 3);
  rows.dout = random_values(tokens * shape.out().outer_stride, 4);
  return rows;
}

void attend(const Shape& shape, Rows& r, int threads = 2) {
  r.out = untouched_values(static_cast<std::int64_t>(r.dout.size()));
  r.dq = untouched_values(static_cast<std::int64_t>(r.q.size()));
  r.dk = untouched_values(static_cast<std::int64_t>(r.k.size()));
  r.dv = untouched_values(static_cast<std::int64_t>(r.v.size()));
  r.lse = untouched_values(r.sequences * shape.heads * r.seq_len);
  Values delta = zeros(static_cast<std::int64_t>(r.lse.size()));
  const std::int32_t* positions = r.positions.empty() ? nullptr : r.positions.data();
  run(
      [&](Stream& stream) {
        r.kernels->attention_forward(stream, {.q = r.q.data(),
                                              .k = r.k.data(),
                                              .v = r.v.data(),
                                              .out = r.out.data(),
                                              .lse = r.lse.data(),
                                              .positions = positions,
                                              .sequences = r.sequences,
                                              .seq_len = r.seq_len,
                                              .heads = shape.heads,
                                              .head_dim = shape.head_dim,
                                              .value_dim = shape.value_dim,
                                              .kv_heads = shape.kv_heads,
                                              .window = shape.window,
                                              .softcap = shape.softcap,
                                              .q_layout = shape.query(),
                                              .k_layout = shape.key(),
                                              .v_layout = shape.value(),
                                              .out_layout = shape.out(),
                                              .scale = 0.4F});
        r.kernels->attention_backward(stream, {.q = r.q.data(),
                                               .k = r.k.data(),
                                               .v = r.v.data(),
                                               .out = r.out.data(),
                                               .dout = r.dout.data(),
                                               .lse = r.lse.data(),
                                               .positions = positions,
                                               .delta = delta.data(),
                                               .dq = r.dq.data(),
                                               .dk = r.dk.data(),
                                               .dv = r.dv.data(),
                                               .sequences = r.sequences,
                                               .seq_len = r.seq_len,
                                               .heads = shape.heads,
                                               .head_dim = shape.head_dim,
                                               .value_dim = shape.value_dim,
                                               .kv_heads = shape.kv_heads,
                                               .window = shape.window,
                                               .softcap = shape.softcap,
                                               .q_layout = shape.query(),
                                               .k_layout = shape.key(),
                                               .v_layout = shape.value(),
                                               .out_layout = shape.out(),
                                               .dout_layout = shape.out(),
                                               .dq_layout = shape.query(),
                                               .dk_layout = shape.key(),
                                               .dv_layout = shape.value(),
                                               .scale = 0.4F});
      },
      threads);
}

Values slice(const Values& values, std::int64_t first_row, std::int64_t rows, std::int64_t width) {
  return {values.begin() + first_row * width, values.begin() + (first_row + rows) * width};
}

/// A document's rows, and the log of its row sums, cut out of what it is packed into.
Rows document_of(const Shape& shape, const Rows& r, std::int64_t first, std::int64_t length) {
  const auto cut = [&](const Values& values, const RowLayout& layout) {
    return values.empty() ? Values() : slice(values, first, length, layout.outer_stride);
  };
  Rows part{.kernels = r.kernels, .sequences = 1, .seq_len = length};
  part.q = cut(r.q, shape.query());
  part.k = cut(r.k, shape.key());
  part.v = cut(r.v, shape.value());
  part.dout = cut(r.dout, shape.out());
  part.out = cut(r.out, shape.out());
  part.dq = cut(r.dq, shape.query());
  part.dk = cut(r.dk, shape.key());
  part.dv = cut(r.dv, shape.value());
  const std::int64_t sequence = first / r.seq_len;
  for (std::int64_t head = 0; head < shape.heads && !r.lse.empty(); ++head) {
    const Values row = slice(r.lse, (sequence * shape.heads + head) * r.seq_len, r.seq_len, 1);
    const Values own = slice(row, first % r.seq_len, length, 1);
    part.lse.insert(part.lse.end(), own.begin(), own.end());
  }
  return part;
}

constexpr Shape shapes[] = {
    {2, 2, 16, 16}, {4, 2, 24, 24, 9}, {3, 1, 8, 8, 0, 3.0F}, {4, 4, 24, 16}, {2, 1, 16, 40, 70},
};

// Starts and lengths in two sequences of 240 tokens: longer and shorter than a block of queries,
// one token, and starts at no multiple of a vector.
constexpr std::int64_t seq_len = 240;
constexpr std::int64_t starts[] = {0, 5, 6, 139, 240, 441};
constexpr std::int64_t lengths[] = {5, 1, 133, 101, 201, 39};

TEST_CASE("attention: a document yields the same bits whatever it is packed with and wherever",
          "[kernels][attention]") {
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  for (const Shape& shape : shapes) {
    Rows packed = random_rows(shape, 2, seq_len);
    packed.kernels = kernels;
    packed.positions.resize(2 * seq_len);
    for (std::size_t d = 0; d < std::size(starts); ++d) {
      for (std::int64_t t = 0; t < lengths[d]; ++t) {
        packed.positions[at(starts[d] + t)] = static_cast<std::int32_t>(t);
      }
    }
    attend(shape, packed);
    for (std::size_t d = 0; d < std::size(starts); ++d) {
      const Rows found = document_of(shape, packed, starts[d], lengths[d]);
      Rows alone = found;
      alone.positions.clear();
      attend(shape, alone);
      CAPTURE(kernels->kernel_set(), shape.name(), starts[d], lengths[d]);
      REQUIRE(found.out == alone.out);
      REQUIRE(found.lse == alone.lse);
      REQUIRE(found.dq == alone.dq);
      REQUIRE(found.dk == alone.dk);
      REQUIRE(found.dv == alone.dv);
    }
  }
}

TEST_CASE("attention: with documents the bits do not depend on the threads",
          "[kernels][attention]") {
  const Shape& shape = shapes[1];
  Rows rows = random_rows(shape, 1, seq_len);
  rows.kernels = GENERATE(from_range(cpu_kernel_sets()));
  for (std::int64_t t = 0; t < seq_len; ++t) {
    rows.positions.push_back(static_cast<std::int32_t>(t % 77));
  }
  require_same_bits(
      [&](int threads) {
        attend(shape, rows, threads);
        return joined({rows.out, rows.lse, rows.dq, rows.dk, rows.dv});
      },
      shape.name());
}

TEST_CASE("attention: values of another width are those with columns of zeros beside them",
          "[kernels][attention]") {
  const Shape narrow{3, 1, 24, 16};
  const Shape wide{3, 1, 24, 24};
  Rows rows = random_rows(narrow, 2, 90);
  Rows padded = random_rows(wide, 2, 90);
  rows.kernels = padded.kernels = GENERATE(from_range(cpu_kernel_sets()));
  const auto pad = [](const Values& from, Values& to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = i % 24 < 16 ? from[i / 24 * 16 + i % 24] : 0.0F;
    }
  };
  pad(rows.v, padded.v);
  pad(rows.dout, padded.dout);
  attend(narrow, rows);
  attend(wide, padded);
  Values out(padded.out.size());
  pad(rows.out, out);
  REQUIRE(out == padded.out);
  REQUIRE(rows.dq == padded.dq);
  REQUIRE(rows.dk == padded.dk);
  Values dv(padded.dv.size());
  pad(rows.dv, dv);
  for (std::size_t i = 0; i < dv.size(); ++i) {
    REQUIRE((i % 24 >= 16 || dv[i] == padded.dv[i]));
  }
}

TEST_CASE("attention: positions that are no documents' are refused", "[kernels][attention]") {
  const Shape& shape = shapes[0];
  const std::vector<std::vector<std::int32_t>> wrong = {
      {1, 2, 3}, {0, 1, 3}, {0, 0, 2}, {0, -1, 0}};
  for (const auto& positions : wrong) {
    Rows rows = random_rows(shape, 1, 3);
    rows.positions = positions;
    REQUIRE_THROWS_AS(attend(shape, rows), CheckFailed);
  }
}

}  // namespace
}  // namespace train::kernels::testing::attention_documents_test
