#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/launch.cuh"
#include "kernels/state_space/documents.cuh"
#include "kernels/state_space/gates.cuh"
#include "kernels/state_space/selective_scan.hpp"

// A plain form: a thread has a channel, a block those whose sums are taken together, in the CPU's
// order of rows and states. Nothing of it has run on a device.
namespace train::kernels::cuda {
namespace {

constexpr int kThreads = static_cast<int>(kScanChannels);

/// One channel's inputs.
template <class T>
struct ScanChannel {
  const ScanInputs& in;
  std::int64_t channel;

  __device__ float u(std::int64_t row) const { return load<T>(in.u, row * in.u_stride + channel); }
  __device__ float z(std::int64_t row) const { return load<T>(in.z, row * in.z_stride + channel); }
  __device__ float raw(std::int64_t row) const {
    return load<T>(in.delta, row * in.delta_stride + channel) + in.delta_bias[channel];
  }
  __device__ float b(std::int64_t row, std::int64_t n) const {
    return load<T>(in.b, row * in.b_stride + n);
  }
  __device__ float c(std::int64_t row, std::int64_t n) const {
    return load<T>(in.c, row * in.b_stride + n);
  }
  __device__ float rate(std::int64_t n) const { return -expf(in.a_log[channel * in.states + n]); }
};

/// A block has kScanChannels channels of a sequence.
template <class T>
__global__ void __launch_bounds__(kThreads) scan_forward_kernel(SelectiveScanForwardParams p) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= p.in.channels) {
    return;
  }
  const ScanChannel<T> at{p.in, channel};
  float* h = dynamic_shared<float>() + threadIdx.x;  // [states, kThreads].
  const std::int64_t states = p.in.states;
  const std::int64_t first = std::int64_t{blockIdx.y} * p.in.rows.seq_len;
  std::int64_t begin = first;
  for (std::int64_t row = first; row < first + p.in.rows.seq_len; ++row) {
    const std::int64_t position = position_of(p.in.rows, row);
    float* text = p.states.data == nullptr
                      ? nullptr
                      : static_cast<float*>(p.states.data) +
                            std::int64_t{p.states.texts[row]} * states * p.in.channels + channel;
    if (position == 0 || p.states.extend) {
      begin = row;
      for (std::int64_t n = 0; n < states; ++n) {
        h[n * kThreads] = position == 0 ? 0.0F : text[n * p.in.channels];
      }
    }
    if (p.kept != nullptr && row > begin && (row - begin) % kScanChunk == 0) {
      for (std::int64_t n = 0; n < states; ++n) {
        p.kept[(row / kScanChunk * states + n) * p.in.channels + channel] = h[n * kThreads];
      }
    }
    const float u = at.u(row);
    const float step = softplus_of(at.raw(row));
    float sum = p.in.d[channel] * u;
    for (std::int64_t n = 0; n < states; ++n) {
      const float state = fmaf(expf(step * at.rate(n)), h[n * kThreads], step * u * at.b(row, n));
      h[n * kThreads] = state;
      sum = fmaf(at.c(row, n), state, sum);
      if (text != nullptr) {
        text[n * p.in.channels] = state;
      }
    }
    const float z = at.z(row);
    store<T>(p.y, row * p.y_stride + channel, sum * (z * sigmoid_of(z)));
  }
}

/// Global scratch of one block; [.., kThreads] each.
struct BackScratch {
  float *decays, *states, *values;  ///< [rows, states] twice, of states one row more; [rows].
  float *carry, *da, *da_total;     ///< [states].

  __host__ __device__ static std::int64_t floats(std::int64_t n) {
    return (kScanChunk * (2 * n + 1) + 4 * n) * kThreads;
  }
  __device__ BackScratch(float* scratch, std::int64_t n)
      : decays(scratch),
        states(decays + kScanChunk * n * kThreads),
        values(states + (kScanChunk + 1) * n * kThreads),
        carry(values + kScanChunk * kThreads),
        da(carry + n * kThreads),
        da_total(da + n * kThreads) {}
};

