#include "actors/head/data_identity.hpp"

#include <fmt/format.h>

namespace train::actors {

std::string data_difference(const checkpoint::ManifestFields& saved,
                            const std::filesystem::path& checkpoint, const RunPlan& plan) {
  if (saved.data_fingerprint.empty() || saved.data_fingerprint == plan.data_fingerprint) {
    return {};
  }
  return fmt::format("{} was trained on other data ({}) than data.dir {} holds ({})",
                     checkpoint.string(), saved.data_fingerprint, plan.config.data.dir,
                     plan.data_fingerprint);
}

Result<std::string> data_difference(const std::filesystem::path& checkpoint, const RunPlan& plan) {
  const auto manifest = checkpoint::read_manifest(checkpoint);
  if (!manifest) {
    return manifest.error();
  }
  return data_difference(manifest->fields, checkpoint, plan);
}

}  // namespace train::actors
