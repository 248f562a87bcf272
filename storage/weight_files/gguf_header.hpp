#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "storage/files/input_file.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::storage {

/// Header of a GGUF file, before its tensors.
struct GgufHeader {
  std::uint32_t version = 0;
  GgufMetadata metadata = {};
  std::vector<GgufEntry> entries = {};  ///< In file order; all checks passed.
};

/// Reads and checks metadata and tensor table. Errors: only the reason, on one short line, without
/// the file (failure); those of InputFile::read.
Result<GgufHeader> read_gguf_header(const InputFile& file);

}  // namespace train::storage
