#include "storage/weight_files/gguf_blocks.hpp"

#include <array>
#include <bit>

#include "base/check.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::storage {
namespace {

// Blocks of 32 elements have one scale. Blocks of 256 ("K") have a scale for their scales and
// consist of groups of 32, or 16, with a scale of a few bits each.
constexpr std::size_t kSmallBlock = 32;
constexpr std::size_t kHalfBlock = kSmallBlock / 2;
constexpr std::size_t kGroupElements = 32;
constexpr std::size_t kGroupsInBlock = 8;
constexpr std::size_t kPackedScalesBytes = 12;

unsigned byte_at(const std::byte* bytes, std::size_t index) {
  return std::to_integer<unsigned>(bytes[index]);
}

int signed_byte_at(const std::byte* bytes, std::size_t index) {
  return static_cast<std::int8_t>(byte_at(bytes, index));
}

float half_at(const std::byte* bytes) {
  float value = 0;
  to_floats(WeightType::f16, {bytes, 2}, {&value, 1});
  return value;
}

template <WeightType Type>
void widen_one(const std::byte* block, float* values) {
  to_floats(Type, {block, size_of(Type)}, {values, 1});
}

void dequantize_q8_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    values[i] = static_cast<float>(signed_byte_at(block + 2, i)) * scale;
  }
}

/// Nibble of an element: the low four bits of byte i are element i, the high ones element i + 16.
unsigned nibble_of(const std::byte* nibbles, std::size_t element) {
  return byte_at(nibbles, element % kHalfBlock) >> (element < kHalfBlock ? 0 : 4) & 15;
}

/// Nibble with a fifth bit from a word with one bit per element.
unsigned five_bits_of(const std::byte* fifth_bits, std::size_t element) {
  const unsigned fifth = byte_at(fifth_bits, element / 8) >> (element % 8) & 1;
  return nibble_of(fifth_bits + 4, element) | fifth << 4;
}

/// Block of a scale and elements around `middle`.
template <auto element_of, int middle>
void dequantize_scaled(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    values[i] = scale * static_cast<float>(static_cast<int>(element_of(block + 2, i)) - middle);
  }
}

/// Block of a scale, the least value, and elements.
template <auto element_of>
void dequantize_shifted(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    values[i] = scale * static_cast<float>(element_of(block + 4, i)) + least;
  }
}

/// Factor of a group's elements, and the value subtracted then.
struct GroupScale {
  float factor = 0;
  float offset = 0;
};

/// Scales of Q4_K and Q5_K, which begin with two halves and twelve bytes of eight pairs of six-bit
/// numbers. Bytes 0 to 3 hold the scales of the first four groups, bytes 4 to 7 their offsets, each
/// in the low six bits; bytes 8 to 11 hold the low four bits of the other groups' scale and offset,
/// whose upper two are the top bits of bytes 0 to 3 and 4 to 7.
std::array<GroupScale, kGroupsInBlock> group_scales(const std::byte* block) {
  const float scale = half_at(block);
  const float offset_scale = half_at(block + 2);
  const std::byte* packed = block + 4;
  std::array<GroupScale, kGroupsInBlock> scales;
  for (std::size_t i = 0; i < kGroupsInBlock / 2; ++i) {
    const unsigned first = byte_at(packed, i);
    const unsigned second = byte_at(packed, i + 4);
    const unsigned third = byte_at(packed, i + 8);
    scales[i] = {.factor = scale * static_cast<float>(first & 63),
                 .offset = offset_scale * static_cast<float>(second & 63)};
    scales[i + 4] = {.factor = scale * static_cast<float>((third & 15) | (first >> 6) << 4),
                     .offset = offset_scale * static_cast<float>(third >> 4 | (second >> 6) << 4)};
  }
  return scales;
}

/// Each 32 bytes hold two groups, in their low and high halves.
unsigned grouped_nibble(const std::byte* nibbles, std::size_t group, std::size_t element) {
  return byte_at(nibbles, group / 2 * kGroupElements + element) >> (group % 2 * 4) & 15;
}

void dequantize_q4_k(const std::byte* block, float* values) {
  const auto scales = group_scales(block);
  const std::byte* nibbles = block + 4 + kPackedScalesBytes;
  for (std::size_t group = 0; group < kGroupsInBlock; ++group) {
    for (std::size_t i = 0; i < kGroupElements; ++i) {
      *values++ = scales[group].factor * static_cast<float>(grouped_nibble(nibbles, group, i)) -
                  scales[group].offset;
    }
  }
}

