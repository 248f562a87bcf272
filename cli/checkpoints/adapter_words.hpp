#pragma once

#include <string>
#include <vector>

#include "checkpoint/models/export.hpp"
#include "configs/run_config.hpp"
#include "engine/model/spec.hpp"

namespace train::cli {

/// The adapters of a run's model, in the order of its units; none without [lora].
[[nodiscard]] std::vector<checkpoint::ExportAdapter> adapters_of(const engine::ModelSpec& model);

/// adapter_config.json as PEFT reads it.
[[nodiscard]] std::string adapter_config(const configs::RunConfig& config,
                                         const engine::ModelSpec& model);

}  // namespace train::cli
