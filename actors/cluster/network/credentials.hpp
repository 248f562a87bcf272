#pragma once

#include <chrono>
#include <filesystem>

#include "base/result.hpp"

// Who may talk to the head: who holds a certificate that this start of the run has made.
namespace train::actors {

/// The control connection's files, readable by their owner alone: whoever may read them may also
/// read the run.
struct CredentialFiles {
  std::filesystem::path authority;  ///< Certificate both sides trust; its key no longer exists.
  std::filesystem::path head;       ///< Certificate and key of the head,
  std::filesystem::path worker;     ///< and of its workers.
};

/// How long each end's certificate is good from now on; 0 or less: it is refused.
struct CredentialLife {
  static constexpr std::chrono::hours kLong{10 * 365 * 24};  ///< A run may last long.
  std::chrono::seconds head = kLong;
  std::chrono::seconds worker = kLong;
};

/// Makes an authority for this start alone (EC P-256; its key never leaves this call), and with it
/// a certificate for the head and one for the workers. What was in `directory` before is worthless
/// from then on. Durable on return; blocks on the disk.
/// Errors: not writable (user); disk full (failure).
[[nodiscard]] Result<CredentialFiles> make_credentials(const std::filesystem::path& directory,
                                                       const CredentialLife& life = {});

/// The files that make_credentials left in `directory`.
/// Errors (user): one is missing, or can be read by others.
[[nodiscard]] Result<CredentialFiles> load_credentials(const std::filesystem::path& directory);

}  // namespace train::actors
