#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/examples/example.hpp"
#include "storage/examples/row_report.hpp"
#include "storage/inputs/input_layout.hpp"
#include "storage/rows/packing.hpp"
#include "storage/tokens/prepare.hpp"

namespace train::storage {

struct PrepareRowsRequest {
  std::vector<std::filesystem::path> inputs{};  ///< As InputReader knows them.
  SaidLayout layout = SaidLayout::nothing;      ///< How examples lie in them.
  std::string tokenizer{};                      ///< A directory or a file.
  std::filesystem::path out{};                  ///< Created if missing.
  std::int64_t row_length = 0;                  ///< T, tokens; at least 2.
  std::optional<Packing> packing{};             ///< None: bfd_split for texts, else bfd.
  std::optional<ExampleKind> kind{};            ///< None: what the first line that is one says.
  std::string chat_template{};                  ///< A name or a path; empty: the tokenizer's.
  std::string date{};                           ///< YYYY-MM-DD, that templates may print.
  bool train_on_last = false;                   ///< Only the last answer of a conversation.
  std::string source_key{};                     ///< The member that names a line's source; empty:
                                                ///< the files' names are the sources.
  std::filesystem::path keywords{};             ///< A file of expressions, one a line: of texts
                                                ///< what they are about is trained; empty: all.
  double val_fraction = 0.05;                   ///< Of the lines; 0: none, below 1.
  double most_dropped = 0.05;                   ///< Share of lines that may be dropped.
  std::uint64_t seed = 0;                       ///< Of the validation split and of packing.
  int threads = 1;                              ///< That encode; the result is the same.
  bool force = false;                           ///< Replace data already in `out`.
};

/// Writes a directory of rows, meta.json last. Blocks. The bytes are a pure function of the inputs
/// and the request. Memory: about 200 MB, and 4 bytes a document; up to 32 MiB for a line.
///
/// A line is for validation if the hash of (seed, its tokens) lies below val_fraction: equal lines
/// are on one side. Nothing in `out` is replaced before everything is written beside it; a run that
/// is killed before leaves what was there, and its hidden files go with the next one. If `out` has
/// what the same request made of the same bytes, nothing is done.
///
/// Errors (user): those of the inputs, the tokenizer, the template, and of check_report(); `out`
/// not writable, in use, or holding other data without `force`.
Result<RowReport> prepare_rows(const PrepareRowsRequest& request,
                               const PrepareProgress& progress = {});

}  // namespace train::storage
