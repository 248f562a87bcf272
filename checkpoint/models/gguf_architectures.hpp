#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// config.json of the model that the file was made of, as llama.cpp's converter reads it. Errors
/// (user): an architecture that is not known (the line lists those that are); a key is missing, has
/// an impossible value, or is read by nobody; those of GgufFile::read_fp32. Blocks on the disk.
Result<nlohmann::ordered_json> gguf_config(const storage::GgufFile& file);

}  // namespace train::checkpoint
