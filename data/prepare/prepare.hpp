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

namespace train::data {

/// `bytes` tokenizer: one token per byte of the text; 256 ends a document.
inline constexpr std::int64_t kBytesEndOfText = 256;
inline constexpr std::int64_t kBytesVocabSize = 257;

struct PrepareRequest {
  std::vector<std::filesystem::path> inputs{};  ///< Texts, or records with a member "text".
  storage::SaidLayout layout =
      storage::SaidLayout::nothing;  ///< Layout of documents in the inputs.
  std::string tokenizer = "bytes";   ///< "bytes", or a tokenizer's directory or file.
  std::filesystem::path out{};       ///< Created if missing.
  double val_fraction = 0.05;        ///< Fraction of the tokens; above 0, below 1.
  double most_dropped = 0.05;        ///< Largest fraction of records that may be dropped.
  std::string document_separator{};  ///< Empty: a text file is one document.
  std::uint64_t seed = 0;            ///< Selects the validation documents.
  int threads = 1;                   ///< Encoding threads; the result does not depend on them.
  bool force = false;                ///< Replace token files already in `out`.
};

struct PrepareReport {
  std::uint64_t documents = 0;
  std::array<storage::DropTally, storage::kLineFaultCount> dropped =
      {};  ///< Records without a document, by
           ///< LineFault.
  std::uint64_t input_bytes = 0;
  std::uint64_t train_tokens = 0;
  std::uint64_t val_tokens = 0;
  std::uint64_t val_bytes = 0;          ///< Validation tokens that are text (not end-of-text).
  std::uint64_t replaced = 0;           ///< Invalid UTF-8 sequences that became U+FFFD.
  std::uint64_t kept_breaks = 0;        ///< Invalid sequences kept as tokens (`bytes` only).
  bool whole_documents = true;          ///< false: validation is the tail of the tokens.
  std::vector<std::string> notes = {};  ///< Tokenizer features that were dropped.

  /// Table of the reasons for the user, in lines; empty if nothing was dropped.
  [[nodiscard]] std::vector<std::string> dropped_lines() const;
};

/// Input bytes handled so far, and in all passes. Called on the caller's thread.
using PrepareProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Writes train.bin, val.bin and, last, meta.json (ST-6). Blocks. A pure function of the inputs and
/// the request; memory does not grow with the inputs (about 20 MB, and up to 100 MB for .jsonl
/// lines at their limit of 32 MiB).
///
/// Documents are numbered from 0 over all inputs in order; records without text and empty documents
/// do not count; end-of-text follows each. Validation consists of the documents whose hash of
/// (seed, number) falls below val_fraction, if that gives between half and twice val_fraction of
/// the tokens; otherwise (one or few documents, or very uneven ones) it is the last val_fraction of
/// all tokens.
///
/// Errors (user): an input that is missing, unreadable, or not a regular file; no text at all; too
/// many records dropped, with every cause, its count and its first file and line; `out` not
/// writable, in use, or holding data without `force`. The old content of `out` stays until all
/// inputs are read; bytes are read twice, text for a tokenizer once, and again if validation is the
/// tail.
Result<PrepareReport> prepare_dataset(const PrepareRequest& request,
                                      const PrepareProgress& progress = {});

}  // namespace train::data
