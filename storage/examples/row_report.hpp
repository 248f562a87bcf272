#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/examples/conversation_mask.hpp"
#include "storage/examples/example.hpp"
#include "storage/inputs/line_fault.hpp"
#include "storage/rows/row_facts.hpp"

namespace train::storage {

/// What preparing counted of one source, or of all (D-R1).
struct RowTally {
  std::uint64_t lines = 0;    ///< That are not blank.
  std::uint64_t dropped = 0;  ///< Of those.
  std::uint64_t truncated = 0;
  std::uint64_t documents = 0;  ///< Two of a pair.
  std::uint64_t tokens = 0;
  std::uint64_t trained_tokens = 0;
};

/// Lines by a name of theirs: of the names that come first so many, the others together.
using NameTally = std::map<std::string, std::uint64_t>;
inline constexpr std::size_t tally_names_most = 64;

/// What preparing rows counted.
struct RowReport {
  bool up_to_date = false;  ///< Nothing was done: the same was prepared before. The rest is empty.
  RowFacts facts = {};
  RowTally total = {};
  std::vector<RowTally> sources = {};  ///< As facts.sources has them.
  std::array<DropTally, drop_reason_count> dropped = {};
  std::array<std::uint64_t, mask_method_count> masks = {};  ///< Conversations, by MaskMethod.
  std::array<NameTally, remark_kind_count> remarks = {};    ///< Lines, by RemarkKind.
  std::uint64_t merged = 0;             ///< Prompts whose last token grew together with the answer.
  std::uint64_t prompts = 0;            ///< Prompts and answers that are no conversations.
  std::uint64_t desirable = 0;          ///< Of KTO's examples,
  std::uint64_t undesirable = 0;        ///< and the others.
  std::uint64_t replaced = 0;           ///< Breaks in UTF-8.
  std::vector<std::string> notes = {};  ///< What the tokenizer leaves out.

  [[nodiscard]] std::string json() const;
  /// A line each, for the user.
  [[nodiscard]] std::vector<std::string> lines() const;
};

/// Errors (user): no document; nothing trained, or, of chats, everything; of KTO's examples all
/// labels alike; more than `most_dropped`
/// of the lines dropped. Names the first line that was.
[[nodiscard]] Status check_report(const RowReport& report, double most_dropped);

/// Tokens of the rows by what the rows hold, 0 to 1.
[[nodiscard]] double row_fill(const RowCounts& counts, std::int64_t row_length);

}  // namespace train::storage
