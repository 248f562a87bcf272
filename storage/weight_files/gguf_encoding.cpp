#include "storage/weight_files/gguf_encoding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kLargeBlock = 256;  // Elements of a block of the types "K".
constexpr std::size_t kScaledGroup = 32;  // Elements with one scale and one offset.
constexpr std::size_t kScaledGroups = kLargeBlock / kScaledGroup;
constexpr std::size_t kSmallGroup = 16;  // Elements with one scale of Q6_K.
constexpr std::size_t kSmallGroups = kLargeBlock / kSmallGroup;
constexpr int kScaleLimit = 63;  // Scales and offsets of groups have six bits.

std::byte as_byte(int value) {
  return static_cast<std::byte>(static_cast<unsigned char>(value & 0xFF));
}

/// Stores a half. False: too large.
bool put_half(float value, std::byte* out) {
  return from_floats(WeightType::f16, {&value, 1}, {out, 2}) && std::isfinite(value);
}

float half_of(const std::byte* bytes) {
  float value = 0.0F;
  to_floats(WeightType::f16, {bytes, 2}, {&value, 1});
  return value;
}

/// Nearest integer, halves away from zero. REQUIRES: it fits an int.
int rounded(float value) {
  const float size = std::abs(value);
  const int whole = static_cast<int>(size);
  const int more = static_cast<int>(2.0F * (size - static_cast<float>(whole)));
  return value < 0.0F ? -(whole + more) : whole + more;
}

/// Nearest integer of a range, halves up; of NaN the least. Truncates, since rounding is a call on
/// old processors.
int nearest(float value, int low, int high) {
  const auto least = static_cast<float>(low);
  const float inside = value > least ? std::min(value, static_cast<float>(high)) : least;
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): the sum is at least one half.
  return static_cast<int>(inside - static_cast<float>(low) + 0.5F) + low;
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

bool encode_q8_0(const float* values, std::byte* block) {
  constexpr std::size_t count = 32;
  constexpr float steps = 127.0F;
  float largest = 0.0F;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(values[i]));
  }
  const float scale = largest / steps;
  // No scale, or one so small that it is no half either.
  const float inverse = std::isfinite(1.0F / scale) ? 1.0F / scale : 0.0F;
  for (std::size_t i = 0; i < count; ++i) {
    block[2 + i] = as_byte(rounded(values[i] * inverse));
  }
  return put_half(scale, block);
}

/// Group as scale * level - offset, with levels from 0 on.
struct Affine {
  float scale = 0.0F, offset = 0.0F;  ///< Neither is negative.
};

/// Sum of squared errors of the best levels.
float error_of(std::span<const float> values, Affine fit, int levels) {
  const float inverse = fit.scale > 0.0F ? 1.0F / fit.scale : 0.0F;
  float error = 0.0F;
  for (const float value : values) {
    const int level = nearest((value + fit.offset) * inverse, 0, levels);
    const float difference = fit.scale * static_cast<float>(level) - fit.offset - value;
    error += difference * difference;
  }
  return error;
}

/// Scale and offset of least squares for given levels.
Affine solve(std::span<const float> values, std::span<const float> levels) {
  float level_sum = 0.0F, square_sum = 0.0F, value_sum = 0.0F, product_sum = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    level_sum += levels[i];
    square_sum += levels[i] * levels[i];
    value_sum += values[i];
    product_sum += values[i] * levels[i];
  }
  const auto count = static_cast<float>(values.size());
  const float determinant = count * square_sum - level_sum * level_sum;
  if (determinant <= 0.0F) {
    return {};
  }
  Affine fit{(count * product_sum - value_sum * level_sum) / determinant,
             (level_sum * product_sum - square_sum * value_sum) / determinant};
  if (fit.offset < 0.0F) {
    fit = {square_sum > 0.0F ? product_sum / square_sum : 0.0F, 0.0F};
  }
  fit.scale = std::max(fit.scale, 0.0F);
  return fit;
}

