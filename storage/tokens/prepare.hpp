#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/inputs/input_layout.hpp"
#include "storage/inputs/line_fault.hpp"

namespace train::storage {

/// The `bytes` tokenizer: a token is a byte of the text; 256 ends a document.
inline constexpr std::int64_t bytes_end_of_text = 256;
inline constexpr std::int64_t bytes_vocab_size = 257;

struct PrepareRequest {
  std::vector<std::filesystem::path> inputs{};  ///< Texts, or records with a member "text".
  SaidLayout layout = SaidLayout::nothing;      ///< How documents lie in them.
  std::string tokenizer = "bytes";              ///< Or a tokenizer's directory or file.
  std::filesystem::path out{};                  ///< Created if missing.
  double val_fraction = 0.05;                   ///< Of the tokens; above 0, below 1.
  double most_dropped = 0.05;                   ///< Share of records that may be dropped.
  std::string document_separator{};             ///< Empty: a text file is one document.
  std::uint64_t seed = 0;                       ///< Chooses the validation documents.
  int threads = 1;                              ///< That encode; the result is the same.
  bool force = false;                           ///< Replace token files already in `out`.
};

struct PrepareReport {
  std::uint64_t documents = 0;
  std::array<DropTally, line_fault_count> dropped = {};  ///< Records without one, by LineFault.
  std::uint64_t input_bytes = 0;
  std::uint64_t train_tokens = 0;
  std::uint64_t val_tokens = 0;
  std::uint64_t val_bytes = 0;          ///< Validation tokens that are text (not end-of-text).
  std::uint64_t replaced = 0;           ///< Breaks in UTF-8 that became U+FFFD.
  std::uint64_t kept_breaks = 0;        ///< Those that are tokens as they are: of "bytes".
  bool whole_documents = true;          ///< false: validation is the tail of the text.
  std::vector<std::string> notes = {};  ///< What the tokenizer leaves out.

  /// A line each, for the user.
  [[nodiscard]] std::vector<std::string> dropped_lines() const;
};

/// Bytes of input handled so far and in all readings. Called on the same thread.
using PrepareProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes train.bin, val.bin and, last, meta.json (ST-6). Blocks. A pure function of the inputs and
/// the request; memory does not grow with the inputs (about 20 MB, and up to 100 MB for .jsonl
/// lines at their limit of 32 MiB).
///
/// Documents are numbered from 0 over all inputs in order; records without a text and empty
/// documents do not count; end-of-text
/// follows each. Validation is the documents whose hash of (seed, number) falls below val_fraction,
/// if that gives between half and twice val_fraction of the tokens; otherwise (one document, a few,
/// very uneven ones) it is the last val_fraction of all tokens.
///
/// Errors (user): input missing, unreadable, not a regular file, no text at all; more
/// records dropped than may be, with the cause of most and its first file and line; `out` not
/// writable, in use, or holding data without `force`. What is in `out` stays until all inputs have
/// been read; bytes are read twice, text for a tokenizer once, and again if validation is the tail.
Result<PrepareReport> prepare_dataset(const PrepareRequest& request,
                                      const PrepareProgress& progress = {});

}  // namespace train::storage
