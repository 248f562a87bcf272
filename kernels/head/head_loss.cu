#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/head/head_loss_products.hpp"
#include "kernels/head/head_loss_row.cuh"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int terms_per_row = 4;  // Cross-entropy, lse^2, correct, has a target.
constexpr int most_threads = 1024;
constexpr int most_warps = most_threads / warp_size;

/// Folds what the threads of a block have seen; all threads get the result. The largest logit
/// first, the first of equals, then the sums at its shift.
__device__ SeenLogits fold_seen(SeenLogits seen) {
  __shared__ float largest[most_warps];
  __shared__ std::int32_t index[most_warps];
  __shared__ double sums[most_warps];
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const bool a_warp = lane < static_cast<int>(blockDim.x) / warp_size;
  const auto fold_largest = [](float& value, std::int32_t& at) {
    const float most = warp_max(value);
    at = warp_min(value == most ? at : INT32_MAX);
    value = most;
  };
  float value = seen.largest;
  std::int32_t at = seen.index;
  fold_largest(value, at);
  if (lane == 0) {
    largest[warp] = value;
    index[warp] = at;
  }
  __syncthreads();
  value = a_warp ? largest[lane] : -INFINITY;
  at = a_warp ? index[lane] : INT32_MAX;
  fold_largest(value, at);
  seen.rise_to(shift_of(value));
  const double of_warp = warp_sum(seen.sum);
  if (lane == 0) {
    sums[warp] = of_warp;
  }
  __syncthreads();
  seen.largest = value;
  seen.index = at;
  seen.sum = warp_sum(a_warp ? sums[lane] : 0.0);
  return seen;
}

constexpr double ln_2 = 0.6931471805599453;

/// log(sum of exp(logit)) of all that was seen; NaN if no logit is above -Inf.
__device__ double log_sum_exp(const SeenLogits& seen) {
  const auto largest = static_cast<double>(seen.largest);
  // The shift is not quite that of the largest one.
  const double rest = static_cast<double>(seen.shift) - largest * static_cast<double>(log2_e);
  return seen.largest == -INFINITY ? NAN : largest + (log(seen.sum) + ln_2 * rest);
}

/// The same in fp32: all threads need it for the gradients, which are not summed up.
__device__ float short_log_sum_exp(const SeenLogits& seen) {
  const float rest = fmaf(-seen.largest, log2_e, seen.shift);
  const float log_sum = logf(static_cast<float>(seen.sum));
  return seen.largest == -INFINITY ? NAN
                                   : seen.largest + fmaf(static_cast<float>(ln_2), rest, log_sum);
}

/// The terms of row `place`, of one thread alone. `chosen`: the target's logit, if it has one.
__device__ void write_terms(const HeadLossParams& p, std::int64_t place, const SeenLogits& seen,
                            bool has_target, float chosen) {
  const double lse = log_sum_exp(seen);
  double* terms = p.row_terms + place * terms_per_row;
  terms[0] = has_target ? lse - static_cast<double>(chosen) : 0.0;
  terms[1] = lse * lse;
  terms[2] = has_target && seen.index == p.targets[place] ? 1.0 : 0.0;
  terms[3] = has_target ? 1.0 : 0.0;
}

/// A unit of gradients where its logits were: 16 bytes at once of either type.
template <class T, bool aligned>
__device__ void store_unit(const LogitRow<aligned>& row, float* to, int unit, const float* values) {
  const int first = unit * unit_columns;
  if (aligned && row.whole(unit)) {
    if constexpr (sizeof(T) < sizeof(float)) {
      struct alignas(vector_bytes) Pairs {
        std::uint32_t pair[unit_columns / 2];
      } pairs;
#pragma unroll
      for (int c = 0; c < unit_columns; c += 2) {
        pairs.pair[c / 2] = pack_pair(values[c], values[c + 1]);
      }
      reinterpret_cast<Pairs*>(to)[unit] = pairs;
    } else {
      Several<float, unit_columns> all;
#pragma unroll
      for (int c = 0; c < unit_columns; ++c) {
        all.value[c] = values[c];
      }
      all.store(to, first);
    }
    return;
  }
#pragma unroll
  for (int c = 0; c < unit_columns; ++c) {
    if (first + c < row.vocab) {
      store<T>(to, first + c, values[c]);
    }
  }
}

