#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace train::cli {

/// Parsed target of an HTTP request: "/series.json?run=a%20b&from=3".
struct BoardTarget {
  std::string path;
  std::map<std::string, std::string, std::less<>> query;

  [[nodiscard]] std::string_view text(std::string_view key) const;
  /// nullopt: missing, negative, or not an integer.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
};

/// nullopt: not an absolute path with percent-encoded ASCII.
[[nodiscard]] std::optional<BoardTarget> parse_board_target(std::string_view target);

/// File of the page, compiled into the program.
struct BoardFile {
  std::string_view path;  ///< "/", "/board.js", ...
  std::string_view type;  ///< Content-Type.
  std::string_view content;
};
/// Null if there is no such file.
[[nodiscard]] const BoardFile* find_board_file(std::string_view path);

/// True if `path` exists: a file of the page, or data of the runs ("/runs.json"). Only such paths
/// are redirect targets: "//host/" is another site.
[[nodiscard]] bool is_board_path(std::string_view path);

}  // namespace train::cli
