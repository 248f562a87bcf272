#include "checkpoint/index/located_manifests.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/format/manifest.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/input_file.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Text of a manifest; nullopt: it is missing (possibly removed meanwhile), or not a regular file.
/// Failing to read it is an error, as its content is then unknown.
Result<std::optional<std::string>> text_of(const Candidate& candidate) {
  using Text = std::optional<std::string>;
  const fs::path path = candidate.path / kManifestFileName;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (status.type() == fs::file_type::none) {
    return storage::os_error(storage::Access::read, path, code.value());
  }
  if (!fs::is_regular_file(status)) {
    return Text();
  }
  const auto file = storage::InputFile::open(path);
  if (!file) {
    return is_gone(path) ? Result<Text>(Text()) : file.error();
  }
  if (file->size_bytes() > kManifestTextLimit) {
    return Text();
  }
  auto text = file->read_text(kManifestTextLimit);
  if (!text) {
    return is_gone(path) ? Result<Text>(Text()) : text.error();
  }
  return Text(std::move(text).value());
}

struct Read {
  Manifest manifest;
  std::string digest;
};

Result<std::optional<Read>> read(const Candidate& candidate, const RunIdentity& identity) {
  const auto text = TRAIN_TRY(text_of(candidate));
  if (!text) {
    return std::optional<Read>();
  }
  auto manifest = parse_manifest(*text, candidate.path.string());
  if (!manifest || manifest->fields.step != candidate.step) {
    return std::optional<Read>();
  }
  TRAIN_RETURN_IF_ERROR(check_identity(candidate.path, *manifest, identity));
  return std::optional(Read{std::move(manifest).value(), storage::digest_text(*text)});
}

}  // namespace

Result<LocatedManifests> LocatedManifests::list(const fs::path& checkpoints, RunIdentity identity) {
  auto found = TRAIN_TRY(list_checkpoints(checkpoints));
  LocatedManifests placed;
  placed.identity_ = std::move(identity);
  placed.placed_.assign(found.rbegin(), found.rend());
  return placed;
}

bool LocatedManifests::has(std::int64_t step) const {
  return std::binary_search(placed_.begin(), placed_.end(), Candidate{step, {}},
                            [](const auto& a, const auto& b) { return a.step < b.step; });
}

Result<std::optional<std::string>> LocatedManifests::digest_of(const Candidate& candidate) {
  const auto text = TRAIN_TRY(text_of(candidate));
  return text ? std::optional(storage::digest_text(*text)) : std::optional<std::string>();
}

Result<std::optional<IndexEntry>> LocatedManifests::entry_at(const Candidate& candidate) const {
  auto found = TRAIN_TRY(read(candidate, identity_));
  if (!found) {
    return std::optional<IndexEntry>();
  }
  IndexEntry entry = entry_of(found->manifest, std::move(found->digest));
  struct stat facts = {};
  if (::stat((candidate.path / kManifestFileName).c_str(), &facts) == 0) {
    entry.recorded_s = facts.st_mtim.tv_sec;
  }
  return std::optional(std::move(entry));
}

Result<std::optional<LocatedManifests::Newest>> LocatedManifests::newest() const {
  for (auto candidate = placed_.rbegin(); candidate != placed_.rend(); ++candidate) {
    auto found = TRAIN_TRY(read(*candidate, identity_));
    if (found) {
      return std::optional(Newest{candidate->step, std::move(found->digest),
                                  std::move(found->manifest.fields.index_head)});
    }
  }
  return std::optional<Newest>();
}

}  // namespace train::checkpoint
