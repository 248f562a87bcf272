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

/// Pointer to a key's value in a RunConfig; the alternative is the key's type.
using FieldPointer =
    std::variant<std::int64_t*, std::uint64_t*, double*, bool*, std::string*,
                 std::vector<std::string>*, std::vector<std::int64_t>*, std::vector<DataSource>*>;
using ConstFieldPointer =
    std::variant<const std::int64_t*, const std::uint64_t*, const double*, const bool*,
                 const std::string*, const std::vector<std::string>*,
                 const std::vector<std::int64_t>*, const std::vector<DataSource>*>;

/// Range of a number: low <= value <= high, without an excluded end.
struct Limits {
  double low = 0.0;
  double high = 0.0;
  bool low_excluded = false;
  bool high_excluded = false;
};

/// Meaning of a key's change between two starts of a run. Unknown keys count as `state`.
enum class BetweenStarts : std::uint8_t {
  unsaid,      ///< Default for no key: each must state its meaning.
  shapes,      ///< Determines shapes of weights or optimizer state: a change is rejected.
  data,        ///< Determines the tokens that each step reads: likewise.
  state,       ///< Determines the meaning of what checkpoints hold: likewise.
  on_request,  ///< Determines later updates alone: a change is rejected unless it is accepted.
  may_change,  ///< The weights do not depend on it, or its effect is compared.
  may_move,    ///< A path, which may change; the data there is compared.
  warns,       ///< Changes later steps on purpose: a warning says how.
};

/// True if a changed value is rejected, at least unless it is accepted.
[[nodiscard]] constexpr bool stays(BetweenStarts rule) {
  return rule >= BetweenStarts::shapes && rule <= BetweenStarts::on_request;
}

/// Key of a run file. The loader, the writer, the range checks and the printed table all use this.
struct Field {
  FieldPointer (*locate)(RunConfig&);
  std::string_view section;       ///< "run"
  std::string_view name;          ///< "steps"
  std::string_view unit;          ///< "steps"; empty: a plain number or text.
  std::string_view sentence;      ///< Purpose, and meaning of special values.
  BetweenStarts between_starts;   ///< No default, so that each new key is considered.
  Limits limits = {};             ///< For numbers, alone or in a list.
  std::string_view choices = {};  ///< Allowed texts, joined by '|'; empty: any text.
  /// A text key that also takes an integer within `limits`, stored as its decimal text.
  bool or_integer = false;
  bool required = false;  ///< A file must set it (data.dir: or data.sources).

  [[nodiscard]] std::string key() const;  ///< "run.steps"
  /// Value that `config` has for this key, which must outlive the pointer.
  [[nodiscard]] ConstFieldPointer value_in(const RunConfig& config) const;
};

/// All keys, in file order. CF-1 (one table): a key exists exactly if it is in here.
[[nodiscard]] std::span<const Field> all_fields();

/// Field of "section.name", or null.
[[nodiscard]] const Field* find_field(std::string_view key);

/// "text", "text or integer", "list of texts", "list of integers", "list of tables", "integer",
/// "number" or "boolean".
[[nodiscard]] std::string_view type_name(const Field& field);

/// "1 .. 1000000", "(0 .. 1]", "any", or the choices.
[[nodiscard]] std::string allowed_values(const Field& field);

/// Integer value of a text like "12": decimal digits, no sign, no leading zero.
[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);

/// Words joined by '|', split.
[[nodiscard]] std::vector<std::string> split_choices(std::string_view joined);
[[nodiscard]] inline std::vector<std::string> split_choices(const Field& field) {
  return split_choices(field.choices);
}

/// Value of `field` in `config` as TOML; parsing it gives exactly the same value.
[[nodiscard]] std::string toml_value(const Field& field, const RunConfig& config);

/// Whether each value gets a comment with its origin, if config.origins has it.
enum class Origins : std::uint8_t { hidden, shown };

/// Whole configuration as a TOML file: every key except those of other optimizers and objectives.
/// CF-2 (round trip): parse_config(to_toml(c)) is c, bit for bit, for every valid c.
[[nodiscard]] std::string to_toml(const RunConfig& config, Origins origins = Origins::hidden);

/// Markdown table of every key: type, unit, default, allowed values, changes between starts, and
/// its sentence.
[[nodiscard]] std::string describe_keys_markdown();

/// The keys that begin with `prefix`, for a terminal of 100 columns: of each a line with key,
/// default and allowed values, and below it its sentence. Empty: there are none.
[[nodiscard]] std::string describe_keys(std::string_view prefix);

}  // namespace train::configs
