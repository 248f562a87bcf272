#include "kernels/head/logit_row.hpp"

#include <algorithm>
#include <limits>

#include "base/math/fixed_math.hpp"
#include "kernels/cpu_support.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/head/logit_row_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep: includes this file once per instruction set.
#include <hwy/highway.h>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

HWY_INLINE Floats16 lowest16() { return Floats16(-std::numeric_limits<float>::infinity()); }

HWY_INLINE FloatVec lowest(Floats d) { return hn::Set(d, -std::numeric_limits<float>::infinity()); }

float max_of_row(const float* logits, std::int64_t count) {
  const Floats d;
  // Four interleaved maxima: a single chain would wait for itself.
  constexpr std::int64_t turn = Floats16::count;
  Floats16 largest[4] = {lowest16(), lowest16(), lowest16(), lowest16()};
  std::int64_t i = 0;
  for (; i + 4 * turn <= count; i += 4 * turn) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 2
      for (int v = 0; v < Floats16::vectors; ++v) {
        largest[k][v] =
            hn::Max(largest[k][v], hn::LoadU(d, logits + i + k * turn + v * Floats16::lanes));
      }
    }
  }
  each_sixteen(i, count, [&](std::int64_t at, auto part, auto which) {
    largest[0][which] =
        hn::Max(largest[0][which], counted_or(load(d, logits + at, part), lowest(d), d, part));
  });
  const float pairs[2] = {HWY_MAX(max_of(largest[0]), max_of(largest[1])),
                          HWY_MAX(max_of(largest[2]), max_of(largest[3]))};
  return HWY_MAX(pairs[0], pairs[1]);
}

float scale_and_max(const float* products, std::int64_t count, float scale, float* logits) {
  const Floats d;
  Floats16 largest = lowest16();
  each_sixteen(0, count, [&](std::int64_t i, auto part, auto which) {
    const FloatVec z = hn::Mul(load(d, products + i, part), hn::Set(d, scale));
    largest[which] = hn::Max(largest[which], counted_or(z, lowest(d), d, part));
    store(z, d, logits + i, part);
  });
  return max_of(largest);
}

float cap_and_max(const float* products, std::int64_t count, LogitShape shape, float* logits,
                  float* slopes) {
  const Floats d;
  const FloatVec scale = hn::Set(d, shape.scale / shape.softcap);
  Floats16 largest = lowest16();
  each_sixteen(0, count, [&](std::int64_t i, auto part, auto which) {
    const FloatVec t = tanh_of(d, hn::Mul(load(d, products + i, part), scale));
    const FloatVec z = hn::Mul(hn::Set(d, shape.softcap), t);
    largest[which] = hn::Max(largest[which], counted_or(z, lowest(d), d, part));
    store(z, d, logits + i, part);
    if (slopes != nullptr) {
      store(hn::NegMulAdd(t, t, hn::Set(d, 1.0F)), d, slopes + i, part);
    }
  });
  return max_of(largest);
}

std::int64_t find_in_row(const float* logits, std::int64_t count, float value) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatVec wanted = hn::Set(d, value);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto left = static_cast<std::size_t>(HWY_MIN(count - i, lanes));
    const auto found = hn::And(hn::FirstN(d, left),
                               hn::Eq(hn::MaskedLoad(hn::FirstN(d, left), d, logits + i), wanted));
    if (!hn::AllFalse(d, found)) {
      return i + static_cast<std::int64_t>(hn::FindKnownFirstTrue(d, found));
    }
  }
  return -1;
}

/// Elements added in fp32 before the sum continues in double.
constexpr std::int64_t kExactRun = 4096;

/// Calls see(i, part, which, e, logit - largest) for the vectors of a row, in runs short enough for
/// float sums, and add_run() after each run.
template <class See, class AddRun>
HWY_INLINE void each_exponential(const float* logits, std::int64_t count, float largest,
                                 const See& see, const AddRun& add_run) {
  const Floats d;
  const FloatVec shift = hn::Set(d, largest);
  for (std::int64_t begin = 0; begin < count; begin += kExactRun) {
    const std::int64_t end = HWY_MIN(count, begin + kExactRun);
    each_sixteen(begin, end, [&](std::int64_t i, auto part, auto which) {
      const FloatVec shifted = hn::Sub(load(d, logits + i, part), shift);
      see(i, part, which, exp_of_negative(d, shifted), shifted);
    });
    add_run();
  }
}

