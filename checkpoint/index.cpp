#include "checkpoint/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "storage/atomic_file.hpp"
#include "storage/digest.hpp"

namespace train::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view entry_prefix = "checkpoint/";
constexpr std::string_view journal_prefix = "journal/";
/// Digest of the newest manifest at the last rebuild: its copy of the head is of the chain before.
constexpr std::string_view rebuilt_key = "rebuilt";
constexpr std::uint64_t manifest_limit_bytes = std::uint64_t{256} << 20;

std::string entry_key(std::int64_t step) { return fmt::format("{}{:020}", entry_prefix, step); }

std::string journal_key(std::size_t sequence) {
  return fmt::format("{}{:020}", journal_prefix, sequence);
}

std::string entry_text(const IndexEntry& entry) {
  const nlohmann::ordered_json object = {{"step", entry.step},
                                         {"directory", entry.directory},
                                         {"state", entry.state},
                                         {"manifest_digest", entry.manifest_digest},
                                         {"recorded_s", entry.recorded_s}};
  return object.dump();
}

std::optional<IndexEntry> parse_entry(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  const auto is = [&object](const char* key, bool number) {
    const auto found = object.find(key);
    return found != object.end() && (number ? found->is_number_integer() : found->is_string());
  };
  if (!object.is_object() || !is("step", true) || !is("directory", false) || !is("state", false) ||
      !is("manifest_digest", false) || !is("recorded_s", true)) {
    return std::nullopt;
  }
  return IndexEntry{object["step"], object["directory"], object["state"], object["manifest_digest"],
                    object["recorded_s"]};
}

/// Chain digest after an entry: of the digest before it and the entry.
std::string chained(std::span<const std::string> chain, std::string_view entry) {
  return storage::digest_text(
      fmt::format("{}\n{}", chain.empty() ? "" : chain.back().c_str(), entry));
}

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct OnDisk {
  std::string manifest_digest;
  std::string index_head;
};

/// The checkpoints on disk with a readable manifest, by step.
Result<std::map<std::int64_t, OnDisk>> read_manifests(const std::filesystem::path& checkpoints) {
  const auto candidates = list_checkpoints(checkpoints);
  if (!candidates) {
    return candidates.error();
  }
  std::map<std::int64_t, OnDisk> found;
  for (const Candidate& candidate : *candidates) {
    const auto path = candidate.path / manifest_file_name;
    std::error_code code;
    if (!std::filesystem::is_regular_file(path, code)) {
      continue;
    }
    const auto text = storage::read_file(path, manifest_limit_bytes);
    if (!text) {
      return text.error();
    }
    const auto manifest = parse_manifest(*text, path.string());
    if (manifest && manifest->fields.step == candidate.step) {
      found[candidate.step] = {storage::digest_text(*text), manifest->fields.index_head};
    }
  }
  return found;
}

}  // namespace

Result<CheckpointIndex> CheckpointIndex::open(storage::KvStore& store,
                                              std::filesystem::path checkpoints) {
  CheckpointIndex index(store, std::move(checkpoints));
  TRAIN_RETURN_IF_ERROR(index.load());
  TRAIN_RETURN_IF_ERROR(index.reconcile());
  return index;
}

/// Reads journal and entries; `damage_` tells why they cannot be trusted, if so.
Status CheckpointIndex::load() {
  std::map<std::int64_t, std::string> replayed;
  TRAIN_RETURN_IF_ERROR(
      store_->scan(journal_prefix, [&](std::string_view key, std::string_view value) {
        const std::size_t split = value.find('\n');
        const std::string_view body = value.substr(0, split);
        const std::string link = chained(chain_, body);
        if (key != journal_key(chain_.size() + 1) || split == std::string_view::npos ||
            value.substr(split + 1) != link) {
          damage_ = fmt::format("journal entry {} does not continue the chain", chain_.size() + 1);
          return false;
        }
        chain_.push_back(link);
        const bool present = body.starts_with('+');
        const auto entry = parse_entry(body.substr(1));
        if (!entry) {
          damage_ = fmt::format("journal entry {} is unreadable", chain_.size());
          return false;
        }
        present ? void(replayed[entry->step] = body.substr(1)) : void(replayed.erase(entry->step));
        return true;
      }));
  std::map<std::int64_t, std::string> stored;
  TRAIN_RETURN_IF_ERROR(store_->scan(entry_prefix, [&](std::string_view, std::string_view value) {
    if (const auto entry = parse_entry(value)) {
      stored[entry->step] = value;
      entries_.push_back(*entry);
      return true;
    }
    damage_ = "an entry is unreadable";
    return false;
  }));
  if (damage_.empty() && stored != replayed) {
    damage_ = "the entries differ from the journal";
  }
  return {};
}

