#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// Which run a checkpoint is of (CK-11): a random number of the run's first start, in the file
/// `identity` of its directory, so that a copied directory keeps it, and in every manifest. It says
/// nothing of the bits: two equal runs have two.
struct RunIdentity {
  std::string id = {};  ///< 32 hexadecimal digits; empty: nothing is compared.
  /// Digests of the manifests, without an identity, of earlier versions' checkpoints that the run
  /// had when it got its own.
  std::vector<std::string> adopted = {};

  /// Whether a manifest that was read is one of the run's.
  [[nodiscard]] bool owns(const Manifest& manifest) const;
};

/// Whether `text` can be RunIdentity::id.
[[nodiscard]] bool is_run_id(std::string_view text);
/// Another one each time.
[[nodiscard]] std::string new_run_id();

[[nodiscard]] std::filesystem::path identity_file(const std::filesystem::path& run);
/// That of the run in directory `run`; none: it has not got one yet. Blocks. Errors (user): the
/// file is none of these.
[[nodiscard]] Result<std::optional<RunIdentity>> read_identity(const std::filesystem::path& run);
/// Durable on return. Blocks.
[[nodiscard]] Status write_identity(const std::filesystem::path& run, const RunIdentity& identity);

/// Success where `identity` owns the manifest of the directory `checkpoint`. Errors (user): it is
/// another run's.
[[nodiscard]] Status check_identity(const std::filesystem::path& checkpoint,
                                    const Manifest& manifest, const RunIdentity& identity);

}  // namespace train::checkpoint
