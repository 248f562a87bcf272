#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "checkpoint/models/gguf_keys.hpp"

namespace train::checkpoint {

/// How the elements of a published tensor lie in a GGUF file, where they lie otherwise.
enum class GgufLayout {
  published,
  interleaved_queries,  ///< Rows of each head in pairs (i, i + D/2); so many heads as of queries.
  interleaved_keys,     ///< The same, so many as of keys.
  transposed,           ///< [outputs, inputs], published as [inputs, outputs].
  apart,                ///< [Q | K | V], published head by head.
  plus_one,             ///< A gain 1 + w, published as w.
};

/// A tensor's published name, below that of its layer if it has one, and its name in the file.
struct GgufTensorName {
  std::string_view published;
  std::string_view in_file;
  GgufLayout layout = GgufLayout::published;
};

/// An architecture of GGUF files: what its published form is, as llama.cpp's converter reads it.
struct GgufArchitecture {
  std::string_view name;  ///< general.architecture.
  /// Adds what is the family's own to a config.json that has the common keys. Mistakes in `keys`.
  void (*add_own)(GgufKeys& keys, nlohmann::ordered_json& config);
  std::string_view layers;  ///< Prefix of the published names of layers.
  std::span<const GgufTensorName> of_layer;
  std::span<const GgufTensorName> of_model;
};

/// A tensor of a file that holds a published one.
struct GgufTensor {
  std::string name;
  GgufLayout layout = GgufLayout::published;
};

/// nullptr if there is none.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view name);
/// "llama, qwen2, ..."
[[nodiscard]] std::string known_gguf_architectures();
/// None: the file's architecture has nothing of the kind.
[[nodiscard]] std::optional<GgufTensor> gguf_tensor_of(const GgufArchitecture& architecture,
                                                       std::string_view published);

/// config.json of the model that the file was made of. Errors (user): a key is missing, has an
/// impossible value, or is read by nobody; those of GgufFile::read_fp32. Blocks on the disk.
Result<nlohmann::ordered_json> gguf_config(const GgufArchitecture& architecture,
                                           const storage::GgufFile& file);

}  // namespace train::checkpoint
