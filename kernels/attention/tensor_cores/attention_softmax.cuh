#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention/attention_heads.cuh"
#include "kernels/attention/tensor_cores/attention_mma.cuh"

// Online softmax of a forward pass on tensor cores, over tiles of keys.
namespace train::kernels::cuda {

/// Running maxima and sums of a lane's rows: group and group + 8 of each 16. Until finish() a sum
/// covers only the lane's own columns. `limited`: a tile may hold no key that a row sees.
template <class Shape, bool limited>
struct RunningSoftmax {
  float largest[Shape::blocks][2];
  float sum[Shape::blocks][2];

  __device__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = -INFINITY;
        sum[m][half] = 0.0F;
      }
    }
  }

  /// Replaces a tile's scores by exp(scale (score - maximum)) and rescales the outputs to new
  /// maxima.
  __device__ void take(Sums<Shape::blocks, Shape::others>& scores,
                       Sums<Shape::blocks, Shape::dim>& out, float scale_log2) {
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        follow(out[m], half, exponentials(scores[m], m, half, scale_log2));
      }
    }
  }

  /// Replaces the scores of one of the lane's rows by exponentials. Returns the factor for its
  /// outputs so far.
  __device__ float exponentials(float (&scores)[Shape::others / 8][4], int m, int half,
                                float scale_log2) {
    float above = largest[m][half];
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
      above = fmaxf(above, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
    }
    above = warp_max<4>(above);
    float shift = above * scale_log2;
    if constexpr (limited) {
      shift = above == -INFINITY ? 0.0F : shift;  // No key seen yet; avoids infinity minus
                                                  // infinity.
    }
    const float keep = power_of_two(fmaf(largest[m][half], scale_log2, -shift));
    largest[m][half] = above;
    float added = 0.0F;
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        scores[n][i] = power_of_two(fmaf(scores[n][i], scale_log2, -shift));
        added += scores[n][i];
      }
    }
    sum[m][half] = fmaf(sum[m][half], keep, added);
    return keep;
  }

  /// Maxima seldom change once a row has seen many keys: then the rescaling is skipped.
  __device__ static void follow(float (&out)[Shape::dim / 8][4], int half, float keep) {
    if (__ballot_sync(kAllLanes, keep != 1.0F) != 0) {
      scale_row(out, half, keep);
    }
  }

  __device__ static void scale_row(float (&out)[Shape::dim / 8][4], int half, float factor) {
#pragma unroll
    for (int n = 0; n < Shape::dim / 8; ++n) {
      out[n][half * 2] *= factor;
      out[n][half * 2 + 1] *= factor;
    }
  }

  /// Divides the outputs by the sums, which include the head's sink, if any, and writes log-sums of
  /// rows from `first` on.
  __device__ void finish(Sums<Shape::blocks, Shape::dim>& out, float* lse, int first, int seq_len,
                         float scale, const float* sink) {
    const Lane lane;
#pragma unroll
    for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = warp_sum<4>(sum[m][half]);
        float above = largest[m][half] * scale;
        const float keep = sink == nullptr ? 1.0F : take_sink(*sink, &above, &total);
        const int row = first + m * 16 + half * 8 + lane.group;
        if (lane.pair == 0 && row >= 0 && row < seq_len) {
          lse[row] =
              sink == nullptr ? fmaf(largest[m][half], scale, logf(total)) : above + logf(total);
        }
        scale_row(out[m], half, keep / total);
      }
    }
  }
};

/// Sets scores to -infinity where the key comes after the query, or before first_key(m, half), the
/// first key that the query sees.
template <class Shape, class FirstKey>
__device__ void mask_scores(Sums<Shape::blocks, Shape::others>& scores, int first_query, int tile,
                            const FirstKey& first_key) {
  const Lane lane;
#pragma unroll
  for (int m = 0; m < Shape::blocks; ++m) {
#pragma unroll
    for (int n = 0; n < Shape::others / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = first_query + m * 16 + i / 2 * 8 + lane.group;
        const int key = tile + n * 8 + lane.pair + i % 2;
        const bool seen = key <= query && key >= first_key(m, i / 2);
        scores[m][n][i] = seen ? scores[m][n][i] : -INFINITY;
      }
    }
  }
}

}  // namespace train::kernels::cuda