/// Best fit of a group: levels by inverse scales around that of the whole range, each solved for.
Affine fit_group(std::span<const float> values, int levels) {
  constexpr int candidates = 24;
  constexpr float first = -1.2F;
  constexpr float step = 0.1F;
  constexpr int shifts = 8;
  const float low = std::min(0.0F, *std::min_element(values.begin(), values.end()));
  const float range = std::max(0.0F, *std::max_element(values.begin(), values.end())) - low;
  if (range <= 0.0F) {
    return {};
  }
  Affine best{range / static_cast<float>(levels), -low};
  float least = error_of(values, best, levels);
  std::array<float, kScaledGroup> chosen{};
  const auto attempt = [&](float begin, float inverse) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      chosen[k] = static_cast<float>(nearest((values[k] - begin) * inverse, 0, levels));
    }
    const Affine fit = solve(values, chosen);
    const float error = error_of(values, fit, levels);
    if (error < least) {
      least = error;
      best = fit;
    }
  };
  const auto steps = static_cast<float>(levels);
  for (int i = 0; i < candidates; ++i) {
    attempt(low, (steps + first + step * static_cast<float>(i)) / range);
  }
  // Values in two heaps: levels that begin below the least value meet the other heap otherwise.
  for (int i = 1; i < shifts; ++i) {
    const float below = range / steps * static_cast<float>(i) / static_cast<float>(shifts);
    attempt(low - below, steps / (range + below));
  }
  return best;
}

/// Six-bit scale and offset of a group, in the block's units, and what they stand for.
struct PackedGroup {
  int scale = 0, offset = 0;
  Affine fit = {};
};

/// The offset that fits best where the scale is given: the mean of what levels leave.
float offset_for(std::span<const float> values, Affine fit, int levels) {
  const float inverse = fit.scale > 0.0F ? 1.0F / fit.scale : 0.0F;
  float sum = 0.0F;
  for (const float value : values) {
    const int level = nearest((value + fit.offset) * inverse, 0, levels);
    sum += fit.scale * static_cast<float>(level) - value;
  }
  return sum / static_cast<float>(values.size());
}

/// Six-bit numbers near the wanted ones, those with the least error.
PackedGroup pack_group(std::span<const float> values, Affine wanted, Affine unit, int levels) {
  constexpr int near_scales = 2;
  constexpr int near_offsets = 2;
  const auto place = [](float value, float of) {
    return of > 0.0F ? nearest(value / of, 0, kScaleLimit) : 0;
  };
  const int scale = place(wanted.scale, unit.scale);
  PackedGroup best;
  float least = std::numeric_limits<float>::infinity();
  for (int s = std::max(0, scale - near_scales); s <= std::min(kScaleLimit, scale + near_scales);
       ++s) {
    const float own = unit.scale * static_cast<float>(s);
    const float fitted = offset_for(values, {own, wanted.offset}, levels);
    const int first = place(wanted.offset, unit.offset);
    const int second = place(fitted, unit.offset);
    const int around = s == scale ? near_offsets : 1;  // The error has many minima along offsets.
    for (int o = std::max(0, std::min(first, second) - around);
         o <= std::min(kScaleLimit, std::max(first, second) + around); ++o) {
      const Affine fit{own, unit.offset * static_cast<float>(o)};
      const float error = error_of(values, fit, levels);
      if (error < least) {
        least = error;
        best = {s, o, fit};
      }
    }
  }
  return best;
}

using PackedGroups = std::array<PackedGroup, kScaledGroups>;

/// Writes the two halves and the twelve bytes that Q4_K and Q5_K begin with, as gguf_blocks.cpp
/// reads them. Nullopt: too large.
bool put_groups(std::span<const float> values, int levels, std::byte* block, PackedGroups& groups) {
  std::array<Affine, kScaledGroups> fits;
  Affine largest;
  for (std::size_t i = 0; i < kScaledGroups; ++i) {
    fits[i] = fit_group(values.subspan(i * kScaledGroup, kScaledGroup), levels);
    largest.scale = std::max(largest.scale, fits[i].scale);
    largest.offset = std::max(largest.offset, fits[i].offset);
  }
  constexpr auto steps = static_cast<float>(kScaleLimit);
  if (!put_half(largest.scale / steps, block) || !put_half(largest.offset / steps, block + 2)) {
    return false;
  }
  const Affine unit{half_of(block), half_of(block + 2)};
  for (std::size_t i = 0; i < kScaledGroups; ++i) {
    groups[i] = pack_group(values.subspan(i * kScaledGroup, kScaledGroup), fits[i], unit, levels);
  }
  std::byte* packed = block + 4;
  for (std::size_t i = 0; i < kScaledGroups / 2; ++i) {
    const PackedGroup& first = groups[i];
    const PackedGroup& second = groups[i + kScaledGroups / 2];
    packed[i] = as_byte(first.scale | (second.scale >> 4) << 6);
    packed[i + 4] = as_byte(first.offset | (second.offset >> 4) << 6);
    packed[i + 8] = as_byte((second.scale & 15) | (second.offset & 15) << 4);
  }
  return true;
}