/// What the gradients of a row are made of.
struct RowGradient {
  float factor, shift;
  int target;  ///< -1: none.
  float at_target;
};

/// The gradients take the place of the logits, as elements of T from the begin of their row.
/// Smaller ones lie where other threads' logits were: those of tile t where tile t / 2 was. So all
/// threads have to have read that far before tiles 0, 2, 4, 8 and so on are written, and need not
/// wait for each other more often.
template <class T, bool aligned>
__device__ void write_gradient(const LogitRow<aligned>& row, float* to, const RowGradient& g) {
  const int tiles = row.tiles();
  for (int tile = 0; tile < tiles; ++tile) {
    float values[tile_columns];
    row.template load<true>(tile, values);
    if (sizeof(T) < sizeof(float) && tile != 1 && (tile & (tile - 1)) == 0) {
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < tile_units; ++j) {
      const int unit = row.unit_of(tile, j);
      float* mine = values + j * unit_columns;
#pragma unroll
      for (int c = 0; c < unit_columns; ++c) {
        mine[c] = g.factor * exponential(mine[c], g.shift);
      }
      if (g.target >= 0 && unit == g.target / unit_columns) {
#pragma unroll
        for (int c = 0; c < unit_columns; ++c) {
          mine[c] -= c == g.target % unit_columns ? g.at_target : 0.0F;
        }
      }
      if (unit < row.units) {
        store_unit<T>(row, to, unit, mine);
      }
    }
  }
}

/// Loss terms of one row of logits, a block for each row; with `gradient` the logits become
///   softmax * ((target >= 0 ? loss_scale : 0) + 2 z_scale lse) - loss_scale * onehot(target)
/// The first pass goes from the last logit to the first, so that the second one finds what was read
/// last in the cache, and keeps `kept_units` in shared memory.
template <class T, bool aligned>
__global__ void __launch_bounds__(most_threads)
    loss_row_kernel(HeadLossParams p, std::int64_t first, int kept_units, DeviceFault* fault,
                    const char* name) {
  const std::int64_t place = first + blockIdx.x;
  float* logits = p.logits + static_cast<std::int64_t>(blockIdx.x) * p.vocab;
  const auto vocab = static_cast<int>(p.vocab);
  const int units = (vocab + unit_columns - 1) / unit_columns;
  const LogitRow<aligned> row{logits, vocab, units, units - kept_units, dynamic_shared<float>()};
  const std::int32_t target = p.targets[place];
  const bool known = target >= -1 && target < p.vocab;
  const bool has_target = known && target >= 0;
  // Read by the last thread, which has the least to do.
  const bool writes_terms = threadIdx.x == blockDim.x - 1;
  const float chosen = has_target && writes_terms ? logits[target] : 0.0F;
  SeenLogits seen;
  float next[tile_columns];
  row.template load<false>(row.tiles() - 1, next);
  for (int tile = row.tiles() - 1; tile >= 0; --tile) {
    float values[tile_columns];
#pragma unroll
    for (int i = 0; i < tile_columns; ++i) {
      values[i] = next[i];
    }
    if (tile > 0) {
      row.template load<false>(tile - 1, next);
    }
    row.keep(tile, values);
    seen.see(row, tile, values);
  }
  seen = fold_seen(seen);
  if (p.dx != nullptr) {
    const float lse = short_log_sum_exp(seen);
    const float scale = (has_target ? p.loss_scale : 0.0F) + 2.0F * p.z_scale * lse;
    write_gradient<T>(row, logits,
                      {.factor = scale / static_cast<float>(seen.sum),
                       .shift = seen.shift,
                       .target = has_target ? target : -1,
                       .at_target = p.loss_scale});
  }
  if (writes_terms) {
    write_terms(p, place, seen, has_target, chosen);
    if (!known) {
      p.row_terms[place * terms_per_row] = NAN;  // Before the host has read of it.
      report_fault(fault, name, target, place, p.vocab);
    }
  }
}

