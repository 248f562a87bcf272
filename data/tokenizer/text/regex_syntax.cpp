#include "data/tokenizer/text/regex_syntax.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/text/ascii.hpp"
#include "data/tokenizer/text/unicode_tables.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

/// \s as members of a bracketed class, without the brackets.
constexpr std::string_view kSpaceMembers =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029})"
    R"(\x{202f}\x{205f}\x{3000})";

/// Classes of a property by its name in a pattern. Only those with recently added characters
/// matter.
std::optional<ClassSet> property_classes(std::string_view name) {
  static constexpr std::pair<std::string_view, ClassSet> properties[] = {
      {"L", kLetterClasses},
      {"Letter", kLetterClasses},
      {"Lu", classes(CharClass::upper)},
      {"Ll", classes(CharClass::lower)},
      {"Lt", classes(CharClass::title)},
      {"Lm", classes(CharClass::modifier)},
      {"Lo", classes(CharClass::other_letter)},
      {"M", kMarkClasses},
      {"Mark", kMarkClasses},
      {"N", kNumberClasses},
      {"Number", kNumberClasses},
      {"Nd", classes(CharClass::number)},
      {"No", classes(CharClass::other_number)},
      {"P", kPunctuationClasses},
      {"Punct", kPunctuationClasses},
      {"Punctuation", kPunctuationClasses},
      {"S", kSymbolClasses},
      {"Symbol", kSymbolClasses},
  };
  for (const auto& [known, set] : properties) {
    if (known == name) {
      return set;
    }
  }
  return std::nullopt;
}

/// Unicode 16.0's characters of `set` with one of `flags`, as members of a bracketed class.
std::string members_of(ClassSet set, unsigned flags) {
  const std::uint8_t* table = unicode_table();
  const auto late = [&](std::size_t point) {
    return point < kCodePointCount && (table[point] & flags) != 0 && in_classes(table[point], set);
  };
  std::string members;
  for (std::size_t point = 0; point < kCodePointCount; ++point) {
    if (late(point)) {
      const std::size_t first = point;
      while (late(point + 1)) {
        ++point;
      }
      members += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", first, point);
    }
  }
  return members;
}

/// Characters that PCRE2's tables lack.
std::string late_members(ClassSet set) { return members_of(set, kAssignedAfter14); }

/// Outside of brackets \w also matches the superscripts and fractions of Latin-1.
constexpr std::string_view kMoreWordMembers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

/// Members of \w within brackets.
std::string word_members() {
  return R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})" +
         members_of(classes(CharClass::alphabetic_symbol), ~0U) +
         late_members(kLetterClasses | kMarkClasses |
                      classes(CharClass::number, CharClass::connector));
}

