#include "storage/weight_files/quantized_tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "base/check.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::storage {
namespace {

constexpr std::string_view kScaleEnd = "_scale_inv";
constexpr std::string_view kBlocksEnd = "_blocks";
constexpr std::string_view kScalesEnd = "_scales";
constexpr std::int64_t kUsualBlock = 128;  // DeepSeek-V3's, where config.json says nothing.
constexpr std::int64_t kGroup = 32;        // Numbers of a scale in mxfp4, two a byte.
constexpr std::size_t kGroupBytes = kGroup / 2;
constexpr std::size_t kNumbersAtOnce = std::size_t{1} << 18;

using Table = std::array<float, 256>;

/// All values of a type of eight bits: sign, `exponent_bits`, fraction.
Table eight_bit_values(int exponent_bits, int bias, bool infinities) {
  Table values = {};
  const int fraction_bits = 7 - exponent_bits;
  const int largest_exponent = (1 << exponent_bits) - 1;
  const int ones = (1 << fraction_bits) - 1;
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> fraction_bits & largest_exponent;
    const int fraction = code & ones;
    const int first_bit = exponent == 0 ? 0 : ones + 1;
    const int power = std::max(exponent, 1) - bias - fraction_bits;
    float value = std::ldexp(static_cast<float>(first_bit + fraction), power);
    if (infinities && exponent == largest_exponent) {
      value = fraction == 0 ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
    }
    if (!infinities && exponent == largest_exponent && fraction == ones) {
      value = std::numeric_limits<float>::quiet_NaN();
    }
    values[static_cast<std::size_t>(code)] = code >= 128 ? -value : value;
  }
  return values;
}

/// 2^(code - 127); the last one is no number.
Table power_values() {
  Table values = {};
  for (int code = 0; code < 255; ++code) {
    values[static_cast<std::size_t>(code)] = std::ldexp(1.0F, code - 127);
  }
  values[255] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

const Table& table_of(std::string_view dtype) {
  static const Table e4m3 = eight_bit_values(4, 7, false);
  static const Table e5m2 = eight_bit_values(5, 15, true);
  static const Table powers = power_values();
  return dtype == "F8_E4M3" ? e4m3 : dtype == "F8_E5M2" ? e5m2 : powers;
}

constexpr std::array<float, 16> kFourBits = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                             4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                             -2.0F, -3.0F, -4.0F, -6.0F};

bool is_eight_bits(std::string_view dtype) { return dtype == "F8_E4M3" || dtype == "F8_E5M2"; }

/// Bytes of a scale; 0: no type of scales.
std::size_t scale_bytes(std::string_view dtype) {
  const auto type = weight_type(dtype);
  return type ? size_of(*type) : dtype == "U8" || dtype == "F8_E8M0" ? 1 : 0;
}

void to_scales(std::string_view dtype, std::span<const std::byte> bytes, std::span<float> out) {
  if (const auto type = weight_type(dtype)) {
    to_floats(*type, bytes, out);
    return;
  }
  const Table& powers = table_of("F8_E8M0");
  std::ranges::transform(bytes, out.begin(), [&](std::byte code) {
    return powers[std::to_integer<std::size_t>(code)];
  });
}

std::int64_t blocks_of(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// The size of blocks of which `count` cover `size`: the given one, the usual one, or equal parts.
std::optional<std::int64_t> block_size(std::int64_t size, std::int64_t count, std::int64_t given) {
  for (const std::int64_t block : {given, kUsualBlock}) {
    if (block > 0 && blocks_of(size, block) == count) {
      return block;
    }
  }
  return count > 0 && size % count == 0 ? std::optional(size / count) : std::nullopt;
}

std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return count;
}

/// Rows and columns of the last two axes; a vector is one row.
std::array<std::int64_t, 2> matrix_of(std::span<const std::int64_t> shape) {
  return {shape.size() > 1 ? shape[shape.size() - 2] : 1, shape.empty() ? 1 : shape.back()};
}