int level_of(float value, const PackedGroup& group, int levels) {
  const float inverse = group.fit.scale > 0.0F ? 1.0F / group.fit.scale : 0.0F;
  return nearest((value + group.fit.offset) * inverse, 0, levels);
}

bool encode_q4_k(const float* values, std::byte* block) {
  constexpr int levels = 15;
  constexpr std::size_t header = 16;
  PackedGroups groups;
  if (!put_groups({values, kLargeBlock}, levels, block, groups)) {
    return false;
  }
  for (std::size_t pair = 0; pair < kScaledGroups / 2; ++pair) {
    for (std::size_t i = 0; i < kScaledGroup; ++i) {
      const float* of = values + 2 * pair * kScaledGroup + i;
      block[header + pair * kScaledGroup + i] =
          as_byte(level_of(of[0], groups[2 * pair], levels) |
                  level_of(of[kScaledGroup], groups[2 * pair + 1], levels) << 4);
    }
  }
  return true;
}

bool encode_q5_k(const float* values, std::byte* block) {
  constexpr int levels = 31;
  constexpr std::size_t header = 16;
  PackedGroups groups;
  if (!put_groups({values, kLargeBlock}, levels, block, groups)) {
    return false;
  }
  std::byte* fifth = block + header;
  std::byte* nibbles = fifth + kScaledGroup;
  std::fill_n(fifth, kScaledGroup, std::byte{0});
  for (std::size_t pair = 0; pair < kScaledGroups / 2; ++pair) {
    for (std::size_t i = 0; i < kScaledGroup; ++i) {
      const float* of = values + 2 * pair * kScaledGroup + i;
      const int low = level_of(of[0], groups[2 * pair], levels);
      const int high = level_of(of[kScaledGroup], groups[2 * pair + 1], levels);
      nibbles[pair * kScaledGroup + i] = as_byte((low & 15) | (high & 15) << 4);
      fifth[i] |= as_byte((low >> 4) << (2 * pair) | (high >> 4) << (2 * pair + 1));
    }
  }
  return true;
}

constexpr int kSignedLow = -32;
constexpr int kSignedHigh = 31;

float signed_error(std::span<const float> values, float scale) {
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  float error = 0.0F;
  for (const float value : values) {
    const int level = nearest(value * inverse, kSignedLow, kSignedHigh);
    const float difference = scale * static_cast<float>(level) - value;
    error += difference * difference;
  }
  return error;
}

