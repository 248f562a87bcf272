#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "tests/support/disks/power_cut.hpp"
#include "tests/support/disks/recording_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// Model of a disk under power cuts, with the minimal guarantees of POSIX: fsync of a file makes
/// its bytes durable, fsync of a directory its entries, and nothing else does. A rename within a
/// directory is atomic.
class CrashingDisk {
 public:
  /// Starts with the content of `root`, all of it durable.
  explicit CrashingDisk(const std::filesystem::path& root) : nodes_(1) {
    nodes_[0].directory = true;
    scan(root, 0);
  }

  void apply(const RecordedCall& call) {
    using storage::FileCallKind;
    switch (call.kind) {
      case FileCallKind::open: {
        const std::size_t file = find_or_add(call.path, false);
        if (call.empties) {
          nodes_[file].now.clear();
        }
        break;
      }
      case FileCallKind::write:
        write(nodes_[at(call.path)].now, call);
        break;
      case FileCallKind::truncate:
        nodes_[at(call.path)].now.resize(call.size_bytes);
        break;
      case FileCallKind::sync:
        nodes_[at(call.path)].synced = nodes_[at(call.path)].now;
        break;
      case FileCallKind::rename:
        rename(call.path, call.to);
        break;
      case FileCallKind::make_directory:
        find_or_add(call.path, true);
        break;
      case FileCallKind::sync_directory: {
        Node& node = nodes_[at(call.path)];
        node.synced_entries = node.entries;
        node.pending.clear();
        break;
      }
      case FileCallKind::unlink:
      case FileCallKind::remove_directory:
        change(parent_of(call.path), {{name_of_path(call.path), std::nullopt}});
        break;
      case FileCallKind::close:
      case FileCallKind::point:
        break;
    }
  }

  /// Number of directory changes not yet synced.
  [[nodiscard]] std::size_t pending_entries() const {
    std::size_t count = 0;
    for (const Node& node : nodes_) {
      count += node.pending.size();
    }
    return count;
  }

  /// False: all kinds of power cut leave the same bytes.
  [[nodiscard]] bool has_unsynced_bytes() const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [](const Node& node) { return node.now != node.synced; });
  }

  /// Files and directories left by a power cut, by path below the root; a directory's path ends
  /// with a slash.
  [[nodiscard]] std::map<std::string, std::string> after_power_cut(UnsyncedEntries entries,
                                                                   UnsyncedBytes bytes) const {
    std::map<std::string, std::string> tree;
    std::size_t number = 0;
    std::vector<std::map<std::string, std::size_t>> kept;
    for (const Node& node : nodes_) {  // A fixed order gives `which` a fixed meaning.
      auto left = node.synced_entries;
      for (const Change& pending : node.pending) {
        if (happens(entries, number++)) {
          put(left, pending);
        }
      }
      kept.push_back(std::move(left));
    }
    list(0, "", kept, bytes, tree);
    return tree;
  }

 private:
  using Change = std::vector<std::pair<std::string, std::optional<std::size_t>>>;
  struct Node {
    bool directory = false;
    std::string now;
    std::string synced;
    std::map<std::string, std::size_t> entries;
    std::map<std::string, std::size_t> synced_entries;
    std::vector<Change> pending;
  };

  void scan(const std::filesystem::path& directory, std::size_t node) {
    for (const std::string& name : names_in(directory)) {
      const std::size_t child = nodes_.size();
      nodes_.emplace_back();
      nodes_[node].entries[name] = child;
      nodes_[node].synced_entries[name] = child;
      if (std::filesystem::is_directory(directory / name)) {
        nodes_[child].directory = true;
        scan(directory / name, child);
      } else {
        nodes_[child].now = nodes_[child].synced = read_bytes(directory / name);
      }
    }
  }

  static void write(std::string& content, const RecordedCall& call) {
    const std::size_t begin = call.offset ? *call.offset : content.size();
    content.resize(std::max(content.size(), begin + call.bytes.size()));
    content.replace(begin, call.bytes.size(), call.bytes);
  }
  static std::string name_of_path(const std::filesystem::path& path) {
    return path.filename().string();
  }
  [[nodiscard]] std::size_t parent_of(const std::filesystem::path& path) const {
    return at(path.parent_path());
  }
  [[nodiscard]] std::size_t at(const std::filesystem::path& path) const {
    std::size_t node = 0;
    for (const auto& part : path) {
      if (part != "." && !part.empty()) {
        TRAIN_CHECK(nodes_[node].entries.contains(part.string()), "no such file: {}",
                    path.string());
        node = nodes_[node].entries.at(part.string());
      }
    }
    return node;
  }
  std::size_t find_or_add(const std::filesystem::path& path, bool directory) {
    const std::size_t parent = parent_of(path);
    const auto found = nodes_[parent].entries.find(name_of_path(path));
    if (found != nodes_[parent].entries.end()) {
      return found->second;
    }
    nodes_.emplace_back();
    nodes_.back().directory = directory;
    change(parent, {{name_of_path(path), nodes_.size() - 1}});
    return nodes_.size() - 1;
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    const std::size_t node = at(from);
    const std::size_t source = parent_of(from);
    const std::size_t target = parent_of(to);
    if (source == target) {
      change(source, {{name_of_path(from), std::nullopt}, {name_of_path(to), node}});
    } else {
      change(target, {{name_of_path(to), node}});
      change(source, {{name_of_path(from), std::nullopt}});
    }
  }
  void change(std::size_t directory, const Change& change) {
    put(nodes_[directory].entries, change);
    nodes_[directory].pending.push_back(change);
  }
  static void put(std::map<std::string, std::size_t>& entries, const Change& change) {
    for (const auto& [name, node] : change) {
      if (node) {
        entries[name] = *node;
      } else {
        entries.erase(name);
      }
    }
  }

  static bool happens(UnsyncedEntries entries, std::size_t number) {
    switch (entries.mode) {
      case UnsyncedEntries::Mode::all:
        return true;
      case UnsyncedEntries::Mode::none:
        return false;
      case UnsyncedEntries::Mode::only:
        return number == entries.which;
      default:
        return number != entries.which;
    }
  }

  void list(std::size_t node, const std::string& path,
            const std::vector<std::map<std::string, std::size_t>>& entries, UnsyncedBytes bytes,
            std::map<std::string, std::string>& tree) const {
    for (const auto& [name, child] : entries[node]) {
      if (nodes_[child].directory) {
        tree[path + name + "/"] = "";
        list(child, path + name + "/", entries, bytes, tree);
      } else {
        tree[path + name] = content_left(nodes_[child].now, nodes_[child].synced, bytes);
      }
    }
  }

  std::vector<Node> nodes_;
};

}  // namespace train::test
