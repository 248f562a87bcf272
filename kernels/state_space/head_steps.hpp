#pragma once

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"
#include "kernels/state_space/head_scan.hpp"

namespace train::kernels::cpu {

/// Steps and decays of all rows and heads, [rows, heads] each.
struct HeadSteps {
  const float *steps, *decays;
};

/// Computes them in `scratch`.
HeadSteps head_steps(const HeadScanInputs& in, int threads, Scratch& scratch);

/// Sums of one head over rows.
struct HeadSums {
  float a_log = 0.0F, d = 0.0F, bias = 0.0F;

  void operator+=(const HeadSums& other) {
    a_log += other.a_log;
    d += other.d;
    bias += other.bias;
  }
};

/// Sums that a head's walk back keeps from one chunk to the next.
struct HeadWalk {
  /// The adjoint of the states behind, [channels, padded states], and transposed; a document's end
  /// writes them.
  float *carry = nullptr, *carry_t = nullptr;
  HeadSums of_document, of_all;
};

/// Inputs that all heads of a backward call share.
struct HeadBackward {
  HeadSteps steps;
  const float* products;  ///< <c[i], b[j]> of the rows of each piece, [rows, groups, kHeadPiece].
  std::int64_t window;    ///< Rows in the sums over heads: [heads, window, 2, states].
};

/// Rows [begin, end) of a document, which all heads walk before the next ones: their sums over
/// heads are taken while they are in the cache. `place`: its first row's in those sums.
struct HeadChunkRows {
  DocumentRange document;
  std::int64_t begin = 0, end = 0, place = 0;
};

}  // namespace train::kernels::cpu