/// Like Q4_K with a fifth bit: that of element i of group g is bit g of byte i.
void dequantize_q5_k(const std::byte* block, float* values) {
  const auto scales = group_scales(block);
  const std::byte* fifth_bits = block + 4 + kPackedScalesBytes;
  const std::byte* nibbles = fifth_bits + kGroupElements;
  for (std::size_t group = 0; group < kGroupsInBlock; ++group) {
    for (std::size_t i = 0; i < kGroupElements; ++i) {
      const unsigned fifth = byte_at(fifth_bits, i) >> group & 1;
      const unsigned element = grouped_nibble(nibbles, group, i) | fifth << 4;
      *values++ = scales[group].factor * static_cast<float>(element) - scales[group].offset;
    }
  }
}

/// 128 bytes of low halves, 64 of two upper bits, 16 signed scales of 16 elements each, and a scale
/// for these. Each half of the block has four groups of 32: their low bits are the low halves of 64
/// bytes, then the high ones; their upper bits are four pairs in 32 bytes.
void dequantize_q6_k(const std::byte* block, float* values) {
  constexpr std::size_t low_bytes = 128;
  constexpr std::size_t upper_bytes = 64;
  constexpr std::size_t scales_count = 16;
  const std::byte* upper = block + low_bytes;
  const std::byte* scales = upper + upper_bytes;
  const float scale = half_at(scales + scales_count);
  for (std::size_t i = 0; i < kGgufBlockLimit; ++i) {
    const std::size_t half = i / 128;
    const std::size_t group = i % 128 / kGroupElements;
    const unsigned low = byte_at(block, half * 64 + i % 64) >> (group < 2 ? 0 : 4) & 15;
    const unsigned high = byte_at(upper, half * 32 + i % 32) >> (2 * group) & 3;
    const int element = static_cast<int>(low | high << 4) - 32;
    const float factor = scale * static_cast<float>(signed_byte_at(scales, i / 16));
    values[i] = factor * static_cast<float>(element);
  }
}

/// Numbers of one sign bit, two of exponent and one of mantissa, doubled, times half the power of
/// two that the block begins with (Open Compute Project 2023, Microscaling Formats 1.0).
void dequantize_mxfp4(const std::byte* block, float* values) {
  constexpr std::array<float, 16> kDoubled = {0.0F,  1.0F,  2.0F,  3.0F,  4.0F,  6.0F,
                                              8.0F,  12.0F, 0.0F,  -1.0F, -2.0F, -3.0F,
                                              -4.0F, -6.0F, -8.0F, -12.0F};
  constexpr std::uint32_t kMantissaBits = 23;
  constexpr std::uint32_t kQuarter = 1U << (kMantissaBits - 2);  // of the least normal number
  const std::uint32_t exponent = byte_at(block, 0);
  const float half =
      std::bit_cast<float>(exponent < 2 ? kQuarter << exponent : (exponent - 1) << kMantissaBits);
  for (std::size_t i = 0; i < kSmallBlock; ++i) {
    values[i] = half * kDoubled[nibble_of(block + 1, i)];
  }
}

constexpr GgufType kGgufTypes[] = {
    {0, "F32", 1, 4, widen_one<WeightType::f32>},
    {1, "F16", 1, 2, widen_one<WeightType::f16>},
    {30, "BF16", 1, 2, widen_one<WeightType::bf16>},
    {8, "Q8_0", 32, 34, dequantize_q8_0},
    {2, "Q4_0", 32, 18, dequantize_scaled<nibble_of, 8>},
    {3, "Q4_1", 32, 20, dequantize_shifted<nibble_of>},
    {6, "Q5_0", 32, 22, dequantize_scaled<five_bits_of, 16>},
    {7, "Q5_1", 32, 24, dequantize_shifted<five_bits_of>},
    {12, "Q4_K", 256, 144, dequantize_q4_k},
    {13, "Q5_K", 256, 176, dequantize_q5_k},
    {14, "Q6_K", 256, 210, dequantize_q6_k},
    {39, "MXFP4", 32, 17, dequantize_mxfp4},
    {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {40, "NVFP4", 64, 36},
};

}  // namespace

const GgufType* find_gguf_type(std::uint32_t code) {
  for (const GgufType& type : kGgufTypes) {
    if (type.code == code) {
      return &type;
    }
  }
  return nullptr;
}

std::string readable_gguf_types() {
  std::string names;
  for (const GgufType& type : kGgufTypes) {
    if (type.dequantize != nullptr) {
      names += names.empty() ? "" : ", ";
      names += type.name;
    }
  }
  return names;
}

void dequantize_blocks(const GgufType& type, std::span<const std::byte> bytes,
                       std::span<float> values) {
  TRAIN_CHECK(type.dequantize != nullptr && values.size() % type.block_elements == 0);
  const std::size_t blocks = values.size() / type.block_elements;
  TRAIN_CHECK(bytes.size() == blocks * type.block_bytes);
  // Types without blocks are converted in one loop.
  if (type.block_elements == 1) {
    to_floats(*weight_type(type.name), bytes, values);
    return;
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    type.dequantize(bytes.data() + i * type.block_bytes, values.data() + i * type.block_elements);
  }
}

}  // namespace train::storage
