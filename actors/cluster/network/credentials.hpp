#pragma once

#include <chrono>
#include <filesystem>

#include "base/result.hpp"

// Access to the head: only with a certificate made by this start of the run.
namespace train::actors {

/// Files of the control connection, readable only by their owner: read permission grants access to
/// the run.
struct CredentialFiles {
  std::filesystem::path authority;  ///< Certificate trusted by both sides; its key no longer
                                    ///< exists.
  std::filesystem::path head;       ///< Certificate and key of the head,
  std::filesystem::path worker;     ///< and of its workers.
};

/// Validity of each end's certificate from now on; 0 or less: it is rejected.
struct CredentialLife {
  static constexpr std::chrono::hours kLong{10 * 365 * 24};  ///< A run may take long.
  std::chrono::seconds head = kLong;
  std::chrono::seconds worker = kLong;
};

/// Makes an authority for this start (EC P-256; its key never leaves this call), and a certificate
/// for the head and one for the workers. Earlier files in `directory` become invalid. Durable on
/// return; blocks on the disk. Errors: not writable (user); disk full (failure).
[[nodiscard]] Result<CredentialFiles> make_credentials(const std::filesystem::path& directory,
                                                       const CredentialLife& life = {});

/// Files written by make_credentials in `directory`. Errors (user): one is missing, or readable by
/// others.
[[nodiscard]] Result<CredentialFiles> load_credentials(const std::filesystem::path& directory);

}  // namespace train::actors
