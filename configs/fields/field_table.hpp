#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "configs/run_config.hpp"

namespace train::configs {

/// Where one key lives in a RunConfig; the alternative is the key's type.
using FieldPointer = std::variant<std::int64_t*, std::uint64_t*, double*, bool*, std::string*,
                                  std::vector<std::string>*>;

/// The values a number may take: low <= value <= high, without an excluded end.
struct Limits {
  double low = 0.0;
  double high = 0.0;
  bool low_excluded = false;
  bool high_excluded = false;
};

/// What may become of a key's value from one start of a run to the next. Keys of no table stay.
enum class BetweenStarts : std::uint8_t {
  unsaid,      ///< Of no key: each says what follows from another value.
  stays,       ///< It decides the result: another value is refused.
  may_change,  ///< No weight depends on it, or what follows from it is compared.
  may_move,    ///< A path: not it, but what lies there is compared.
  warns,       ///< It may change what follows, on purpose: a warning says how.
};

/// One key of a run file. The loader, the writer, the ranges and the printed table all read this.
struct Field {
  std::string_view section;   ///< "run"
  std::string_view name;      ///< "steps"
  std::string_view unit;      ///< "steps"; empty: a plain number or text.
  std::string_view sentence;  ///< What it does, and what a special value means.
  FieldPointer (*locate)(RunConfig&);
  BetweenStarts between_starts;   ///< Has no default: a new key is thought about.
  bool required = false;          ///< Has no default: a file must set it.
  Limits limits = {};             ///< Of a number; ignored for text, lists and booleans.
  std::string_view choices = {};  ///< Allowed texts, joined by '|'; empty: any text.
  /// A text key that also takes an integer within `limits`, stored as its decimal text.
  bool or_integer = false;

  [[nodiscard]] std::string key() const;  ///< "run.steps"
};

/// All keys, in the order of the file. CF-1 (one table): a key exists exactly if it is in here.
[[nodiscard]] std::span<const Field> all_fields();

/// The field of "section.name", or null.
[[nodiscard]] const Field* find_field(std::string_view key);

/// "text", "text or integer", "list of texts", "integer", "number" or "boolean".
[[nodiscard]] std::string_view type_name(const Field& field);

/// "1 .. 1000000", "(0 .. 1]", "any", or the choices.
[[nodiscard]] std::string allowed_values(const Field& field);

/// The integer that a text like "12" stands for: decimal digits, no sign, no leading zero.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);

/// `field.choices`, split.
[[nodiscard]] std::vector<std::string> split_choices(const Field& field);

/// The value of `field` in `config` as TOML; reads back as exactly the same value.
[[nodiscard]] std::string toml_value(const Field& field, const RunConfig& config);

/// Whether a comment after each value says where it is from, as far as config.origins knows.
enum class Origins : std::uint8_t { hidden, shown };

/// The whole configuration as a TOML file: every key but those of other optimizers.
/// CF-2 (round trip): parse_config(to_toml(c)) is c, bit for bit, for every valid c.
[[nodiscard]] std::string to_toml(const RunConfig& config, Origins origins = Origins::hidden);

/// A Markdown table of every key: type, unit, default, allowed values, what it may do between
/// starts, and its sentence.
[[nodiscard]] std::string describe_keys_markdown();

}  // namespace train::configs
