#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// Key below "<architecture>.": the number of the last layers, which predict further tokens.
inline constexpr std::string_view kGgufFurtherLayers = "nextn_predict_layers";

/// Reconstructs the config.json of the file's original model, as read by llama.cpp's converter.
/// Errors (user): an unknown architecture (the line lists the known ones); a key that is missing,
/// invalid or not read by this program; those of GgufFile::read_fp32. Blocks on the disk.
Result<nlohmann::ordered_json> gguf_config(const storage::GgufFile& file);

}  // namespace train::checkpoint
