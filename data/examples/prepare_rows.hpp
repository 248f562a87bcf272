#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/examples/answer_parts.hpp"
#include "data/examples/example.hpp"
#include "data/examples/row_report.hpp"
#include "data/prepare/prepare.hpp"
#include "data/rows/packing.hpp"
#include "storage/inputs/input_layout.hpp"

namespace train::data {

struct PrepareRowsRequest {
  std::vector<std::filesystem::path> inputs{};                ///< In any format of InputReader.
  storage::SaidLayout layout = storage::SaidLayout::nothing;  ///< Layout of examples in the inputs.
  std::string tokenizer{};                                    ///< Directory or file.
  std::filesystem::path out{};                                ///< Created if missing.
  std::int64_t row_length = 0;                                ///< T, tokens; at least 2.
  std::optional<Packing> packing{};     ///< Default: bfd_split for texts, otherwise bfd.
  std::optional<ExampleKind> kind{};    ///< Default: the kind of the first recognised line.
  std::string chat_template{};          ///< Name or path; empty: the tokenizer's.
  std::string date{};                   ///< YYYY-MM-DD, the date that templates may print.
  bool train_on_last = false;           ///< Train only the last answer of a conversation.
  AnswerPart part = AnswerPart::whole;  ///< Train only this part of answers in conversations.
  std::string source_key{};             ///< Member that names a line's source; empty: input
                                        ///< file names are the sources.
  std::filesystem::path keywords{};     ///< File of regular expressions, one per line: only
                                        ///< matching tokens of texts are trained; empty:
                                        ///< all.
  double val_fraction = 0.05;           ///< Fraction of lines; 0: none; less than 1.
  double most_dropped = 0.05;           ///< Largest fraction of lines that may be dropped.
  std::uint64_t seed = 0;               ///< Seed of the validation split and of packing.
  int threads = 1;                      ///< Encoding threads; the result does not depend on them.
  bool force = false;                   ///< Replace existing data in `out`.
};

/// Writes a directory of rows, meta.json last. Blocks. The bytes are a pure function of the inputs
/// and the request. Memory: about 200 MB, plus 4 bytes per document; up to 32 MiB for a line.
///
/// A line goes to validation if the hash of (seed, its tokens) lies below val_fraction, so equal
/// lines are in the same split. Nothing in `out` is replaced before everything is written beside
/// it; a run killed earlier leaves the old content, and its hidden files are removed by the next
/// run. No-op if `out` was made by an equal request from equal bytes.
///
/// Errors (user): those of the inputs, the tokenizer, the template, and check_report(); `out` not
/// writable, in use, or holding other data without `force`.
Result<RowReport> prepare_rows(const PrepareRowsRequest& request,
                               const PrepareProgress& progress = {});

}  // namespace train::data
