#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace train::tidy {

/// One text file of the repository.
struct SourceFile {
  std::string path;                ///< From the repository root: "engine/model/blocks/block.hpp".
  std::vector<std::string> lines;  ///< Without line ends.

  [[nodiscard]] bool is_header() const;  ///< .hpp or .cuh
  [[nodiscard]] bool is_code() const;    ///< A header, .cpp or .cu
  [[nodiscard]] std::string_view name() const;
  [[nodiscard]] bool contains(std::string_view text) const;
};

using SourceTree = std::vector<SourceFile>;

/// What breaks a rule, one line each: "path:line: what".
using Findings = std::vector<std::string>;

/// Every text file of this repository's folders and of its root, sorted by path. Read once.
[[nodiscard]] const SourceTree& repository();

/// A file from literal text, to prove that a rule can fail.
[[nodiscard]] SourceFile make_file(std::string path, std::string_view text);

/// The file at `path` on the disk, named by its path below `root`.
[[nodiscard]] SourceFile read_file(const std::filesystem::path& root,
                                   const std::filesystem::path& path);

/// The file at `path`; null: there is none.
[[nodiscard]] const SourceFile* find_file(const SourceTree& tree, std::string_view path);

/// The first component of the path: "engine"; "" for files of the root.
[[nodiscard]] std::string folder_of(std::string_view path);

/// Whether `line` has one of `words`: asked before a search whose matches all have one, for the
/// library's regular expressions take most of the time of all rules.
[[nodiscard]] bool has_any(std::string_view line, std::initializer_list<std::string_view> words);

/// "path:line: what"; lines count from 1.
[[nodiscard]] std::string finding(const SourceFile& file, std::size_t index, std::string_view what);

/// The findings as one text, for a failing check.
[[nodiscard]] std::string joined(const Findings& findings);

}  // namespace train::tidy
