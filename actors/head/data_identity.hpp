#pragma once

#include <filesystem>
#include <string>

#include "actors/head/run_plan.hpp"
#include "base/result.hpp"
#include "checkpoint/manifest.hpp"

namespace train::actors {

/// Whether data.dir holds the tokens that a checkpoint was trained on: one line that names the
/// checkpoint in directory `checkpoint` and data.dir, with the fingerprints of both, if they
/// differ. Empty: they are the same, or the checkpoint, of an earlier version, does not say.
[[nodiscard]] std::string data_difference(const checkpoint::ManifestFields& saved,
                                          const std::filesystem::path& checkpoint,
                                          const RunPlan& plan);

/// The same of the checkpoint's manifest. Blocks. Errors: those of read_manifest().
[[nodiscard]] Result<std::string> data_difference(const std::filesystem::path& checkpoint,
                                                  const RunPlan& plan);

}  // namespace train::actors
