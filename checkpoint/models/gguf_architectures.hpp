#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "checkpoint/models/gguf_keys.hpp"

namespace train::checkpoint {

/// An architecture of GGUF files: what its config.json was, as llama.cpp's converter reads it.
struct GgufArchitecture {
  std::string_view name;  ///< general.architecture.
  /// Adds what is the family's own to a config.json that has the common keys. Mistakes in `keys`.
  void (*add_own)(GgufKeys& keys, nlohmann::ordered_json& config);
};

/// nullptr if there is none.
[[nodiscard]] const GgufArchitecture* find_gguf_architecture(std::string_view name);
/// "llama, qwen2, ..."
[[nodiscard]] std::string known_gguf_architectures();

/// config.json of the model that the file was made of. Errors (user): a key is missing, has an
/// impossible value, or is read by nobody; those of GgufFile::read_fp32. Blocks on the disk.
Result<nlohmann::ordered_json> gguf_config(const GgufArchitecture& architecture,
                                           const storage::GgufFile& file);

}  // namespace train::checkpoint
