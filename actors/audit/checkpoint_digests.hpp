#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "engine/base/result.hpp"

namespace train::actors {

/// Names of the tensors of a checkpoint, sorted: as engine::tensor_names() of its run.
[[nodiscard]] std::vector<std::string> tensor_names(const checkpoint::Manifest& manifest);

/// Digests of the tensors in the checkpoint in `directory`, by tensor_names(); they are those that
/// its run had. Reads it all, with memory for some MiB. Blocks. Errors (failure): damage.
[[nodiscard]] Result<std::vector<std::uint64_t>> tensor_digests(
    const std::filesystem::path& directory, const checkpoint::Manifest& manifest);

}  // namespace train::actors
