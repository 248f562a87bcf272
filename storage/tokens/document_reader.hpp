#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "storage/inputs/input_layout.hpp"
#include "storage/inputs/line_fault.hpp"
#include "storage/inputs/record_cutter.hpp"

namespace train::storage {

/// Receives documents piece by piece. Empty documents are not reported.
struct DocumentSink {
  std::function<Status(std::span<const std::byte> piece)> text;  ///< Never empty.
  std::function<Status()> end;                                   ///< The document is complete.
  /// A record that gives no document, and why.
  std::function<Status(LineFault fault, const InputRecord& record)> dropped = {};
  std::function<void(std::uint64_t bytes)> consumed;  ///< Bytes of the file read further.
};

/// Streams the documents of a file in order, as InputReader knows it: of JSON and of tables the
/// members "text" of all records, of any other file what `separator` cuts, or the whole file if it
/// is empty. Blocks; holds a few MiB, whatever the length of a document. Errors (user): as
/// InputReader; a separator for what is no text. The sink's errors pass through.
Status read_documents(const std::filesystem::path& path, std::string_view separator,
                      SaidLayout said, const DocumentSink& sink);

}  // namespace train::storage