/// Walks the rows of a chunk again, as the forward pass did.
template <class T>
__device__ void walk_again(const ScanChannel<T>& at, const BackScratch& s, std::int64_t begin,
                           std::int64_t end, int me) {
  const std::int64_t states = at.in.states;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t t = row - begin;
    const float u = at.u(row);
    const float step = softplus_of(at.raw(row));
    float sum = at.in.d[at.channel] * u;
    for (std::int64_t n = 0; n < states; ++n) {
      const std::int64_t place = (t * states + n) * kThreads + me;
      const float decay = expf(step * at.rate(n));
      const float state = fmaf(decay, s.states[place], step * u * at.b(row, n));
      s.decays[place] = decay;
      s.states[place + states * kThreads] = state;
      sum = fmaf(at.c(row, n), state, sum);
    }
    s.values[t * kThreads + me] = sum;
  }
}

/// Sums of one channel over rows.
struct ChannelSums {
  float d = 0.0F, bias = 0.0F;
};

/// Walks a row back; leaves the channel's terms of db in `decays`, those of dc in the states after
/// the row, where nothing needs what was there.
template <class T>
__device__ void row_back(const SelectiveScanBackwardParams& p, const ScanChannel<T>& at,
                         const BackScratch& s, std::int64_t row, std::int64_t t, int me,
                         ChannelSums& sums) {
  const std::int64_t states = at.in.states;
  const std::int64_t channel = at.channel;
  const float u = at.u(row);
  const float z = at.z(row);
  const float raw = at.raw(row);
  const float step = softplus_of(raw);
  const float dy = load<T>(p.y, row * p.y_stride + channel);
  const float value = s.values[t * kThreads + me];
  const float open = sigmoid_of(z);
  const float gate = z * open;
  const float dv = dy * gate;
  store<T>(p.y, row * p.y_stride + channel, value * gate);
  store<T>(p.dz, row * at.in.z_stride + channel, dy * value * fmaf(gate, 1.0F - open, open));
  float of_b = 0.0F;
  float of_decay = 0.0F;
  for (std::int64_t n = 0; n < states; ++n) {
    const std::int64_t place = (t * states + n) * kThreads + me;
    const float decay = s.decays[place];
    float& after = s.states[place + states * kThreads];
    float& carry = s.carry[n * kThreads + me];
    float& da = s.da[n * kThreads + me];
    const float adjoint = fmaf(at.c(row, n), dv, carry);
    const float slope = adjoint * (decay * s.states[place]);
    of_b = fmaf(adjoint, at.b(row, n), of_b);
    of_decay = fmaf(at.rate(n), slope, of_decay);
    da = fmaf(step, slope, da);
    carry = decay * adjoint;
    s.decays[place] = adjoint * (step * u);
    after = dv * after;
  }
  const float draw = fmaf(u, of_b, of_decay) * sigmoid_of(raw);
  store<T>(p.du, row * at.in.channels + channel, fmaf(step, of_b, at.in.d[channel] * dv));
  store<T>(p.ddelta, row * at.in.delta_stride + channel, draw);
  sums.d = fmaf(dv, u, sums.d);
  sums.bias += draw;
}

