#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "checkpoint/load/reader.hpp"
#include "checkpoint/models/export.hpp"
#include "configs/run_config.hpp"
#include "engine/model/spec.hpp"

namespace train::cli {

/// Adds config.json, which names the checkpoint `found`, and the companion files of a published
/// model, to a request for the weights of a run's model. `run`: its directory. Blocks. Errors:
/// those of find_model_config() and published_config().
Status describe_to(checkpoint::ExportRequest& request, const configs::RunConfig& config,
                   const engine::ModelSpec& model, const checkpoint::FoundCheckpoint& found,
                   const std::filesystem::path& run);

}  // namespace train::cli
