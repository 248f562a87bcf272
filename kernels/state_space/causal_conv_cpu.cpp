#include "kernels/state_space/causal_conv.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/state_space/document_ranges.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/state_space/causal_conv_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

// Channels are the vectors' lanes: a channel's bits depend on nothing beside it.

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// The sum of one vector: weights [taps, channels], inputs of the last `seen` taps.
template <class Part>
HWY_INLINE FloatVec conv_at(Floats d, FloatVec bias, const float* weights, std::int64_t channels,
                            const float* const* inputs, std::int64_t first, std::int64_t taps,
                            std::int64_t c, Part part) {
  FloatVec sum = bias;
  for (std::int64_t j = first; j < taps; ++j) {
    sum = hn::MulAdd(load(d, weights + j * channels + c, part), load(d, inputs[j] + c, part), sum);
  }
  return sum;
}

void conv_forward_row(const CausalConvForwardParams& p, const float* weights, std::int64_t row) {
  const std::int64_t position =
      p.rows.positions == nullptr ? row % p.rows.seq_len : std::int64_t{p.rows.positions[row]};
  const auto* x = static_cast<const float*>(p.x) + row * p.x_stride;
  auto* y = static_cast<float*>(p.y) + row * p.y_stride;
  const std::int64_t ring = p.taps - 1;
  float* state = p.states.data == nullptr || ring == 0
                     ? nullptr
                     : static_cast<float*>(p.states.data) +
                           std::int64_t{p.states.texts[row]} * ring * p.channels;
  const float* inputs[kMostTaps] = {};
  const std::int64_t first = std::max<std::int64_t>(0, ring - position);
  for (std::int64_t j = first; j < p.taps; ++j) {
    const std::int64_t back = ring - j;
    inputs[j] = p.states.extend && back > 0 ? state + (position - back) % ring * p.channels
                                            : x - back * p.x_stride;
  }
  const auto* bias = static_cast<const float*>(p.bias);
  const Floats d;
  each_vector(0, p.channels, [&](std::int64_t c, auto part) {
    const FloatVec start = bias == nullptr ? hn::Zero(d) : load(d, bias + c, part);
    const FloatVec v = conv_at(d, start, weights, p.channels, inputs, first, p.taps, c, part);
    store(p.silu ? hn::Mul(v, sigmoid(d, v)) : v, d, y + c, part);
  });
  if (state == nullptr) {
    return;
  }
  // The last rows of a document are left, each in a place of its own.
  const std::int64_t later = row + ring;
  const bool last = p.states.extend || later >= p.rows.count() ||
                    later / p.rows.seq_len != row / p.rows.seq_len ||
                    (p.rows.positions != nullptr && p.rows.positions[later] != position + ring);
  if (last) {
    std::copy_n(x, p.channels, state + position % ring * p.channels);
  }
}

/// Sums of a block of channels: of the weights, tap by tap, and of the bias.
struct ConvSums {
  alignas(64) float values[kMostTaps + 1][kConvChannels] = {};
};