/// A block has kScanChannels channels through all rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scan_backward_kernel(SelectiveScanBackwardParams p, float* scratch) {
  const int me = static_cast<int>(threadIdx.x);
  const std::int64_t states = p.in.states;
  const std::int64_t channel = std::int64_t{blockIdx.x} * kThreads + me;
  const bool mine = channel < p.in.channels;
  const std::int64_t width =
      min(std::int64_t{kThreads}, p.in.channels - std::int64_t{blockIdx.x} * kThreads);
  const ScanChannel<T> at{p.in, channel};
  const BackScratch s(scratch + blockIdx.x * BackScratch::floats(states), states);
  ChannelSums total;
  for (std::int64_t n = 0; n < states; ++n) {
    s.da_total[n * kThreads + me] = 0.0F;
  }
  for (std::int64_t first = 0; first < p.in.rows.count();) {
    const std::int64_t last = document_end(p.in.rows, first);
    ChannelSums sums;
    for (std::int64_t n = 0; n < states; ++n) {
      s.carry[n * kThreads + me] = 0.0F;
      s.da[n * kThreads + me] = 0.0F;
    }
    for (std::int64_t chunk = divide_up(last - first, kScanChunk) - 1; chunk >= 0; --chunk) {
      const std::int64_t begin = first + chunk * kScanChunk;
      const std::int64_t end = min(begin + kScanChunk, last);
      if (mine) {
        for (std::int64_t n = 0; n < states; ++n) {
          s.states[n * kThreads + me] =
              chunk == 0 ? 0.0F
                         : p.kept[(begin / kScanChunk * states + n) * p.in.channels + channel];
        }
        walk_again<T>(at, s, begin, end, me);
        for (std::int64_t row = end - 1; row >= begin; --row) {
          row_back<T>(p, at, s, row, row - begin, me, sums);
        }
      }
      __syncthreads();
      for (std::int64_t i = me; i < (end - begin) * states; i += kThreads) {
        const float* of_b = s.decays + i * kThreads;
        const float* of_c = s.states + (i + states) * kThreads;
        float db = 0.0F;
        float dc = 0.0F;
        for (std::int64_t k = 0; k < width; ++k) {
          db += of_b[k];
          dc += of_c[k];
        }
        float* to = p.partial + (blockIdx.x * p.in.rows.count() + begin + i / states) * 2 * states;
        to[i % states] = db;
        to[states + i % states] = dc;
      }
      __syncthreads();  // All have read what the next chunk overwrites.
    }
    for (std::int64_t n = 0; n < states; ++n) {
      s.da_total[n * kThreads + me] += s.da[n * kThreads + me];
    }
    total.d += sums.d;
    total.bias += sums.bias;
    first = last;
  }
  for (std::int64_t n = 0; mine && p.da_log != nullptr && n < states; ++n) {
    p.da_log[channel * states + n] = at.rate(n) * s.da_total[n * kThreads + me];
  }
  if (mine && p.dd != nullptr) {
    p.dd[channel] = total.d;
  }
  if (mine && p.ddelta_bias != nullptr) {
    p.ddelta_bias[channel] = total.bias;
  }
}

/// Adds the blocks' sums in order.
template <class T>
struct SumsOfBlocks {
  SelectiveScanBackwardParams p;
  std::int64_t blocks;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t states = p.in.states;
    const std::int64_t row = i / (2 * states);
    const std::int64_t n = i % (2 * states);
    float sum = 0.0F;
    for (std::int64_t block = 0; block < blocks; ++block) {
      sum += p.partial[(block * p.in.rows.count() + row) * 2 * states + n];
    }
    if (n < states) {
      store<T>(p.db, row * p.in.b_stride + n, sum);
    } else {
      store<T>(p.dc, row * p.in.b_stride + n - states, sum);
    }
  }
};

}  // namespace

void selective_scan_forward(CudaStream& stream, const SelectiveScanForwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    const auto blocks = static_cast<unsigned>(divide_up(p.in.channels, kThreads));
    launch(stream, scan_forward_kernel<T>,
           {.blocks = dim3(blocks, static_cast<unsigned>(p.in.rows.sequences)),
            .threads = dim3(kThreads),
            .shared_bytes = static_cast<std::size_t>(p.in.states) * kThreads * sizeof(float)},
           p);
  });
}

void selective_scan_backward(CudaStream& stream, const SelectiveScanBackwardParams& p) {
  const std::int64_t blocks = divide_up(p.in.channels, kThreads);
  const std::int64_t floats = blocks * BackScratch::floats(p.in.states);
  auto* scratch =
      static_cast<float*>(stream.scratch(static_cast<std::size_t>(floats) * sizeof(float)));
  for_element_type(p.dtype, [&]<class T>() {
    launch(stream, scan_backward_kernel<T>,
           {.blocks = dim3(static_cast<unsigned>(blocks)), .threads = dim3(kThreads)}, p, scratch);
    launch_each(stream, p.in.rows.count() * 2 * p.in.states, SumsOfBlocks<T>{p, blocks});
  });
}

}  // namespace train::kernels::cuda
