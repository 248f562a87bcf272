#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "storage/inputs/input_layout.hpp"
#include "storage/inputs/line_fault.hpp"
#include "storage/inputs/record_cutter.hpp"

namespace train::data {

/// Receives documents piece by piece. Empty documents are not reported.
struct DocumentSink {
  std::function<Status(std::span<const std::byte> piece)> text;  ///< Never empty.
  std::function<Status()> end;                                   ///< The document is complete.
  /// Record that yields no document, with the reason.
  std::function<Status(storage::LineFault fault, const storage::InputRecord& record)> dropped = {};
  std::function<void(std::uint64_t bytes)> consumed;  ///< Number of further bytes of the file that
                                                      ///< were read.
};

/// Streams the documents of a file in order. Input format as in InputReader: for JSON and tables
/// the member "text" of each record; otherwise the text split by `separator`, or the whole file if
/// it is empty. Blocks; holds a few MiB, for documents of any length. Errors (user): as
/// InputReader; a separator for an input that is not text; the sink's errors.
Status read_documents(const std::filesystem::path& path, std::string_view separator,
                      storage::SaidLayout said, const DocumentSink& sink);

}  // namespace train::data
