#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace train::data {

/// Members of a line of a data set, with a record of which have been read: unread non-empty members
/// can be reported by name without a list of possible names.
///
/// Ownership: borrows the line, a JSON object.
class LineMembers {
 public:
  explicit LineMembers(const nlohmann::ordered_json& line) : line_(line) {}

  /// True if the member exists and is not null. Does not mark it as read.
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// True if the member exists and is null.
  [[nodiscard]] bool is_null(std::string_view key) const;
  /// nullptr if missing or null.
  const nlohmann::ordered_json* read(std::string_view key);
  /// Reads a string; nullptr also for other types, which stay unread.
  const std::string* text(std::string_view key);

  /// Non-empty members that were not read, in order; an empty text, list or object counts as empty.
  /// `that_may_be_words`: only members that hold text, not numbers and booleans.
  [[nodiscard]] std::vector<std::string> unread(bool that_may_be_words = false) const;

 private:
  [[nodiscard]] const nlohmann::ordered_json* find(std::string_view key) const;

  const nlohmann::ordered_json& line_;
  std::vector<std::string> read_ = {};
};

}  // namespace train::data