/// Scans a pattern once, copying what both engines read alike.
class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (!done()) {
      if (auto defect = step()) {
        return user_error(fmt::format("regular expression {} has {}, which is not supported",
                                      storage::shown(pattern_), *defect));
      }
    }
    return std::move(out_);
  }

 private:
  using Defect = std::optional<std::string>;

  [[nodiscard]] bool done() const { return at_ >= pattern_.size(); }
  [[nodiscard]] std::string_view rest() const { return pattern_.substr(at_); }
  void copy(std::size_t count) {
    out_.append(rest().substr(0, count));
    at_ += count;
  }

  Defect step() {
    switch (pattern_[at_]) {
      case '\\':
        return escape();
      case '[':
        atom_ = out_.size();
        return bracket();
      case '(':
        return group();
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) {
          groups_.pop_back();
        }
        copy(1);
        return std::nullopt;
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
      case '|':
        copy(1);
        return std::nullopt;
      default:
        atom_ = out_.size();
        copy(storage::code_point_at(pattern_.data() + at_).length);
        return std::nullopt;
    }
  }

  /// Ruby's m is s elsewhere; its i, x and group openings are as usual.
  Defect group() {
    groups_.push_back(out_.size());
    if (!rest().starts_with("(?")) {
      copy(1);
      return std::nullopt;
    }
    if (rest().starts_with("(?~")) {
      return "an absence operator";
    }
    copy(2);
    for (; !done() && (pattern_[at_] == '-' || (pattern_[at_] >= 'a' && pattern_[at_] <= 'z'));
         ++at_) {
      out_.push_back(pattern_[at_] == 'm' ? 's' : pattern_[at_]);
    }
    return std::nullopt;
  }

  /// A + after an interval repeats it in Ruby, and makes it possessive in PCRE2.
  Defect interval() {
    const std::size_t end = rest().find('}');
    const bool counts =
        end != std::string_view::npos && end > 1 &&
        rest().substr(1, end - 1).find_first_not_of("0123456789,") == std::string_view::npos;
    if (!counts) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return std::nullopt;
    }
    if (rest().starts_with("{,")) {
      out_ += "{0";
      at_ += 1;
      copy(end);
    } else {
      copy(end + 1);
    }
    if (!done() && pattern_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
    return std::nullopt;
  }

  /// Rewrites an escape outside of brackets.
  Defect escape() {
    atom_ = out_.size();
    std::string members;
    bool negated = false;
    if (auto defect = class_escape(members, negated)) {
      return defect;
    }
    if (!members.empty()) {
      if (pattern_[at_ - 1] == 'w' || pattern_[at_ - 1] == 'W') {
        members += kMoreWordMembers;
      }
      out_ += (negated ? "[^" : "[") + members + "]";
      return std::nullopt;
    }
    if (rest().starts_with("\\b") || rest().starts_with("\\B")) {
      const std::string word = fmt::format("[{}{}]", word_members(), kMoreWordMembers);
      out_ += rest()[1] == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                               : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      at_ += 2;
      return std::nullopt;
    }
    copy_escaped();
    return std::nullopt;
  }

  /// Copies a backslash with its operand, which both engines read alike except \u0000.
  void copy_escaped() {
    const std::string_view digits = at_ + 2 <= pattern_.size() ? rest().substr(2, 4) : "";
    if (rest().starts_with("\\u") && digits.size() == 4 &&
        digits.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos) {
      out_ += fmt::format("\\x{{{}}}", digits);
      at_ += 6;
      return;
    }
    copy(at_ + 1 < pattern_.size() ? 1 + storage::code_point_at(pattern_.data() + at_ + 1).length
                                   : 1);
  }

  /// Turns \s, \w, \h, \d and properties into members of a class; leaves others unchanged.
  Defect class_escape(std::string& members, bool& negated) {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (kind) {
      case 's':
      case 'S':
        members = kSpaceMembers;
        break;
      case 'h':
      case 'H':
        members = "0-9a-fA-F";
        break;
      case 'd':
      case 'D':
        members = "\\p{Nd}" + late_members(classes(CharClass::number));
        break;
      case 'w':
      case 'W':
        members = word_members();
        break;
      case 'p':
      case 'P':
        return property(members, negated);
      case 'R':
      case 'X':
      case 'K':
      case 'y':
      case 'Y':
      case 'g':
        return fmt::format("\\{}", kind);
      default:
        return std::nullopt;
    }
    negated = kind >= 'A' && kind <= 'Z';
    at_ += 2;
    return std::nullopt;
  }

  Defect property(std::string& members, bool& negated) {
    const std::size_t end = rest().find('}');
    if (end == std::string_view::npos || end < 4 || rest()[2] != '{') {
      return "a property without its name in braces";
    }
    std::string_view name = rest().substr(3, end - 3);
    negated = pattern_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto set = property_classes(name);
    members = fmt::format("\\p{{{}}}", name == "Letter"        ? "L"
                                       : name == "Mark"        ? "M"
                                       : name == "Number"      ? "N"
                                       : name == "Symbol"      ? "S"
                                       : name == "Punctuation" ? "P"
                                       : name == "Punct"       ? "P"
                                                               : name);
    members += set ? late_members(*set) : std::string();
    at_ += end + 1;
    return std::nullopt;
  }

  Defect bracket() {
    copy(1);
    if (!done() && pattern_[at_] == '^') {
      copy(1);
    }
    for (bool first = true; !done(); first = false) {
      const char letter = pattern_[at_];
      if (letter == ']' && !first) {
        copy(1);
        return std::nullopt;
      }
      if (rest().starts_with("&&") || (letter == '[' && !rest().starts_with("[:"))) {
        return "a class within a class, or an intersection of classes";
      }
      if (rest().starts_with("[:")) {
        if (auto defect = named_class()) {
          return defect;
        }
      } else if (letter != '\\') {
        copy(storage::code_point_at(pattern_.data() + at_).length);
      } else if (auto defect = bracket_escape()) {
        return defect;
      }
    }
    return "a class without its end";
  }

  /// [:space:] and similar within brackets. Those with letters differ between the engines.
  Defect named_class() {
    const std::size_t end = std::min(rest().find(":]"), rest().size());
    const std::string_view name = rest().substr(2, end - 2);
    if (name == "space") {
      out_ += kSpaceMembers;
    } else if (name == "digit") {
      out_ += "\\p{Nd}" + late_members(classes(CharClass::number));
    } else if (name == "xdigit") {
      out_ += "0-9a-fA-F";
    } else {
      return fmt::format("[:{}:]", name);
    }
    at_ = std::min(at_ + end + 2, pattern_.size());
    return std::nullopt;
  }

  Defect bracket_escape() {
    const std::size_t begin = at_;
    std::string members;
    bool negated = false;
    if (auto defect = class_escape(members, negated)) {
      return defect;
    }
    if (members.empty()) {
      copy_escaped();
    } else if (!negated) {
      out_ += members;
    } else if (pattern_[begin + 1] == 'S') {
      // Everything but spaces, as the ranges between them.
      out_ += R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
              R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff})"
              R"(\x{3001}-\x{d7ff}\x{e000}-\x{10ffff})";
    } else {
      return fmt::format("\\{} within brackets", pattern_[begin + 1]);
    }
    return std::nullopt;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;  ///< Index in `out_` of the atom that a following repetition repeats.
  std::vector<std::size_t> groups_;  ///< Indices in `out_` of the open groups.
};

}  // namespace

Result<std::string> rewritten_for_pcre2(std::string_view pattern) {
  if (storage::valid_prefix(pattern) != pattern.size()) {
    return user_error("a regular expression is not UTF-8");
  }
  return Rewriter(pattern).run();
}

std::string quoted_for_pcre2(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (!is_alphanumeric(letter) && static_cast<unsigned char>(letter) < 0x80) {
      out += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(letter));
    } else {
      out.push_back(letter);
    }
  }
  return out;
}

}  // namespace train::data