template <class Amount>
HWY_INLINE void add_counted(FloatVec& partial, FloatVec values, Amount part) {
  const Floats d;
  partial = hn::Add(partial, counted_or(values, hn::Zero(d), d, part));
}

/// Returns the sum of a run and resets `partial`.
HWY_INLINE double end_run(Floats16& partial) {
  const auto sum = static_cast<double>(sum_of(partial));
  partial = Floats16(0.0F);
  return sum;
}

double sum_exponentials(const float* logits, std::int64_t count, float largest,
                        float* exponentials) {
  const Floats d;
  Floats16 partial(0.0F);
  double sum = 0.0;
  each_exponential(
      logits, count, largest,
      [&](std::int64_t i, auto part, auto which, FloatVec e, FloatVec) {
        add_counted(partial[which], e, part);
        if (exponentials != nullptr) {
          store(e, d, exponentials + i, part);
        }
      },
      [&] { sum += end_run(partial); });
  return sum;
}

RowMoments sum_moments(const float* logits, std::int64_t count, float largest) {
  const Floats d;
  Floats16 partial(0.0F);
  Floats16 partial_squares(0.0F);
  Floats16 partial_shifted(0.0F);
  RowMoments moments;
  each_exponential(
      logits, count, largest,
      [&](std::int64_t, auto part, auto which, FloatVec e, FloatVec shifted) {
        add_counted(partial[which], e, part);
        add_counted(partial_squares[which], hn::Mul(e, e), part);
        // -Inf times 0 counts as 0: the token is impossible.
        const FloatVec product = hn::Mul(e, shifted);
        add_counted(partial_shifted[which], hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), product),
                    part);
      },
      [&] {
        moments.exponentials.sum += end_run(partial);
        moments.squares += end_run(partial_squares);
        moments.shifted += end_run(partial_shifted);
      });
  return moments;
}

double sum_of_row(const float* logits, std::int64_t count) {
  Floats16 partial(0.0F);
  double sum = 0.0;
  for (std::int64_t begin = 0; begin < count; begin += kExactRun) {
    const std::int64_t end = HWY_MIN(count, begin + kExactRun);
    each_sixteen(begin, end, [&](std::int64_t i, auto part, auto which) {
      add_counted(partial[which], load(Floats(), logits + i, part), part);
    });
    sum += end_run(partial);
  }
  return sum;
}

/// values = of(values, i, part), with the vector at i.
template <class Of>
HWY_INLINE void replace_row(float* values, std::int64_t count, const Of& of) {
  const Floats d;
  each_vector(0, count, [&](std::int64_t i, auto part) {
    store(of(load(d, values + i, part), i, part), d, values + i, part);
  });
}

void replace_by_gradient(float* values, const float* slopes, std::int64_t count, float factor,
                         float uniform) {
  const Floats d;
  const FloatVec f = hn::Set(d, factor);
  const FloatVec u = hn::Set(d, uniform);
  if (slopes != nullptr) {
    replace_row(values, count, [&](FloatVec e, std::int64_t i, auto part) {
      return hn::Mul(hn::Sub(hn::Mul(f, e), u), load(d, slopes + i, part));
    });
  } else if (uniform != 0.0F) {
    replace_row(values, count,
                [&](FloatVec e, std::int64_t, auto) { return hn::Sub(hn::Mul(f, e), u); });
  } else {
    replace_row(values, count, [&](FloatVec e, std::int64_t, auto) { return hn::Mul(f, e); });
  }
}

