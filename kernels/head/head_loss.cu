#include <algorithm>

#include "kernels/element.cuh"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/head_loss_products.hpp"
#include "kernels/head/row_losses.cuh"
#include "kernels/head/seen_logits.cuh"
#include "kernels/instructions.cuh"
#include "kernels/kernel_list.hpp"
#include "kernels/launch.cuh"
#include "kernels/reduce.cuh"

namespace train::kernels::cuda {
namespace {

constexpr int kTermsPerRow = 4;  // Cross-entropy, lse^2, correct, has a target.

/// Writes the terms of row `place`, which has a target; called by one thread. `chosen`: the
/// target's logit.
template <bool shaped>
__device__ void write_terms(const HeadLossParams& p, std::int64_t place, const SeenLogits& seen,
                            float chosen) {
  const double lse = log_sum_exp(seen);
  auto expected = static_cast<double>(chosen);
  if constexpr (shaped) {
    const auto smoothing = static_cast<double>(p.label_smoothing);
    const double mean = seen.total / static_cast<double>(p.vocab);
    expected = smoothing > 0.0 ? (1.0 - smoothing) * expected + smoothing * mean : expected;
  }
  double* terms = p.row_terms + place * kTermsPerRow;
  terms[0] = static_cast<double>(p.row_weight(place)) * (lse - expected);
  terms[1] = lse * lse;
  terms[2] = seen.index == p.targets[place] ? 1.0 : 0.0;
  terms[3] = 1.0;
}

/// Writes the terms of a row without a target, which counts nowhere. If the target is outside the
/// vocabulary the loss becomes NaN before the host learns of the fault.
__device__ void write_no_terms(double* terms, bool known) {
  for (int term = 0; term < kTermsPerRow; ++term) {
    terms[term] = 0.0;
  }
  if (!known) {
    terms[0] = NAN;
  }
}

/// Writes a unit of gradients in place of its logits: 16 bytes at once for either type.
template <class T, bool aligned, bool shaped>
__device__ void store_unit(const LogitRow<aligned, shaped>& row, float* to, int unit,
                           const float* values) {
  const int first = unit * kUnitColumns;
  if (aligned && row.whole(unit)) {
    if constexpr (sizeof(T) < sizeof(float)) {
      struct alignas(kVectorBytes) Pairs {
        std::uint32_t pair[kUnitColumns / 2];
      } pairs;
#pragma unroll
      for (int c = 0; c < kUnitColumns; c += 2) {
        pairs.pair[c / 2] = pack_pair(values[c], values[c + 1]);
      }
      reinterpret_cast<Pairs*>(to)[unit] = pairs;
    } else {
      Several<float, kUnitColumns> all;
#pragma unroll
      for (int c = 0; c < kUnitColumns; ++c) {
        all.value[c] = values[c];
      }
      all.store(to, first);
    }
    return;
  }
#pragma unroll
  for (int c = 0; c < kUnitColumns; ++c) {
    if (first + c < row.vocab) {
      store<T>(to, first + c, values[c]);
    }
  }
}

/// Factors of a row's gradients.
struct RowGradient {
  float factor, shift;
  int target;
  float at_target;
  float uniform;  ///< For shaped rows only.
};

/// Gradient of a shaped row's logit, written in its place.
__device__ float gradient_at(const LogitShape& shape, const RowGradient& g, int column,
                             float logit) {
  const float of_softmax = g.factor * exponential(logit, g.shift) - g.uniform;
  return shape.slope(logit) * (of_softmax - (column == g.target ? g.at_target : 0.0F));
}

/// Overwrites the logits by gradients, as elements of T from the row's begin. For smaller T the
/// gradients of tile t overwrite logits of tile t / 2, which belong to other threads. So all
/// threads must have read that far before tiles 0, 2, 4, 8 and so on are written; no other
/// synchronisation is needed.
template <class T, bool aligned, bool shaped>
__device__ void write_gradient(const LogitRow<aligned, shaped>& row, float* to,
                               const RowGradient& g) {
  const int tiles = row.tiles();
  for (int tile = 0; tile < tiles; ++tile) {
    float values[kTileColumns];
    row.template load<true>(tile, values);
    if (sizeof(T) < sizeof(float) && tile != 1 && (tile & (tile - 1)) == 0) {
      __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < kTileUnits; ++j) {
      const int unit = row.unit_of(tile, j);
      float* mine = values + j * kUnitColumns;
#pragma unroll
      for (int c = 0; c < kUnitColumns; ++c) {
        mine[c] = shaped ? gradient_at(row.shape, g, unit * kUnitColumns + c, mine[c])
                         : g.factor * exponential(mine[c], g.shift);
      }
      if (!shaped && unit == g.target / kUnitColumns) {
#pragma unroll
        for (int c = 0; c < kUnitColumns; ++c) {
          mine[c] -= c == g.target % kUnitColumns ? g.at_target : 0.0F;
        }
      }
      if (unit < row.units) {
        store_unit<T>(row, to, unit, mine);
      }
    }
  }
}

template <class T, bool aligned, bool shaped>
__device__ void write_no_gradient(const LogitRow<aligned, shaped>& row, float* to) {
  const float zeros[kUnitColumns] = {};
  for (int unit = static_cast<int>(threadIdx.x); unit < row.units;
       unit += static_cast<int>(blockDim.x)) {
    store_unit<T>(row, to, unit, zeros);
  }
}

/// Loss terms of rows of logits, one block per row; with `gradient` the logits become the gradients
/// of the loss (head_loss.hpp). The first pass runs from the last logit to the first, so that the
/// second finds the latest reads in the cache, and keeps `kept_units` in shared memory.
template <class T, bool aligned, bool shaped>
__global__ void __launch_bounds__(kMostThreads)
    loss_row_kernel(HeadLossParams p, std::int64_t first, int kept_units, DeviceFault* fault,
                    const char* name) {
  const std::int64_t place = first + blockIdx.x;
  float* logits = p.logits + static_cast<std::int64_t>(blockIdx.x) * p.vocab;
  const auto vocab = static_cast<int>(p.vocab);
  const int units = (vocab + kUnitColumns - 1) / kUnitColumns;
  const LogitRow<aligned, shaped> row{logits,
                                      vocab,
                                      units,
                                      units - kept_units,
                                      dynamic_shared<float>(),
                                      {p.logit_scale, p.softcap}};
  const std::int32_t target = p.targets[place];
  // This thread has the least work.
  const bool writes_terms = threadIdx.x == blockDim.x - 1;
  if (target < 0 || target >= p.vocab) {
    if (p.dx != nullptr) {
      write_no_gradient<T>(row, logits);
    }
    if (writes_terms) {
      write_no_terms(p.row_terms + place * kTermsPerRow, target == -1);
      if (target != -1) {
        report_fault(fault, name, target, place, p.vocab);
      }
    }
    return;
  }
  const float chosen = writes_terms ? row.at(target) : 0.0F;
  const SeenLogits seen = fold_seen<shaped>(see_row(row));
  if (p.dx != nullptr) {
    const float row_scale = p.loss_scale * p.row_weight(place);
    const float scale = row_scale + 2.0F * p.z_scale * short_log_sum_exp(seen);
    RowGradient gradient{.factor = scale / static_cast<float>(seen.sum),
                         .shift = seen.shift,
                         .target = target,
                         .at_target = row_scale,
                         .uniform = 0.0F};
    if constexpr (shaped) {
      const float onehot = row_scale * p.logit_scale;
      gradient.factor *= p.logit_scale;
      gradient.at_target = onehot * (1.0F - p.label_smoothing);
      gradient.uniform = onehot * p.label_smoothing / static_cast<float>(vocab);
    }
    write_gradient<T>(row, logits, gradient);
  }
  if (writes_terms) {
    write_terms<shaped>(p, place, seen, chosen);
  }
}

/// Threads for rows with another loss than cross-entropy, whose sums take more registers.
constexpr int kOtherThreads = kMostThreads / 2;

/// Loss terms of rows with such a loss.
template <class T, RowLoss loss>
__global__ void __launch_bounds__(kOtherThreads, 1)
    other_loss_row_kernel(HeadLossParams p, std::int64_t first, DeviceFault* fault,
                          const char* name) {
  const std::int64_t place = first + blockIdx.x;
  float* logits = p.logits + static_cast<std::int64_t>(blockIdx.x) * p.vocab;
  const std::int32_t target = p.targets[place];
  double* terms = p.row_terms + place * kTermsPerRow;
  const bool writes_terms = threadIdx.x == blockDim.x - 1;
  if (target < 0 || target >= p.vocab) {
    if (p.dx != nullptr) {
      write_no_gradient<T>(product_row(p, logits), logits);
    }
    if (writes_terms) {
      write_no_terms(terms, target == -1);
      if (target != -1) {
        report_fault(fault, name, target, place, p.vocab);
      }
    }
    return;
  }
  const SeenLogits seen = fold_seen<true>(see_row(product_row(p, logits)));
  const float scale = p.loss_scale * p.row_weight(place) * p.logit_scale;
  double of_row = 0.0;
  if constexpr (loss == RowLoss::divergence) {
    of_row = divergence_of_row<T>(
        p, logits, p.reference_logits + static_cast<std::int64_t>(blockIdx.x) * p.vocab, seen,
        scale);
  } else {
    of_row = top_entropy_of_row<T>(p, logits, seen, scale);
  }
  if (writes_terms) {
    const double lse = log_sum_exp(seen);
    terms[0] = static_cast<double>(p.row_weight(place)) * of_row;
    terms[1] = lse * lse;
    terms[2] = seen.index == target ? 1.0 : 0.0;
    terms[3] = 1.0;
  }
}

/// Adds the rows' terms in one order: thread t has every blockDim.x-th row, then a tree.
__global__ void __launch_bounds__(kMostThreads) loss_sums_kernel(HeadLossParams p) {
  constexpr int at_once = 3;  // Rows in flight.
  constexpr int sums_of_row = kTermsPerRow + 1;
  __shared__ double shared[kMostThreads];
  const auto threads = static_cast<int>(blockDim.x);
  double sums[sums_of_row] = {};
  for (std::int64_t begin = threadIdx.x; begin < p.rows; begin += at_once * threads) {
    double read[at_once][kTermsPerRow];
    float weight[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t row = begin + i * threads;
      weight[i] = row < p.rows ? p.row_weight(row) : 0.0F;
#pragma unroll
      for (int term = 0; term < kTermsPerRow; ++term) {
        read[i][term] = row < p.rows ? p.row_terms[row * kTermsPerRow + term] : 0.0;
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int term = 0; term < kTermsPerRow; ++term) {
        sums[term] += read[i][term];
      }
      sums[kTermsPerRow] += read[i][3] > 0.0 ? static_cast<double>(weight[i]) : 0.0;
    }
  }
  double result[sums_of_row];
#pragma unroll
  for (int term = 0; term < sums_of_row; ++term) {
    shared[threadIdx.x] = sums[term];
    fold_block(shared, threads, Add());
    result[term] = shared[0];
    __syncthreads();  // All threads have read it.
  }
  if (threadIdx.x == 0) {
    p.sums->cross_entropy = result[0];
    p.sums->z_squared = result[1];
    p.sums->correct = result[2];
    p.sums->targets = result[3];
    p.sums->weights = result[4];
  }
}

/// Units at a row's end that fit in a block's shared memory. Static memory, and the alignment of
/// the rest to 1024 bytes, take up to 1024.
int kept_units_of(const HeadLossParams& p) {
  constexpr std::int64_t unit_bytes = kUnitColumns * sizeof(float);
  const std::int64_t room = (most_shared_bytes() - 1024) / unit_bytes;
  return p.dx == nullptr ? 0 : static_cast<int>(std::min(room, divide_up(p.vocab, kUnitColumns)));
}

template <class T, bool aligned, bool shaped>
void launch_rows(CudaStream& stream, const HeadLossParams& p, std::int64_t first,
                 std::int64_t rows) {
  const int kept = kept_units_of(p);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(rows)),
                  .threads = dim3(static_cast<unsigned>(row_threads(p.vocab))),
                  .shared_bytes = static_cast<std::size_t>(kept) * kUnitColumns * sizeof(float)};
  allow_shared_bytes(loss_row_kernel<T, aligned, shaped>, grid.shared_bytes);
  launch(stream, loss_row_kernel<T, aligned, shaped>, grid, p, first, kept, stream.fault(),
         "head_loss");
}

