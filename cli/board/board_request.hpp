#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace train::cli {

/// The target of an HTTP request, taken apart: "/series.json?run=a%20b&from=3".
struct BoardTarget {
  std::string path;
  std::map<std::string, std::string, std::less<>> query;

  [[nodiscard]] std::string_view text(std::string_view key) const;
  /// None: absent. Negative ones and what is no integer: none, too.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
};

/// None: not an absolute path with percent-encoded ASCII.
[[nodiscard]] std::optional<BoardTarget> parse_board_target(std::string_view target);

/// A file of the page, from the program itself.
struct BoardFile {
  std::string_view path;  ///< "/", "/board.js", ...
  std::string_view type;  ///< Content-Type.
  std::string_view content;
};
/// Null: there is no such file.
[[nodiscard]] const BoardFile* find_board_file(std::string_view path);

/// Whether there is something at `path`: a file of the page, or what the runs say ("/runs.json").
/// Nothing else is a place to send a browser to: "//host/" is another site.
[[nodiscard]] bool is_board_path(std::string_view path);

}  // namespace train::cli
