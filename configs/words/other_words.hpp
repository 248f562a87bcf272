#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace train::configs {

/// Words that users of other programs type, for hints.
struct OtherWords {
  std::string_view scope;  ///< "command", "option", "section", "key", or a key for its values.
  std::string_view meant;  ///< Word of this program; of the scope "key": "section.name".
  std::string_view words;  ///< Joined by '|'; lower case with underscores.
};

[[nodiscard]] std::span<const OtherWords> other_words();

/// The words of a scope, and of each what is meant by it: two lists of one length.
struct Vocabulary {
  std::vector<std::string> words;
  std::vector<std::string> meant;
};
[[nodiscard]] Vocabulary vocabulary(std::string_view scope);

/// True for a value that other programs have and nothing here stands for.
[[nodiscard]] bool is_absent(std::string_view scope, std::string_view word);

/// Word of this program for `word`, ignoring case and hyphens; empty: unknown.
[[nodiscard]] std::string meaning_of(std::string_view scope, std::string_view word);

/// Key that is meant by a name without its section, or with a wrong one: the only key of that name,
/// or that of another program's word; empty: none.
[[nodiscard]] std::string key_meant(std::string_view name);

}  // namespace train::configs