/// Appends the values of [begin, end) above `threshold`; returns the new size. May write up to a
/// vector beyond it.
std::int64_t append_above(const float* logits, std::int64_t begin, std::int64_t end,
                          float threshold, float* found, std::int64_t size) {
  const Floats d;
  const FloatVec limit = hn::Set(d, threshold);
  each_vector(begin, end, [&](std::int64_t i, auto part) {
    const FloatVec z = counted_or(load(d, logits + i, part), lowest(d), d, part);
    const auto above = hn::Gt(z, limit);
    if (!hn::AllFalse(d, above)) {
      size += static_cast<std::int64_t>(hn::CompressStore(z, above, d, found + size));
    }
  });
  return size;
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace train::kernels::cpu {

HWY_EXPORT(max_of_row);
HWY_EXPORT(scale_and_max);
HWY_EXPORT(cap_and_max);
HWY_EXPORT(find_in_row);
HWY_EXPORT(sum_exponentials);
HWY_EXPORT(sum_moments);
HWY_EXPORT(sum_of_row);
HWY_EXPORT(replace_by_gradient);
HWY_EXPORT(append_above);

float max_of_row(const float* logits, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(max_of_row)(logits, count);
}

float shape_row(const float* products, std::int64_t count, const LogitShape& shape, float* logits,
                float* slopes) {
  return shape.softcap > 0.0F
             ? HWY_DYNAMIC_DISPATCH(cap_and_max)(products, count, shape, logits, slopes)
             : HWY_DYNAMIC_DISPATCH(scale_and_max)(products, count, shape.scale, logits);
}

std::int64_t find_in_row(const float* logits, std::int64_t count, float value) {
  return HWY_DYNAMIC_DISPATCH(find_in_row)(logits, count, value);
}

namespace {

RowExponentials with_lse(double sum, float largest) {
  return {.sum = sum, .lse = static_cast<double>(largest) + fixed::log(sum)};
}

}  // namespace

RowExponentials exponentiate_row(const float* logits, std::int64_t count, float largest,
                                 float* exponentials) {
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_exponentials)(logits, count, largest, exponentials);
  return with_lse(sum, largest);
}

RowMoments moments_of_row(const float* logits, std::int64_t count, float largest) {
  RowMoments moments = HWY_DYNAMIC_DISPATCH(sum_moments)(logits, count, largest);
  moments.exponentials = with_lse(moments.exponentials.sum, largest);
  return moments;
}

double sum_of_row(const float* logits, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_of_row)(logits, count);
}

void gradient_of_row(float* exponentials, const float* slopes, std::int64_t count,
                     const RowGradient& row) {
  const float of_target = row.factor * exponentials[row.target] - row.uniform - row.at_target;
  HWY_DYNAMIC_DISPATCH(replace_by_gradient)(exponentials, slopes, count, row.factor, row.uniform);
  exponentials[row.target] = slopes != nullptr ? of_target * slopes[row.target] : of_target;
}

TopLogits top_of_row(const float* logits, std::int64_t count, std::int64_t top) {
  // Candidates are collected, and reduced when there are too many: after a few pieces hardly any
  // value exceeds the least of the largest.
  constexpr std::int64_t piece = 1024;
  constexpr std::int64_t beyond = 64;  // A vector of the widest instruction set.
  static thread_local Scratch scratch;
  auto* found = scratch.get<float>(top + piece + beyond);
  float threshold = -std::numeric_limits<float>::infinity();
  std::int64_t size = 0;
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    size = HWY_DYNAMIC_DISPATCH(append_above)(logits, begin, std::min(count, begin + piece),
                                              threshold, found, size);
    if (size >= top) {
      std::nth_element(found, found + top - 1, found + size, std::greater<>());
      threshold = found[top - 1];
      size = top;
    }
  }
  std::fill(found + size, found + top, -std::numeric_limits<float>::infinity());
  std::sort(found, found + top, std::greater<>());  // Sums in an order determined by the values.
  const auto largest = static_cast<double>(found[0]);
  double sum = 0.0;
  double shifted = 0.0;
  for (std::int64_t i = 0; i < top; ++i) {
    const double below = static_cast<double>(found[i]) - largest;
    sum += fixed::exp(below);
    shifted += below;
  }
  const float least = found[top - 1];
  return {.lse = largest + fixed::log(sum),
          .mean = largest + shifted / static_cast<double>(top),
          .least = least,
          .equal = std::count(found, found + top, least)};
}

}  // namespace train::kernels::cpu
#endif  // HWY_ONCE
