#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"
#include "kernels/state_space/documents.cuh"
#include "kernels/state_space/gates.cuh"
#include "kernels/state_space/head_scan.hpp"

// A plain form: a block has a head, a thread some states of all its channels,
// in the CPU's order of rows and channels. Nothing of it has run on a device.
namespace train::kernels::cuda {
namespace {

constexpr int kHeadThreads = 64;

/// One head's inputs.
template <class T>
struct ScanHead {
  const HeadScanInputs& in;
  std::int64_t head;

  __device__ std::int64_t group_place(std::int64_t row) const {
    return row * in.x_stride + head / (in.heads / in.groups) * in.states;
  }
  __device__ float x(std::int64_t row, std::int64_t p) const {
    return load<T>(in.x, row * in.x_stride + head * in.width + p);
  }
  __device__ float b(std::int64_t row, std::int64_t n) const {
    return load<T>(in.b, group_place(row) + n);
  }
  __device__ float c(std::int64_t row, std::int64_t n) const {
    return load<T>(in.c, group_place(row) + n);
  }
  __device__ float raw(std::int64_t row) const {
    return load<T>(in.delta, row * in.delta_stride + head) + in.delta_bias[head];
  }
  __device__ float limited(float step) const {
    const float above = step < in.least_step ? in.least_step : step;
    return above > in.most_step ? in.most_step : above;
  }
  __device__ float step(std::int64_t row) const { return limited(softplus_of(raw(row))); }
  __device__ float rate() const { return -expf(in.a_log[head]); }
};

/// Sum of products of each channel, [width] in shared memory: `parts` are
/// [states, width].
__device__ inline void sum_states(const float* parts, std::int64_t states, std::int64_t width,
                                  float* sums) {
  for (std::int64_t p = threadIdx.x; p < width; p += kHeadThreads) {
    float sum = 0.0F;
    for (std::int64_t n = 0; n < states; ++n) {
      sum += parts[n * width + p];
    }
    sums[p] = sum;
  }
}

/// `scratch`: states and products of each block, [states, width] each.
template <class T>
__global__ void __launch_bounds__(kHeadThreads)
    head_scan_forward_kernel(HeadScanForwardParams p, float* scratch) {
  auto* sums = dynamic_shared<float>();
  const HeadScanInputs& in = p.in;
  const ScanHead<T> at{in, blockIdx.x};
  const std::int64_t size = in.width * in.states;
  float* s = scratch + (std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * 2 * size;
  float* parts = s + size;
  const float rate = at.rate();
  const std::int64_t first = std::int64_t{blockIdx.y} * in.rows.seq_len;
  std::int64_t begin = first;
  for (std::int64_t row = first; row < first + in.rows.seq_len; ++row) {
    const std::int64_t position = position_of(in.rows, row);
    float* text = p.states.data == nullptr
                      ? nullptr
                      : static_cast<float*>(p.states.data) +
                            (std::int64_t{p.states.texts[row]} * in.heads + at.head) * size;
    const bool begins = position == 0 || p.states.extend;
    begin = begins ? row : begin;
    const bool keeps = p.kept != nullptr && row > begin && (row - begin) % kHeadChunk == 0;
    float* kept = p.kept + row / kHeadChunk * in.state_size() + at.head * size;
    const float step = at.step(row);
    const float decay = expf(step * rate);
    for (std::int64_t n = threadIdx.x; n < in.states; n += kHeadThreads) {
      const float b = at.b(row, n);
      const float c = at.c(row, n);
      for (std::int64_t w = 0; w < in.width; ++w) {
        float& state = s[n * in.width + w];
        if (begins) {
          state = position == 0 ? 0.0F : text[w * in.states + n];
        }
        if (keeps) {
          kept[w * in.states + n] = state;
        }
        state = fmaf(decay, state, step * at.x(row, w) * b);
        parts[n * in.width + w] = c * state;
        if (text != nullptr) {
          text[w * in.states + n] = state;
        }
      }
    }
    __syncthreads();
    sum_states(parts, in.states, in.width, sums);
    for (std::int64_t w = threadIdx.x; w < in.width; w += kHeadThreads) {
      store<T>(p.y, row * p.y_stride + at.head * in.width + w,
               sums[w] + in.d[at.head] * at.x(row, w));
    }
    __syncthreads();  // All have read the products.
  }
}

/// Global scratch of one block, states of [states, width].
struct HeadScratch {
  static constexpr std::int64_t kPieces = kHeadChunk / kHeadPiece;
  float *begins, *rows, *carry, *parts;
  std::int64_t size;

  __host__ __device__ static std::int64_t floats(std::int64_t size) {
    return (kPieces + kHeadPiece + 3) * size;
  }
  __device__ HeadScratch(float* scratch, std::int64_t state)
      : begins(scratch),
        rows(begins + kPieces * state),
        carry(rows + (kHeadPiece + 1) * state),
        parts(carry + state),
        size(state) {}
};

/// The states behind `row` from those before it, which may be in the same
/// place.
template <class T>
__device__ void walk_row(const ScanHead<T>& at, std::int64_t row, float rate, const float* before,
                         float* after) {
  const float step = at.step(row);
  const float decay = expf(step * rate);
  for (std::int64_t n = threadIdx.x; n < at.in.states; n += kHeadThreads) {
    const float b = at.b(row, n);
    for (std::int64_t w = 0; w < at.in.width; ++w) {
      const std::int64_t place = n * at.in.width + w;
      after[place] = fmaf(decay, before[place], step * at.x(row, w) * b);
    }
  }
}

/// Sums over the rows of a document, and of all; thread 0 has them.
struct HeadSums {
  float a_log = 0.0F, d = 0.0F, bias = 0.0F;
};

template <class T>
__device__ void row_back(const HeadScanBackwardParams& p, const ScanHead<T>& at,
                         const HeadScratch& s, std::int64_t row, float rate, const float* before,
                         float* shared, HeadSums& sums) {
  const HeadScanInputs& in = p.in;
  const float* after = before + s.size;
  float* of_x = shared;                 // [width].
  float* of_decay = shared + in.width;  // [states].
  const float raw = at.raw(row);
  const float step = at.step(row);
  const float decay = expf(step * rate);
  float* parts = p.partial + (at.head * in.rows.count() + row) * 2 * in.states;
  const std::int64_t place_of_y = row * p.y_stride + at.head * in.width;
  for (std::int64_t n = threadIdx.x; n < in.states; n += kHeadThreads) {
    const float b = at.b(row, n);
    const float c = at.c(row, n);
    float db = 0.0F;
    float dc = 0.0F;
    float decayed = 0.0F;
    for (std::int64_t w = 0; w < in.width; ++w) {
      const std::int64_t place = n * in.width + w;
      const float dy = load<T>(p.dy, place_of_y + w);
      const float adjoint = fmaf(c, dy, s.carry[place]);
      dc = fmaf(dy, after[place], dc);
      db = fmaf(adjoint, step * at.x(row, w), db);
      decayed = fmaf(adjoint, before[place], decayed);
      s.parts[place] = adjoint * b;
      s.carry[place] = decay * adjoint;
    }
    parts[n] = db;
    parts[in.states + n] = dc;
    of_decay[n] = decayed;
  }
  __syncthreads();
  sum_states(s.parts, in.states, in.width, of_x);
  __syncthreads();
  for (std::int64_t w = threadIdx.x; w < in.width; w += kHeadThreads) {
    store<T>(p.dx, row * p.dx_stride + at.head * in.width + w,
             step * of_x[w] + in.d[at.head] * load<T>(p.dy, place_of_y + w));
  }
  if (threadIdx.x == 0) {
    float dstep = 0.0F;
    for (std::int64_t w = 0; w < in.width; ++w) {
      dstep += at.x(row, w) * of_x[w];
      sums.d += load<T>(p.dy, place_of_y + w) * at.x(row, w);
    }
    float decayed = 0.0F;
    for (std::int64_t n = 0; n < in.states; ++n) {
      decayed += of_decay[n];
    }
    decayed *= decay;
    const float plain = softplus_of(raw);
    const float slope = plain < in.least_step || plain > in.most_step ? 0.0F : sigmoid_of(raw);
    const float ddelta = (dstep + rate * decayed) * slope;
    sums.a_log += step * decayed;
    sums.bias += ddelta;
    store<T>(p.ddelta, row * in.delta_stride + at.head, ddelta);
  }
  __syncthreads();  // All have read what the next row overwrites.
}

/// Rows [begin, end) of a document, one chunk at most.
template <class T>
__device__ void chunk_back(const HeadScanBackwardParams& p, const ScanHead<T>& at,
                           const HeadScratch& s, std::int64_t begin, std::int64_t end, bool first,
                           float* shared, HeadSums& sums) {
  const HeadScanInputs& in = p.in;
  const float rate = at.rate();
  const float* kept = p.kept + begin / kHeadChunk * in.state_size() + at.head * s.size;
  for (std::int64_t n = threadIdx.x; n < in.states; n += kHeadThreads) {
    for (std::int64_t w = 0; w < in.width; ++w) {
      s.begins[n * in.width + w] = first ? 0.0F : kept[w * in.states + n];
    }
  }
  const std::int64_t pieces = divide_up(end - begin, kHeadPiece);
  for (std::int64_t piece = 0; piece + 1 < pieces; ++piece) {
    const std::int64_t from = begin + piece * kHeadPiece;
    float* next = s.begins + (piece + 1) * s.size;
    for (std::int64_t row = from; row < from + kHeadPiece; ++row) {
      walk_row<T>(at, row, rate, row == from ? s.begins + piece * s.size : next, next);
    }
  }
  for (std::int64_t piece = pieces - 1; piece >= 0; --piece) {
    const std::int64_t from = begin + piece * kHeadPiece;
    const std::int64_t to = min(from + kHeadPiece, end);
    for (std::int64_t row = from; row < to; ++row) {
      float* after = s.rows + (row - from + 1) * s.size;
      if (row == from) {  // A thread copies what it alone reads.
        for (std::int64_t n = threadIdx.x; n < in.states; n += kHeadThreads) {
          for (std::int64_t w = 0; w < in.width; ++w) {
            s.rows[n * in.width + w] = s.begins[piece * s.size + n * in.width + w];
          }
        }
      }
      walk_row<T>(at, row, rate, after - s.size, after);
    }
    for (std::int64_t row = to - 1; row >= from; --row) {
      row_back<T>(p, at, s, row, rate, s.rows + (row - from) * s.size, shared, sums);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kHeadThreads)
    head_scan_backward_kernel(HeadScanBackwardParams p, float* scratch) {
  auto* shared = dynamic_shared<float>();
  const ScanHead<T> at{p.in, blockIdx.x};
  const std::int64_t size = p.in.width * p.in.states;
  const HeadScratch s(scratch + blockIdx.x * HeadScratch::floats(size), size);
  HeadSums total;
  for (std::int64_t first = 0; first < p.in.rows.count();) {
    const std::int64_t last = document_end(p.in.rows, first);
    HeadSums sums;
    for (std::int64_t n = threadIdx.x; n < p.in.states; n += kHeadThreads) {
      for (std::int64_t w = 0; w < p.in.width; ++w) {
        s.carry[n * p.in.width + w] = 0.0F;
      }
    }
    for (std::int64_t chunk = divide_up(last - first, kHeadChunk) - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = first + chunk * kHeadChunk;
      chunk_back<T>(p, at, s, begin, min(begin + kHeadChunk, last), chunk == 0, shared, sums);
    }
    total.a_log += sums.a_log;
    total.d += sums.d;
    total.bias += sums.bias;
    first = last;
  }
  if (threadIdx.x != 0) {
    return;
  }
  if (p.da_log != nullptr) {
    p.da_log[at.head] = at.rate() * total.a_log;
  }
  if (p.dd != nullptr) {
    p.dd[at.head] = total.d;
  }
  if (p.ddelta_bias != nullptr) {
    p.ddelta_bias[at.head] = total.bias;
  }
}

/// Adds the heads of a group in order.
template <class T>
struct SumsOfHeads {
  HeadScanBackwardParams p;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t states = p.in.states;
    const std::int64_t heads = p.in.heads / p.in.groups;
    const std::int64_t n = i % (2 * states);
    const std::int64_t group = i / (2 * states) % p.in.groups;
    const std::int64_t row = i / (2 * states * p.in.groups);
    float sum = 0.0F;
    for (std::int64_t head = group * heads; head < (group + 1) * heads; ++head) {
      sum += p.partial[(head * p.in.rows.count() + row) * 2 * states + n];
    }
    const std::int64_t place = row * p.dx_stride + group * states;
    if (n < states) {
      store<T>(p.db, place + n, sum);
    } else {
      store<T>(p.dc, place + n - states, sum);
    }
  }
};

float* floats_of(CudaStream& stream, std::int64_t count) {
  return static_cast<float*>(stream.scratch(static_cast<std::size_t>(count) * sizeof(float)));
}

}  // namespace

void head_scan_forward(CudaStream& stream, const HeadScanForwardParams& p) {
  auto* scratch = floats_of(stream, 2 * p.in.rows.sequences * p.in.state_size());
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, head_scan_forward_kernel<T>,
           {.blocks =
                dim3(static_cast<unsigned>(p.in.heads), static_cast<unsigned>(p.in.rows.sequences)),
            .threads = dim3(kHeadThreads),
            .shared_bytes = static_cast<std::size_t>(p.in.width) * sizeof(float)},
           p, scratch);
  });
}

void head_scan_backward(CudaStream& stream, const HeadScanBackwardParams& p) {
  const std::int64_t size = p.in.width * p.in.states;
  auto* scratch = floats_of(stream, p.in.heads * HeadScratch::floats(size));
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, head_scan_backward_kernel<T>,
           {.blocks = dim3(static_cast<unsigned>(p.in.heads)),
            .threads = dim3(kHeadThreads),
            .shared_bytes = static_cast<std::size_t>(p.in.width + p.in.states) * sizeof(float)},
           p, scratch);
    launch_each(stream, p.in.rows.count() * p.in.groups * 2 * p.in.states, SumsOfHeads<T>{p});
  });
}

}  // namespace train::kernels::cuda