void launch_chunk(CudaStream& stream, const HeadLossParams& p, std::int64_t first,
                  std::int64_t rows) {
  const HeadLossProducts products{p, first, rows};
  const bool gradient = p.dx != nullptr;
  matmul(stream, head_product(p, first, rows));
  if (p.row_loss == RowLoss::divergence) {
    matmul(stream, products.reference());
  }
  // True if each row begins at a multiple of 16 bytes.
  const bool aligned = aligned_to_vectors(p.logits) && p.vocab * sizeof(float) % kVectorBytes == 0;
  const bool shaped = p.logit_scale != 1.0F || p.softcap != 0.0F || p.label_smoothing != 0.0F;
  for_element_type(p.dtype, [&]<class T>() {
    if (p.row_loss != RowLoss::cross_entropy) {
      const auto kernel = p.row_loss == RowLoss::divergence
                              ? other_loss_row_kernel<T, RowLoss::divergence>
                              : other_loss_row_kernel<T, RowLoss::top_entropy>;
      return launch(
          stream, kernel,
          {.blocks = dim3(static_cast<unsigned>(rows)),
           .threads = dim3(static_cast<unsigned>(std::min(kOtherThreads, row_threads(p.vocab))))},
          p, first, stream.fault(), "head_loss");
    }
    const auto launch_those =
        aligned  ? shaped ? launch_rows<T, true, true> : launch_rows<T, true, false>
         : shaped ? launch_rows<T, false, true>
                 : launch_rows<T, false, false>;
    launch_those(stream, p, first, rows);
  });
  if (gradient) {
    matmul(stream, products.input_gradient());
  }
  if (p.dweight != nullptr) {
    matmul(stream, products.weight_gradient());
  }
}

}  // namespace

void head_loss(CudaStream& stream, const HeadLossParams& p) {
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    launch_chunk(stream, p, first, std::min(p.chunk_rows, p.rows - first));
  }
  if (p.dweight != nullptr && p.rows == 0) {
    TRAIN_CUDA_CHECK(cudaMemsetAsync(
        p.dweight, 0, static_cast<std::size_t>(p.vocab * p.cols) * sizeof(float), stream.native()));
  }
  const unsigned threads = p.rows >= 8 * kMostThreads ? kMostThreads : kBlockThreads;
  launch(stream, loss_sums_kernel, {.blocks = dim3(1), .threads = dim3(threads)}, p);
}

}  // namespace train::kernels::cuda
