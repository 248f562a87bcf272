#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// Identity of the run that a checkpoint belongs to (CK-11): a random number from the run's first
/// start, in the file `identity` of its directory, so that a copied directory keeps it, and in
/// every manifest. It is independent of the bits: two equal runs have different identities.
struct RunIdentity {
  std::string id = {};  ///< 32 hexadecimal digits; empty: nothing is compared.
  /// Digests of the manifests, without an identity, of checkpoints of earlier versions that existed
  /// when the run got its identity.
  std::vector<std::string> adopted = {};

  /// True if a manifest belongs to the run.
  [[nodiscard]] bool owns(const Manifest& manifest) const;
};

/// True if `text` has the form of RunIdentity::id.
[[nodiscard]] bool is_run_id(std::string_view text);
/// Makes a new random id.
[[nodiscard]] std::string new_run_id();

[[nodiscard]] std::filesystem::path identity_file(const std::filesystem::path& run);
/// Identity of the run in directory `run`; nullopt: it has none yet. Blocks. Errors (user): the
/// file is malformed.
[[nodiscard]] Result<std::optional<RunIdentity>> read_identity(const std::filesystem::path& run);
/// Durable on return. Blocks.
[[nodiscard]] Status write_identity(const std::filesystem::path& run, const RunIdentity& identity);

/// Succeeds if `identity` owns the manifest of the directory `checkpoint`. Errors (user): it
/// belongs to another run.
[[nodiscard]] Status check_identity(const std::filesystem::path& checkpoint,
                                    const Manifest& manifest, const RunIdentity& identity);

}  // namespace train::checkpoint
