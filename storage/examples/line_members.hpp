#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace train::storage {

/// The members of a line of a data set, and which of them somebody has read: what says something
/// and nobody reads is known by its name afterwards, without a list of what there might be.
///
/// Ownership: borrows the line, a JSON object.
class LineMembers {
 public:
  explicit LineMembers(const nlohmann::ordered_json& line) : line_(line) {}

  /// Whether there is one that says something: not null. Reads nothing.
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Whether there is one that says nothing: null.
  [[nodiscard]] bool is_null(std::string_view key) const;
  /// Null: it is missing, or null.
  const nlohmann::ordered_json* read(std::string_view key);
  /// The same of a text. Null: also what is no text, which stays unread.
  const std::string* text(std::string_view key);

  /// Those that say something and were not read, in their order; an empty text, list or object says
  /// nothing. `that_may_be_words`: of those that hold a text, not numbers and truth values.
  [[nodiscard]] std::vector<std::string> unread(bool that_may_be_words = false) const;

 private:
  [[nodiscard]] const nlohmann::ordered_json* find(std::string_view key) const;

  const nlohmann::ordered_json& line_;
  std::vector<std::string> read_ = {};
};

}  // namespace train::storage
