#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// Receives documents piece by piece. Empty documents are not reported.
struct DocumentSink {
  std::function<Status(std::span<const std::byte> piece)> text;  ///< Never empty.
  std::function<Status()> end;                                   ///< The document is complete.
  std::function<void(std::uint64_t bytes)> consumed;  ///< Bytes of the file read further.
};

/// Longest line of a .jsonl input. A document that is longer belongs in a text file.
inline constexpr std::size_t jsonl_line_limit_bytes = std::size_t{32} << 20;

/// Streams the documents of a file in order: those of a `.jsonl` file are the "text" members of its
/// lines (blank lines are skipped); those of any other file are what `separator` cuts, or the whole
/// file if it is empty. `.gz`, `.zst` and `.parquet` are read as open_byte_source() does. Blocks;
/// holds a few MiB, whatever the length of a document. Errors (user): missing, unreadable,
/// malformed (file:line). The sink's errors pass through.
Status read_documents(const std::filesystem::path& path, std::string_view separator,
                      const DocumentSink& sink);

}  // namespace train::storage
