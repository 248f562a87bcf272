#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/safetensors.hpp"

namespace train::storage {

/// A weight that a directory holds as small numbers and their scales, in two tensors:
///   fp8    `X` of F8_E4M3 or F8_E5M2 with `X_scale_inv`, one scale for each block of the last two
///          axes (DeepSeek-V3), or one for all: a value is the number times the scale, in fp32.
///   mxfp4  `X_blocks` U8 [..., outputs, groups, 16] with `X_scales` U8 [..., outputs, groups], 32
///          numbers of four bits each and an exponent (OCP Microscaling Formats 1.0; GPT-OSS): the
///          weight is [..., 32 groups, outputs]. Exact in fp32 and in bf16.
struct QuantizedTensor {
  enum class Kind : std::uint8_t { fp8, mxfp4 };
  Kind kind = Kind::fp8;
  TensorEntry entry;                           ///< The weight as others see it; of type BF16.
  std::string numbers, scales;                 ///< Names of the two tensors.
  std::array<std::int64_t, 2> block = {1, 1};  ///< fp8: rows and columns of a scale.
};

/// Reads bytes of a stored tensor, from its byte `offset` on.
using ReadTensorBytes =
    std::function<Status(const std::string& name, std::uint64_t offset, std::span<std::byte> out)>;

/// Finds a stored tensor; nullptr: there is none.
using FindTensor = std::function<const TensorEntry*(const std::string& name)>;

/// The weight that `stored` has the numbers of. `block`: the size of fp8's blocks that config.json
/// gives. Not quantised: an entry without a name. Errors: only the reason, without the file: scales
/// are missing, or fit no blocks.
Result<QuantizedTensor> quantized_tensor(const TensorEntry& stored, const FindTensor& find,
                                         const std::array<std::int64_t, 2>& block);

/// Fills `out` with elements of the weight from `first` on. Takes memory for the scales of those,
/// and for mxfp4 the numbers of one matrix. `find` as above: its types and shapes. Errors: those of
/// `read`.
Status read_quantized(const QuantizedTensor& tensor, const FindTensor& find,
                      const ReadTensorBytes& read, std::uint64_t first, std::span<float> out);

}  // namespace train::storage
