#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/manifest.hpp"

namespace train::checkpoint {

enum class ExportType : std::uint8_t {
  fp32,  ///< The checkpoint's bits.
  bf16,  ///< Each element rounded to the nearest, halves to even.
};

/// The upper half of a float32 after rounding to nearest, halves to even. A NaN stays one.
[[nodiscard]] std::uint16_t round_to_bf16(float value);

/// A weight under the name it gets; the checkpoint holds it as weight_name().
struct ExportTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct ExportRequest {
  std::filesystem::path directory;    ///< New, or empty.
  std::vector<ExportTensor> tensors;  ///< All the model's, in the order they are to be stored.
  ExportType type = ExportType::fp32;
  std::uint64_t max_file_bytes = 5'000'000'000;  ///< Of tensors; one tensor may exceed it.
  std::string config_text;                       ///< Becomes config.json.
  std::function<bool()> stop = {};               ///< Asked now and then; true ends the export.
};

struct ExportReport {
  std::vector<std::string> files;  ///< Those with tensors.
  std::size_t tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::size_t compared = 0;  ///< Tensors read back and found to be the checkpoint's.
};

/// Writes the weights of a checkpoint, put together from all its shards, for other programs:
/// `model.safetensors`, or above the limit `model-00001-of-0000N.safetensors` ... with
/// `model.safetensors.index.json`; and `config.json`. The directory appears whole, durable, and
/// after every tensor was read back and compared with the checkpoint, or not at all. Needs memory
/// for the largest tensor, or for 64 MiB of them. Blocks.
/// Errors: (user) the directory holds something; the checkpoint's weights are not those of
/// `tensors`; those of make_directory; (failure) damage, full disk, stopped.
Result<ExportReport> export_weights(const std::filesystem::path& checkpoint,
                                    const Manifest& manifest, const ExportRequest& request);

}  // namespace train::checkpoint
