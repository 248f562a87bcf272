#include "checkpoint/format/run_identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>

#include "checkpoint/format/layout.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIdentityDigits = 32;
constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

}  // namespace

bool is_run_id(std::string_view text) {
  return text.size() == kIdentityDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string new_run_id() {
  std::random_device random;
  std::string id;
  while (id.size() < kIdentityDigits) {
    id += fmt::format("{:08x}", random());
  }
  return id;
}

bool RunIdentity::owns(const Manifest& manifest) const {
  const std::string& named = manifest.fields.run_id;
  return id.empty() || named == id ||
         (named.empty() &&
          std::find(adopted.begin(), adopted.end(), manifest.text_digest) != adopted.end());
}

fs::path identity_file(const fs::path& run) { return run / "identity"; }

Result<std::optional<RunIdentity>> read_identity(const fs::path& run) {
  const fs::path file = identity_file(run);
  if (is_gone(file)) {
    return std::optional<RunIdentity>();
  }
  const auto text = TRAIN_TRY(storage::read_file(file, kMostBytes));
  std::istringstream lines(text);
  RunIdentity identity;
  bool good = text.ends_with('\n') && std::getline(lines, identity.id) && is_run_id(identity.id);
  for (std::string line; good && std::getline(lines, line);) {
    good = storage::is_digest(line);
    identity.adopted.push_back(std::move(line));
  }
  if (!good) {
    return user_error(
        fmt::format("{}: is not the identity of a run; put it back, or remove it: the next start "
                    "then takes that of the newest checkpoint",
                    file.string()));
  }
  return std::optional(std::move(identity));
}

Status write_identity(const fs::path& run, const RunIdentity& identity) {
  std::string text = identity.id + "\n";
  for (const std::string& digest : identity.adopted) {
    text += digest + "\n";
  }
  return storage::write_file_atomically(identity_file(run), text);
}

Status check_identity(const fs::path& checkpoint, const Manifest& manifest,
                      const RunIdentity& identity) {
  if (identity.owns(manifest)) {
    return {};
  }
  const std::string& named = manifest.fields.run_id;
  return user_error(
      fmt::format("{}: is a checkpoint of another run, {} (this run is {}), and is left as it is; "
                  "move it out of {}",
                  checkpoint.string(),
                  named.empty() ? "of a version that gave no identity" : "with identity " + named,
                  identity.id, checkpoint.parent_path().string()));
}

}  // namespace train::checkpoint