/// Best scale of a group with levels of both signs.
float fit_signed(std::span<const float> values) {
  constexpr int candidates = 9;
  constexpr float step = 0.1F;
  const float extreme = *std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (extreme == 0.0F) {
    return 0.0F;
  }
  float best = extreme / static_cast<float>(kSignedLow);
  float least = signed_error(values, best);
  for (int i = -candidates; i <= candidates; ++i) {
    const float inverse = (static_cast<float>(kSignedLow) - step * static_cast<float>(i)) / extreme;
    float squares = 0.0F, products = 0.0F;
    for (const float value : values) {
      const auto level = static_cast<float>(nearest(value * inverse, kSignedLow, kSignedHigh));
      squares += level * level;
      products += level * value;
    }
    const float scale = squares > 0.0F ? products / squares : 0.0F;
    const float error = signed_error(values, scale);
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

/// Eight-bit scale in the block's unit, or a neighbour with a lesser error.
int pack_signed(std::span<const float> values, float wanted, float unit) {
  constexpr int low = -128;
  constexpr int high = 127;
  const int place = unit != 0.0F ? nearest(wanted / unit, low, high) : 0;
  int best = place;
  float least = std::numeric_limits<float>::infinity();
  for (int scale = std::max(low, place - 1); scale <= std::min(high, place + 1); ++scale) {
    const float error = signed_error(values, unit * static_cast<float>(scale));
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

bool encode_q6_k(const float* values, std::byte* block) {
  constexpr std::size_t low_bytes = 128;
  constexpr std::size_t upper_bytes = 64;
  constexpr float most = -128.0F;
  std::array<float, kSmallGroups> fits{};
  float extreme = 0.0F;
  for (std::size_t i = 0; i < kSmallGroups; ++i) {
    fits[i] = fit_signed({values + i * kSmallGroup, kSmallGroup});
    extreme = std::abs(fits[i]) > std::abs(extreme) ? fits[i] : extreme;
  }
  std::byte* upper = block + low_bytes;
  std::byte* scales = upper + upper_bytes;
  std::byte* half = scales + kSmallGroups;
  if (!put_half(extreme / most, half)) {
    return false;
  }
  const float unit = half_of(half);
  std::fill_n(block, low_bytes + upper_bytes, std::byte{0});
  for (std::size_t group = 0; group < kSmallGroups; ++group) {
    const std::span<const float> of(values + group * kSmallGroup, kSmallGroup);
    const int packed = pack_signed(of, fits[group], unit);
    scales[group] = as_byte(packed);
    const float scale = unit * static_cast<float>(packed);
    const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
    for (std::size_t i = 0; i < kSmallGroup; ++i) {
      const int level = nearest(of[i] * inverse, kSignedLow, kSignedHigh) - kSignedLow;
      const std::size_t at = group * kSmallGroup + i;
      const std::size_t side = at / 128;
      const std::size_t quarter = at % 128 / 32;
      block[side * 64 + at % 64] |= as_byte((level & 15) << (quarter < 2 ? 0 : 4));
      upper[side * 32 + at % 32] |= as_byte((level >> 4) << (2 * quarter));
    }
  }
  return true;
}

struct Encoder {
  std::string_view name;
  bool (*encode)(const float* values, std::byte* block);  ///< nullptr: one element is a block.
};
constexpr std::array kEncoders = {
    Encoder{"F32", nullptr},      Encoder{"F16", nullptr},      Encoder{"BF16", nullptr},
    Encoder{"Q8_0", encode_q8_0}, Encoder{"Q4_K", encode_q4_k}, Encoder{"Q5_K", encode_q5_k},
    Encoder{"Q6_K", encode_q6_k},
};

const Encoder* encoder_of(std::string_view name) {
  const auto* found = std::find_if(kEncoders.begin(), kEncoders.end(),
                                   [name](const Encoder& one) { return one.name == name; });
  return found == kEncoders.end() ? nullptr : found;
}

}  // namespace

const GgufType* find_writable_gguf_type(std::string_view name) {
  constexpr std::uint32_t codes = 64;
  for (std::uint32_t code = 0; encoder_of(name) != nullptr && code < codes; ++code) {
    const GgufType* type = find_gguf_type(code);
    if (type != nullptr && type->name == name) {
      return type;
    }
  }
  return nullptr;
}

bool encode_blocks(const GgufType& type, std::span<const float> values,
                   std::span<std::byte> bytes) {
  const Encoder* encoder = encoder_of(type.name);
  TRAIN_CHECK(encoder != nullptr && values.size() % type.block_elements == 0);
  const std::size_t blocks = values.size() / type.block_elements;
  TRAIN_CHECK(bytes.size() == blocks * type.block_bytes);
  if (encoder->encode == nullptr) {
    return from_floats(*weight_type(type.name), values, bytes);
  }
  if (!all_finite(values)) {
    return false;
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!encoder->encode(values.data() + i * type.block_elements,
                         bytes.data() + i * type.block_bytes)) {
      return false;
    }
  }
  return true;
}

}  // namespace train::storage
