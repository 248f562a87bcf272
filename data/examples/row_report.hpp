#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/examples/conversation_mask.hpp"
#include "data/examples/example.hpp"
#include "data/rows/row_facts.hpp"
#include "storage/inputs/line_fault.hpp"

namespace train::data {

/// Counts of preparing one source, or all (D-R1).
struct RowTally {
  std::uint64_t lines = 0;    ///< Non-blank lines.
  std::uint64_t dropped = 0;  ///< Lines dropped.
  std::uint64_t truncated = 0;
  std::uint64_t documents = 0;  ///< Two per pair.
  std::uint64_t tokens = 0;
  std::uint64_t trained_tokens = 0;
};

/// Lines by name: a limited number of names in order of appearance, the rest together.
using NameTally = std::map<std::string, std::uint64_t>;
inline constexpr std::size_t kTallyNamesMost = 64;

/// Counts of preparing rows.
struct RowReport {
  bool up_to_date = false;  ///< Nothing was done, as the data is up to date. The rest is empty.
  RowFacts facts = {};
  RowTally total = {};
  std::vector<RowTally> sources = {};  ///< In the order of facts.sources.
  std::array<storage::DropTally, kDropReasonCount> dropped = {};
  std::array<std::uint64_t, kMaskMethodCount> masks = {};  ///< Conversations, by MaskMethod.
  std::array<NameTally, kRemarkKindCount> remarks = {};    ///< Lines, by RemarkKind.
  std::uint64_t merged = 0;             ///< Prompts whose last token merged with the answer.
  std::uint64_t prompts = 0;            ///< Prompt and completion pairs without a conversation.
  std::uint64_t desirable = 0;          ///< KTO examples: desirable,
  std::uint64_t undesirable = 0;        ///< and undesirable.
  std::uint64_t replaced = 0;           ///< Invalid UTF-8 sequences replaced.
  std::vector<std::string> notes = {};  ///< Tokenizer features that were dropped.

  [[nodiscard]] std::string json() const;
  /// Report for the user, in lines.
  [[nodiscard]] std::vector<std::string> lines() const;
};

/// Errors (user): no document; no trained token, or, for chats, no untrained one; KTO labels that
/// are all equal; more than `most_dropped` of the lines dropped. Names every reason with its count
/// and first line.
[[nodiscard]] Status check_report(const RowReport& report, double most_dropped);

/// Fraction of the rows' capacity that tokens fill, 0 to 1.
[[nodiscard]] double row_fill(const RowCounts& counts, std::int64_t row_length);

}  // namespace train::data