/// One document's part of a block of channels that begin at `c0`, from its last row.
void conv_backward_document(const CausalConvBackwardParams& p, const float* weights,
                            const DocumentRange& document, std::int64_t c0, std::int64_t width,
                            ConvSums& sums) {
  alignas(64) float ahead[kMostTaps][kConvChannels];  // dv of the rows from this one on.
  const auto* bias = static_cast<const float*>(p.bias);
  const std::int64_t ring = p.taps - 1;
  const Floats d;
  for (std::int64_t row = document.end() - 1; row >= document.first; --row) {
    const auto* x = static_cast<const float*>(p.x) + row * p.x_stride + c0;
    const auto* dy = static_cast<const float*>(p.dy) + row * p.y_stride + c0;
    auto* dx = static_cast<float*>(p.dx) + row * p.dx_stride + c0;
    // A block's next row lies pages away, where the processor does not look ahead.
    if (constexpr std::int64_t back = 8; row - back - ring >= document.first) {
      for (std::int64_t c = 0; c < width; c += 16) {
        __builtin_prefetch(x - (back + ring) * p.x_stride + c);
        __builtin_prefetch(dy - back * p.y_stride + c);
        __builtin_prefetch(dx - back * p.dx_stride + c, 1);
      }
    }
    const float* inputs[kMostTaps] = {};
    const std::int64_t first = std::max<std::int64_t>(0, ring - (row - document.first));
    for (std::int64_t j = first; j < p.taps; ++j) {
      inputs[j] = x - (ring - j) * p.x_stride;
    }
    const std::int64_t rows_ahead = std::min(ring, document.end() - 1 - row);
    each_vector(0, width, [&](std::int64_t c, auto part) {
      const auto add = [&](float* to, FloatVec left, FloatVec right) {
        hn::StoreU(hn::MulAdd(left, right, hn::LoadU(d, to)), d, to);
      };
      FloatVec dv = load(d, dy + c, part);
      if (p.silu) {
        const FloatVec start = bias == nullptr ? hn::Zero(d) : load(d, bias + c0 + c, part);
        const FloatVec v =
            conv_at(d, start, weights + c0, p.channels, inputs, first, p.taps, c, part);
        const FloatVec s = sigmoid(d, v);
        dv = hn::Mul(dv, hn::MulAdd(hn::Mul(v, s), hn::Sub(hn::Set(d, 1.0F), s), s));
      }
      add(sums.values[p.taps] + c, dv, hn::Set(d, 1.0F));
      for (std::int64_t j = first; j < p.taps; ++j) {
        add(sums.values[j] + c, dv, load(d, inputs[j] + c, part));
      }
      hn::StoreU(dv, d, ahead[row % p.taps] + c);
      const float* of_last = weights + ring * p.channels + c0 + c;
      FloatVec gradient = hn::Mul(load(d, of_last, part), dv);
      for (std::int64_t k = 1; k <= rows_ahead; ++k) {
        gradient = hn::MulAdd(load(d, of_last - k * p.channels, part),
                              hn::LoadU(d, ahead[(row + k) % p.taps] + c), gradient);
      }
      store(gradient, d, dx + c, part);
    });
  }
}

/// A block of channels through all documents, so that its sums have one order.
void conv_backward_block(const CausalConvBackwardParams& p, const float* weights,
                         const std::vector<DocumentRange>& documents, std::int64_t block) {
  const std::int64_t c0 = block * kConvChannels;
  const std::int64_t width = std::min(kConvChannels, p.channels - c0);
  ConvSums total;
  for (const DocumentRange& document : documents) {
    ConvSums sums;
    conv_backward_document(p, weights, document, c0, width, sums);
    for (std::int64_t j = 0; j <= p.taps; ++j) {
      for (std::int64_t c = 0; c < width; ++c) {
        total.values[j][c] += sums.values[j][c];
      }
    }
  }
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t j = 0; p.dweight != nullptr && j < p.taps; ++j) {
      p.dweight[(c0 + c) * p.taps + j] = total.values[j][c];
    }
    if (p.dbias != nullptr) {
      p.dbias[c0 + c] = total.values[p.taps][c];
    }
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(conv_forward_row);
HWY_EXPORT(conv_backward_block);

namespace {

/// The weights tap by tap, in scratch of this thread.
template <class Params>
const float* by_taps(const Params& p) {
  static thread_local Scratch scratch;
  auto* weights = scratch.get<float>(p.taps * p.channels);
  const auto* stored = static_cast<const float*>(p.weight);
  for (std::int64_t j = 0; j < p.taps; ++j) {
    for (std::int64_t c = 0; c < p.channels; ++c) {
      weights[j * p.channels + c] = stored[c * p.taps + j];
    }
  }
  return weights;
}

}  // namespace

void causal_conv_forward(const CausalConvForwardParams& p, int threads) {
  document_ranges(p.rows, p.states.extend);  // Checks the positions.
  const auto one = HWY_DYNAMIC_DISPATCH(conv_forward_row);
  const float* weights = by_taps(p);
  each_row(threads, p.rows.count(), p.channels * p.taps,
           [&](std::int64_t row) { one(p, weights, row); });
}

void causal_conv_backward(const CausalConvBackwardParams& p, int threads) {
  const std::vector<DocumentRange> documents = document_ranges(p.rows);
  const auto one = HWY_DYNAMIC_DISPATCH(conv_backward_block);
  const float* weights = by_taps(p);
  parallel_for(threads, divide_up(p.channels, kConvChannels),
               [&](std::int64_t block, int) { one(p, weights, documents, block); });
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