Result<QuantizedTensor> fp8_tensor(const TensorEntry& stored, const FindTensor& find,
                                   const std::array<std::int64_t, 2>& block) {
  QuantizedTensor tensor{.kind = QuantizedTensor::Kind::fp8,
                         .entry = stored,
                         .numbers = stored.name,
                         .scales = stored.name + std::string(kScaleEnd)};
  tensor.entry.dtype = stored_name(WeightType::bf16);
  const TensorEntry* scales = find(tensor.scales);
  if (scales == nullptr) {
    return failure(fmt::format(
        "tensor {} is of type {} and its scales, tensor {}, are missing: fetch all files of the "
        "model; FP8 with scales of other names is not read",
        stored.name, stored.dtype, tensor.scales));
  }
  const auto [rows, cols] = matrix_of(stored.shape);
  if (product(scales->shape) == 1 && scale_bytes(scales->dtype) > 0) {
    tensor.block = {std::max<std::int64_t>(rows, 1), std::max<std::int64_t>(cols, 1)};
    return tensor;
  }
  const auto [scale_rows, scale_cols] = matrix_of(scales->shape);
  const auto tall = block_size(rows, scale_rows, block[0]);
  const auto wide = block_size(cols, scale_cols, block[1]);
  const bool same_stack =
      scales->shape.size() == stored.shape.size() && stored.shape.size() > 1 &&
      std::equal(scales->shape.begin(), scales->shape.end() - 2, stored.shape.begin());
  if (!same_stack || !tall || !wide || scale_bytes(scales->dtype) == 0) {
    return failure(
        fmt::format("tensor {} [{}] of type {} cannot have the scales {} [{}] of type {}",
                    stored.name, fmt::join(stored.shape, ", "), stored.dtype, scales->name,
                    fmt::join(scales->shape, ", "), scales->dtype));
  }
  tensor.block = {*tall, *wide};
  return tensor;
}

Result<QuantizedTensor> mxfp4_tensor(const TensorEntry& stored, const FindTensor& find) {
  const std::string name = stored.name.substr(0, stored.name.size() - kBlocksEnd.size());
  QuantizedTensor tensor{.kind = QuantizedTensor::Kind::mxfp4,
                         .entry = stored,
                         .numbers = stored.name,
                         .scales = name + std::string(kScalesEnd)};
  const TensorEntry* scales = find(tensor.scales);
  if (scales == nullptr) {
    return failure(
        fmt::format("tensor {} is there and its scales, tensor {}, are missing: fetch "
                    "all files of the model",
                    stored.name, tensor.scales));
  }
  const std::span<const std::int64_t> groups(stored.shape.data(), stored.shape.size() - 1);
  if (scales->dtype != "U8" || !std::ranges::equal(scales->shape, groups)) {
    return failure(fmt::format("tensor {} [{}] cannot have the scales {} [{}] of type {}",
                               stored.name, fmt::join(stored.shape, ", "), scales->name,
                               fmt::join(scales->shape, ", "), scales->dtype));
  }
  tensor.entry.name = name;
  tensor.entry.dtype = stored_name(WeightType::bf16);
  tensor.entry.shape.assign(groups.begin(), groups.end() - 2);
  tensor.entry.shape.push_back(kGroup * groups.back());
  tensor.entry.shape.push_back(groups[groups.size() - 2]);
  return tensor;
}

/// Rows of scales that belong to rows of a stack of matrices.
class ScaleRows {
 public:
  ScaleRows(const QuantizedTensor& tensor, const TensorEntry& scales)
      : tensor_(tensor), scales_(scales) {
    const auto [rows, cols] = matrix_of(tensor.entry.shape);
    rows_ = rows;
    whole_ = product(scales.shape) == 1;
    scale_rows_ = whole_ ? 1 : matrix_of(scales.shape)[0];
    scale_cols_ = whole_ ? 1 : blocks_of(cols, tensor.block[1]);
  }

  /// The scales of a row, counted through the stack.
  Result<std::span<const float>> of_row(std::int64_t row, const ReadTensorBytes& read) {
    const std::int64_t wanted =
        whole_ ? 0 : row / rows_ * scale_rows_ + row % rows_ / tensor_.block[0];
    if (wanted != read_) {
      const std::size_t size = scale_bytes(scales_.dtype);
      const auto count = static_cast<std::size_t>(scale_cols_);
      std::vector<std::byte> bytes(count * size);
      TRAIN_RETURN_IF_ERROR(
          read(tensor_.scales, static_cast<std::uint64_t>(wanted) * bytes.size(), bytes));
      values_.resize(count);
      to_scales(scales_.dtype, bytes, values_);
      read_ = wanted;
    }
    return std::span<const float>(values_);
  }

 private:
  const QuantizedTensor& tensor_;
  const TensorEntry& scales_;
  std::int64_t rows_ = 1, scale_rows_ = 1, scale_cols_ = 1;
  bool whole_ = false;
  std::int64_t read_ = -1;
  std::vector<float> values_;
};