bool CheckpointIndex::holds_head(const std::string& head) const {
  const std::size_t split = head.find(':');
  if (head.empty() || split == 0 || split == std::string::npos || split > 18 ||
      head.find_first_not_of("0123456789") != split) {
    return head.empty();
  }
  const auto sequence = static_cast<std::size_t>(std::stoull(head.substr(0, split)));
  return sequence == 0 || (sequence <= chain_.size() &&
                           chain_[sequence - 1] == std::string_view(head).substr(split + 1));
}

Status CheckpointIndex::reconcile() {
  const auto disk = read_manifests(checkpoints_);
  if (!disk) {
    return disk.error();
  }
  const auto rebuilt = store_->get(rebuilt_key);
  if (!rebuilt) {
    return rebuilt.error();
  }
  // The newest manifest knows how far the index had come when it was written.
  if (damage_.empty() && !disk->empty() && *rebuilt != disk->rbegin()->second.manifest_digest &&
      !holds_head(disk->rbegin()->second.index_head)) {
    damage_ = fmt::format("{} knows of index changes that the index lost",
                          checkpoint_name(disk->rbegin()->first));
  }
  if (!damage_.empty()) {
    return rebuild(damage_);
  }
  const std::vector<IndexEntry> recorded = entries_;
  for (const IndexEntry& entry : recorded) {
    const auto found = disk->find(entry.step);
    if (found == disk->end() || found->second.manifest_digest != entry.manifest_digest) {
      TRAIN_RETURN_IF_ERROR(forget(entry.step));
      report_.dropped.push_back(entry.directory);
    }
  }
  for (const auto& [step, state] : *disk) {
    const bool known = std::any_of(entries_.begin(), entries_.end(),
                                   [step = step](const auto& entry) { return entry.step == step; });
    if (!known) {
      TRAIN_RETURN_IF_ERROR(record(step, state.manifest_digest));
      report_.adopted.push_back(checkpoint_name(step));
    }
  }
  return {};
}

Status CheckpointIndex::rebuild(std::string reason) {
  const auto disk = read_manifests(checkpoints_);
  if (!disk) {
    return disk.error();
  }
  storage::WriteBatch clear;
  for (const std::string_view prefix : {entry_prefix, journal_prefix}) {
    TRAIN_RETURN_IF_ERROR(store_->scan(prefix, [&](std::string_view key, std::string_view) {
      clear.remove(std::string(key));
      return true;
    }));
  }
  if (!disk->empty()) {
    clear.put(std::string(rebuilt_key), disk->rbegin()->second.manifest_digest);
  }
  TRAIN_RETURN_IF_ERROR(store_->write(clear, storage::Durability::synced));
  entries_.clear();
  chain_.clear();
  damage_.clear();
  report_ = {.adopted = {}, .dropped = {}, .rebuilt = true, .reason = std::move(reason)};
  for (const auto& [step, state] : *disk) {
    TRAIN_RETURN_IF_ERROR(record(step, state.manifest_digest));
    report_.adopted.push_back(checkpoint_name(step));
  }
  return {};
}

Status CheckpointIndex::record(std::int64_t step, const std::string& manifest_digest) {
  const auto same = std::find_if(entries_.begin(), entries_.end(), [&](const IndexEntry& entry) {
    return entry.step == step && entry.manifest_digest == manifest_digest;
  });
  if (same != entries_.end()) {
    return {};
  }
  return append({step, checkpoint_name(step), "published", manifest_digest, now_s()}, true);
}

Status CheckpointIndex::forget(std::int64_t step) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [step](const IndexEntry& entry) { return entry.step == step; });
  return found == entries_.end() ? Status{} : append(IndexEntry(*found), false);
}

Status CheckpointIndex::append(const IndexEntry& entry, bool present) {
  const std::string text = entry_text(entry);
  const std::string body = (present ? '+' : '-') + text;
  const std::string link = chained(chain_, body);
  storage::WriteBatch batch;
  batch.put(journal_key(chain_.size() + 1), fmt::format("{}\n{}", body, link));
  present ? batch.put(entry_key(entry.step), text) : batch.remove(entry_key(entry.step));
  TRAIN_RETURN_IF_ERROR(store_->write(batch, storage::Durability::synced));
  chain_.push_back(link);
  std::erase_if(entries_, [&](const IndexEntry& other) { return other.step == entry.step; });
  if (present) {
    entries_.push_back(entry);
    std::sort(entries_.begin(), entries_.end(),
              [](const IndexEntry& a, const IndexEntry& b) { return a.step < b.step; });
  }
  return {};
}

std::string CheckpointIndex::head() const {
  return chain_.empty() ? std::string() : fmt::format("{}:{}", chain_.size(), chain_.back());
}

}  // namespace train::checkpoint
