#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/files/digest.hpp"
#include "tests/support/disks/crashing_disk.hpp"
#include "tests/support/disks/memory_store.hpp"

// Every state in which a power cut can leave a recorded save.
namespace train::test {

using StoreContent = std::map<std::string, std::string, std::less<>>;

inline constexpr std::array kUnsyncedBytes = {UnsyncedBytes::kept,      UnsyncedBytes::lost,
                                              UnsyncedBytes::torn_512,  UnsyncedBytes::torn_4096,
                                              UnsyncedBytes::holed_512, UnsyncedBytes::holed_4096,
                                              UnsyncedBytes::garbage};

/// A store that remembers what it held after each of its writes, and marks them among the disk's.
class RememberingStore final : public storage::KvStore {
 public:
  Status write(const storage::WriteBatch& batch, storage::Durability durability) override {
    TRAIN_RETURN_IF_ERROR(store.write(batch, durability));
    contents.push_back(store.content);
    if (durability == storage::Durability::synced) {
      synced = contents.size() - 1;
    }
    storage::file_point(fmt::format("store {} {}", contents.size() - 1, synced), mark);
    return {};
  }
  Status scan_from(std::string_view first, std::string_view prefix,
                   const Visitor& visitor) override {
    return store.scan_from(first, prefix, visitor);
  }
  Result<std::optional<std::string>> last_key(std::string_view prefix) override {
    return store.last_key(prefix);
  }

  MemoryStore store;
  std::filesystem::path mark;
  std::vector<StoreContent> contents = {{}};
  std::size_t synced = 0;
};

/// One state of disk and store after a power cut.
struct CrashState {
  std::string name;
  std::map<std::string, std::string> tree;
  const StoreContent* store = nullptr;
  bool published = false;  // the save had been reported as done
};

inline std::string identity(const CrashState& state) {
  std::string text = state.published ? "new" : "any";
  const auto add = [&text](const auto& entries) {
    for (const auto& [key, value] : entries) {
      text += fmt::format("|{}={}", key, storage::digest_text(value));
    }
  };
  add(state.tree);
  add(*state.store);
  return storage::digest_text(text);
}

/// What a recorded save can leave: each prefix of its calls, with what a power cut makes of it.
class CrashStates {
 public:
  CrashStates(const CrashingDisk& before, const std::vector<RecordedCall>& calls,
              const std::vector<StoreContent>& contents)
      : disk_(before), contents_(contents) {
    add_cuts("before all calls");
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const RecordedCall& call = calls[i];
      disk_.apply(call);
      published_ = published_ || call.to == "published";
      if (call.to.starts_with("store ")) {
        std::sscanf(call.to.c_str(), "store %zu %zu", &now_, &synced_);
      }
      add_cuts(fmt::format("after call {} ({} {} {})", i, storage::name_of(call.kind), call.path,
                           call.to));
    }
  }

  [[nodiscard]] const std::vector<CrashState>& all() const { return states_; }
  [[nodiscard]] std::size_t cuts() const { return cuts_; }

 private:
  void add_cuts(const std::string& when) {
    std::vector<UnsyncedEntries> entries = {{UnsyncedEntries::Mode::all, 0},
                                            {UnsyncedEntries::Mode::none, 0}};
    for (std::size_t which = 0; disk_.pending_entries() > 1 && which < disk_.pending_entries();
         ++which) {
      entries.push_back({UnsyncedEntries::Mode::only, which});
      entries.push_back({UnsyncedEntries::Mode::all_but, which});
    }
    static_assert(kUnsyncedBytes[0] == UnsyncedBytes::kept);
    const auto all_bytes =
        std::span(kUnsyncedBytes).first(disk_.has_unsynced_bytes() ? kUnsyncedBytes.size() : 1);
    for (const UnsyncedEntries& entry : entries) {
      for (const UnsyncedBytes bytes : all_bytes) {
        for (const std::size_t store : std::set<std::size_t>{now_, synced_}) {
          ++cuts_;
          CrashState state{fmt::format("{}, entries {}.{}, bytes {}, store {}", when,
                                       static_cast<int>(entry.mode), entry.which,
                                       static_cast<int>(bytes), store),
                           disk_.after_power_cut(entry, bytes), &contents_[store], published_};
          if (seen_.insert(identity(state)).second) {
            states_.push_back(std::move(state));
          }
        }
      }
    }
  }

  CrashingDisk disk_;
  const std::vector<StoreContent>& contents_;
  std::size_t now_ = 0;
  std::size_t synced_ = 0;
  bool published_ = false;
  std::size_t cuts_ = 0;
  std::vector<CrashState> states_;
  std::set<std::string> seen_;
};

}  // namespace train::test