Status read_fp8(const QuantizedTensor& tensor, const FindTensor& find, const ReadTensorBytes& read,
                std::uint64_t first, std::span<float> out) {
  const Table& table = table_of(find(tensor.numbers)->dtype);
  const std::int64_t cols = matrix_of(tensor.entry.shape)[1];
  ScaleRows scales(tensor, *find(tensor.scales));
  std::vector<std::byte> piece(std::min(out.size(), kNumbersAtOnce));
  auto at = static_cast<std::int64_t>(first);
  while (!out.empty()) {
    const std::span<std::byte> bytes(piece.data(), std::min(out.size(), piece.size()));
    TRAIN_RETURN_IF_ERROR(read(tensor.numbers, static_cast<std::uint64_t>(at), bytes));
    std::size_t done = 0;
    while (done < bytes.size()) {  // A part of a row at a time, within a block's columns.
      const std::int64_t col = at % cols;
      const auto row_scales = TRAIN_TRY(scales.of_row(at / cols, read));
      const std::int64_t block = col / tensor.block[1];
      const float scale = row_scales[static_cast<std::size_t>(block)];
      const std::int64_t end = std::min((block + 1) * tensor.block[1], cols);
      const std::size_t count = std::min(static_cast<std::size_t>(end - col), bytes.size() - done);
      for (std::size_t i = 0; i < count; ++i) {
        out[done + i] = table[std::to_integer<std::size_t>(bytes[done + i])] * scale;
      }
      done += count;
      at += static_cast<std::int64_t>(count);
    }
    out = out.subspan(bytes.size());
  }
  return {};
}

/// A matrix of mxfp4: its numbers and scales, by outputs.
struct FourBitMatrix {
  std::int64_t groups = 0;
  std::vector<std::byte> numbers, scales;

  /// The weights of one input, for the outputs from `first` on.
  void values(std::int64_t input, std::int64_t first, std::span<float> out) const {
    const Table& powers = table_of("F8_E8M0");
    const auto step = static_cast<std::size_t>(groups);
    auto group = static_cast<std::size_t>(first * groups + input / kGroup);
    const auto place = static_cast<std::size_t>(input % kGroup);
    const unsigned shift = place % 2 == 0 ? 0 : 4;
    for (float& value : out) {
      const auto pair = std::to_integer<unsigned>(numbers[group * kGroupBytes + place / 2]);
      value = kFourBits[pair >> shift & 15U] * powers[std::to_integer<std::size_t>(scales[group])];
      group += step;
    }
  }
};

Status read_mxfp4(const QuantizedTensor& tensor, const ReadTensorBytes& read, std::uint64_t first,
                  std::span<float> out) {
  const auto [inputs, outputs] = matrix_of(tensor.entry.shape);
  FourBitMatrix matrix{.groups = inputs / kGroup, .numbers = {}, .scales = {}};
  matrix.scales.resize(static_cast<std::size_t>(matrix.groups * outputs));
  matrix.numbers.resize(matrix.scales.size() * kGroupBytes);
  std::int64_t held = -1;
  auto at = static_cast<std::int64_t>(first);
  while (!out.empty()) {
    const std::int64_t row = at / outputs;  // Counted through the stack.
    if (row / inputs != held) {
      held = row / inputs;
      const auto place = static_cast<std::uint64_t>(held);
      TRAIN_RETURN_IF_ERROR(read(tensor.numbers, place * matrix.numbers.size(), matrix.numbers));
      TRAIN_RETURN_IF_ERROR(read(tensor.scales, place * matrix.scales.size(), matrix.scales));
    }
    const std::int64_t col = at % outputs;
    const std::size_t count = std::min(out.size(), static_cast<std::size_t>(outputs - col));
    matrix.values(row % inputs, col, out.first(count));
    out = out.subspan(count);
    at += static_cast<std::int64_t>(count);
  }
  return {};
}

}  // namespace

Result<QuantizedTensor> quantized_tensor(const TensorEntry& stored, const FindTensor& find,
                                         const std::array<std::int64_t, 2>& block) {
  if (is_eight_bits(stored.dtype)) {
    return fp8_tensor(stored, find, block);
  }
  const bool four_bits = stored.dtype == "U8" && stored.name.ends_with(kBlocksEnd) &&
                         stored.shape.size() >= 3 &&
                         stored.shape.back() == static_cast<std::int64_t>(kGroupBytes);
  return four_bits ? mxfp4_tensor(stored, find) : QuantizedTensor();
}

Status read_quantized(const QuantizedTensor& tensor, const FindTensor& find,
                      const ReadTensorBytes& read, std::uint64_t first, std::span<float> out) {
  return tensor.kind == QuantizedTensor::Kind::fp8 ? read_fp8(tensor, find, read, first, out)
                                                   : read_mxfp4(tensor, read, first, out);
}

}  // namespace train::storage
