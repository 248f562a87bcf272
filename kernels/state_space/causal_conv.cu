#include "kernels/element.cuh"
#include "kernels/launch.cuh"
#include "kernels/state_space/causal_conv.hpp"
#include "kernels/state_space/documents.cuh"
#include "kernels/state_space/gates.cuh"

// A plain form: a thread has an element forward, and a channel of all rows backward, in the CPU's
// order. Nothing of it has run on a device.
namespace train::kernels::cuda {
namespace {

/// Convolution of a channel at a row, whose place in its document is `position`.
template <class T, class Input>
__device__ float conv_at(const void* weight, const void* bias, std::int64_t taps,
                         std::int64_t channel, std::int64_t position, const Input& input) {
  float sum = bias == nullptr ? 0.0F : load<T>(bias, channel);
  for (std::int64_t j = max(std::int64_t{0}, taps - 1 - position); j < taps; ++j) {
    sum = fmaf(load<T>(weight, channel * taps + j), input(taps - 1 - j), sum);
  }
  return sum;
}

template <class T>
struct ConvElements {
  CausalConvForwardParams p;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / p.channels;
    const std::int64_t channel = i % p.channels;
    const std::int64_t position = position_of(p.rows, row);
    const std::int64_t ring = p.taps - 1;
    const std::int64_t text =
        p.states.data == nullptr ? 0 : std::int64_t{p.states.texts[row]} * ring;
    const auto place = [&](std::int64_t at) { return (text + at % ring) * p.channels + channel; };
    const float v = conv_at<T>(p.weight, p.bias, p.taps, channel, position, [&](std::int64_t back) {
      return p.states.extend && back > 0 ? load<T>(p.states.data, place(position - back))
                                         : load<T>(p.x, (row - back) * p.x_stride + channel);
    });
    store<T>(p.y, row * p.y_stride + channel, p.silu ? v * sigmoid_of(v) : v);
    if (p.states.data == nullptr || ring == 0) {
      return;
    }
    const std::int64_t later = row + ring;
    const bool last = p.states.extend || later >= p.rows.count() ||
                      later / p.rows.seq_len != row / p.rows.seq_len ||
                      position_of(p.rows, later) != position + ring;
    if (last) {
      store<T>(p.states.data, place(position), load<T>(p.x, row * p.x_stride + channel));
    }
  }
};

template <class T>
struct ConvChannels {
  CausalConvBackwardParams p;

  __device__ void operator()(std::int64_t channel) const {
    float sums[kMostTaps + 1] = {};
    for (std::int64_t first = 0; first < p.rows.count();) {
      const std::int64_t end = document_end(p.rows, first);
      float of_document[kMostTaps + 1] = {};
      float ahead[kMostTaps] = {};  // dv of the rows behind: ahead[k - 1] is k rows on.
      for (std::int64_t row = end - 1; row >= first; --row) {
        step(channel, row, row - first, end - 1 - row, ahead, of_document);
      }
      for (int j = 0; j <= kMostTaps; ++j) {
        sums[j] += of_document[j];
      }
      first = end;
    }
    for (std::int64_t j = 0; p.dweight != nullptr && j < p.taps; ++j) {
      p.dweight[channel * p.taps + j] = sums[j];
    }
    if (p.dbias != nullptr) {
      p.dbias[channel] = sums[kMostTaps];
    }
  }

  __device__ void step(std::int64_t channel, std::int64_t row, std::int64_t position,
                       std::int64_t rows_ahead, float (&ahead)[kMostTaps],
                       float (&sums)[kMostTaps + 1]) const {
    const std::int64_t ring = p.taps - 1;
    const auto input = [&](std::int64_t back) {
      return load<T>(p.x, (row - back) * p.x_stride + channel);
    };
    float dv = load<T>(p.dy, row * p.y_stride + channel);
    if (p.silu) {
      const float v = conv_at<T>(p.weight, p.bias, p.taps, channel, position, input);
      const float s = sigmoid_of(v);
      dv *= fmaf(v * s, 1.0F - s, s);
    }
    sums[kMostTaps] += dv;
    float gradient = load<T>(p.weight, channel * p.taps + ring) * dv;
#pragma unroll
    for (int j = 0; j < kMostTaps; ++j) {
      if (j < p.taps && ring - j <= position) {
        sums[j] = fmaf(dv, input(ring - j), sums[j]);
      }
    }
#pragma unroll
    for (int k = 1; k < kMostTaps; ++k) {
      if (k <= ring && k <= rows_ahead) {
        gradient = fmaf(load<T>(p.weight, channel * p.taps + ring - k), ahead[k - 1], gradient);
      }
    }
#pragma unroll
    for (int k = kMostTaps - 1; k > 0; --k) {
      ahead[k] = ahead[k - 1];
    }
    ahead[0] = dv;
    store<T>(p.dx, row * p.dx_stride + channel, gradient);
  }
};

}  // namespace

void causal_conv_forward(CudaStream& stream, const CausalConvForwardParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows.count() * p.channels, ConvElements<T>{p});
  });
}

void causal_conv_backward(CudaStream& stream, const CausalConvBackwardParams& p) {
  for_element_type(p.dtype,
                   [&]<class T>() { launch_each(stream, p.channels, ConvChannels<T>{p}); });
}

}  // namespace train::kernels::cuda
