#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/models/export.hpp"
#include "configs/run_config.hpp"
#include "engine/model/spec.hpp"

namespace train::cli {

/// The adapters of a run's model, in the order of its units; none without [lora].
[[nodiscard]] std::vector<checkpoint::ExportAdapter> adapters_of(const engine::ModelSpec& model);

/// Errors (user): a model's adapters that PEFT does not read: those of routers and single experts
/// where files have one tensor for all experts (GPT-OSS), and those of one matrix of an expert
/// beside another without.
[[nodiscard]] Status check_peft(const engine::ModelSpec& model);

/// adapter_config.json as PEFT reads it.
[[nodiscard]] std::string adapter_config(const configs::RunConfig& config,
                                         const engine::ModelSpec& model);

}  // namespace train::cli