/// The rows' terms in one order: thread t has every blockDim.x-th row, then a tree.
__global__ void __launch_bounds__(most_threads) loss_sums_kernel(HeadLossParams p) {
  constexpr int at_once = 4;  // Rows on their way.
  __shared__ double shared[most_threads];
  const auto threads = static_cast<int>(blockDim.x);
  double sums[terms_per_row] = {};
  for (std::int64_t begin = threadIdx.x; begin < p.rows; begin += at_once * threads) {
    double read[at_once][terms_per_row];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t row = begin + i * threads;
#pragma unroll
      for (int term = 0; term < terms_per_row; ++term) {
        read[i][term] = row < p.rows ? p.row_terms[row * terms_per_row + term] : 0.0;
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int term = 0; term < terms_per_row; ++term) {
        sums[term] += read[i][term];
      }
    }
  }
  double result[terms_per_row];
#pragma unroll
  for (int term = 0; term < terms_per_row; ++term) {
    shared[threadIdx.x] = sums[term];
    fold_block(shared, threads, Add());
    result[term] = shared[0];
    __syncthreads();  // All have read it.
  }
  if (threadIdx.x == 0) {
    p.sums->cross_entropy = result[0];
    p.sums->z_squared = result[1];
    p.sums->correct = result[2];
    p.sums->targets = result[3];
  }
}

/// Threads of a row's block, from the number of columns alone: a tile or more for each.
int row_threads(std::int64_t vocab) {
  return vocab >= most_threads * tile_columns ? most_threads
         : vocab >= 256 * tile_columns        ? 256
                                              : 64;
}

/// Units at the end of a row that have room in a block's shared memory. Static memory, and that
/// the rest begins at a multiple of 1024 bytes, take up to 1024.
int kept_units_of(const HeadLossParams& p) {
  constexpr std::int64_t unit_bytes = unit_columns * sizeof(float);
  const std::int64_t room = (most_shared_bytes() - 1024) / unit_bytes;
  return p.dx == nullptr ? 0 : static_cast<int>(std::min(room, divide_up(p.vocab, unit_columns)));
}

template <class T, bool aligned>
void launch_rows(CudaStream& stream, const HeadLossParams& p, std::int64_t first,
                 std::int64_t rows) {
  const int kept = kept_units_of(p);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(rows)),
                  .threads = dim3(static_cast<unsigned>(row_threads(p.vocab))),
                  .shared_bytes = static_cast<std::size_t>(kept) * unit_columns * sizeof(float)};
  allow_shared_bytes(loss_row_kernel<T, aligned>, grid.shared_bytes);
  launch(stream, loss_row_kernel<T, aligned>, grid, p, first, kept, stream.fault(), "head_loss");
}

void launch_chunk(CudaStream& stream, const HeadLossParams& p, std::int64_t first,
                  std::int64_t rows) {
  const HeadLossProducts products{p, first, rows};
  const bool gradient = p.dx != nullptr;
  matmul(stream, head_product(p, first, rows));
  // Whether each of the rows begins where 16 bytes can be read.
  const bool aligned = aligned_to_vectors(p.logits) && p.vocab * sizeof(float) % vector_bytes == 0;
  for_element_type(p.dtype, [&]<class T>() {
    if (aligned) {
      launch_rows<T, true>(stream, p, first, rows);
    } else {
      launch_rows<T, false>(stream, p, first, rows);
    }
  });
  if (gradient) {
    matmul(stream, products.input_gradient());
    matmul(stream, products.weight_gradient());
  }
}

}  // namespace

void head_loss(CudaStream& stream, const HeadLossParams& p) {
  if (p.softcap != 0.0F) {
    throw DeviceError("the head on CUDA has no cap");
  }
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    launch_chunk(stream, p, first, std::min(p.chunk_rows, p.rows - first));
  }
  if (p.dx != nullptr && p.rows == 0) {
    TRAIN_CUDA_CHECK(cudaMemsetAsync(
        p.dweight, 0, static_cast<std::size_t>(p.vocab * p.cols) * sizeof(float), stream.native()));
  }
  const unsigned threads = p.rows >= 8 * most_threads ? most_threads : block_threads;
  launch(stream, loss_sums_kernel, {.blocks = dim3(1), .threads = dim3(threads)}, p);
}

}  // namespace train::kernels::cuda
