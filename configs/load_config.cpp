#include "configs/load_config.hpp"

#include "base/text/one_line.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text/log.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/fields/named_options.hpp"
#include "configs/fields/optimizer_table.hpp"
#include "configs/fields/source_table.hpp"
#include "configs/scaling/scaling.hpp"
#include "configs/validate_config.hpp"
#include "configs/words/nearest.hpp"
#include "configs/words/other_words.hpp"

namespace train::configs {
namespace {

constexpr std::string_view kWarmup = "schedule.warmup_steps";

std::string place_of(const std::string& file, const toml::source_region& region) {
  return fmt::format("{}:{}", file, region.begin.line);
}

std::string found_text(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return fmt::format("the text \"{}\"", one_line(text->get()));
  }
  if (const auto* whole = node.as_integer()) {
    return fmt::format("the integer {}", whole->get());
  }
  if (const auto* real = node.as_floating_point()) {
    return fmt::format("the number {:#}", real->get());
  }
  if (const auto* truth = node.as_boolean()) {
    return fmt::format("the boolean {}", truth->get());
  }
  if (node.is_table()) {
    return "a table";
  }
  return node.is_array() ? "an array" : "a date or time";
}

std::string wanted_text(const Field& field) {
  const std::string_view type = type_name(field);
  if (type == "text") {
    return "text in quotes";
  }
  if (type == "text or integer") {
    return "text in quotes or an integer";
  }
  if (type == "list of texts") {
    return "a list of texts in quotes";
  }
  if (type == "list of tables") {
    return fmt::format("a list of tables: [[{}]], or [{{dir = ...}}, ...]", field.key());
  }
  return fmt::format("{} {}", type == "integer" ? "an" : "a", type);
}

// Texts of a list; a single text counts as a list of one.
std::optional<std::vector<std::string>> read_list(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return std::vector<std::string>{text->get()};
  }
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const toml::node& element : *array) {
    const auto* text = element.as_string();
    if (text == nullptr) {
      return std::nullopt;
    }
    texts.push_back(text->get());
  }
  return texts;
}

// Integers of a list; a single integer counts as a list of one.
std::optional<std::vector<std::int64_t>> read_integers(const toml::node& node) {
  if (const auto* whole = node.as_integer()) {
    return std::vector<std::int64_t>{whole->get()};
  }
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    return std::nullopt;
  }
  std::vector<std::int64_t> numbers;
  for (const toml::node& element : *array) {
    const auto* whole = element.as_integer();
    if (whole == nullptr) {
      return std::nullopt;
    }
    numbers.push_back(whole->get());
  }
  return numbers;
}

// Value of `node` as T, or nullopt if it has another type (an integer is also accepted as a number,
// and as a text if the field allows it).
template <class T>
std::optional<T> read_value(const Field& field, const toml::node& node) {
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return read_list(node);
  } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
    return read_integers(node);
  } else if constexpr (std::is_same_v<T, double>) {
    if (const auto* whole = node.as_integer()) {
      return static_cast<double>(whole->get());
    }
    const auto* real = node.as_floating_point();
    return real != nullptr ? std::optional<T>(real->get()) : std::nullopt;
  } else if constexpr (std::is_same_v<T, bool>) {
    const auto* truth = node.as_boolean();
    return truth != nullptr ? std::optional<T>(truth->get()) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string>) {
    const auto* whole = node.as_integer();
    if (field.or_integer && whole != nullptr) {
      return fmt::format("{}", whole->get());
    }
    const auto* text = node.as_string();
    return text != nullptr ? std::optional<T>(text->get()) : std::nullopt;
  } else {
    const auto* whole = node.as_integer();
    return whole != nullptr ? std::optional<T>(static_cast<T>(whole->get())) : std::nullopt;
  }
}

Status assign(const Field& field, const toml::node& node, const std::string& place,
              RunConfig& config) {
  return std::visit(
      [&](auto* target) -> Status {
        using Value = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Value, std::vector<DataSource>>) {
          TRAIN_CHECK(false, "{} is read table by table", field.key());
        } else {
          const std::optional<Value> value = read_value<Value>(field, node);
          if (!value.has_value()) {
            return user_error(fmt::format("{}: {} must be {}, found {}", place, field.key(),
                                          wanted_text(field), found_text(node)));
          }
          if constexpr (std::is_same_v<Value, std::uint64_t>) {
            if (*node.value<std::int64_t>() < 0) {
              return user_error(fmt::format("{}: {} must be {}, found {}", place, field.key(),
                                            allowed_values(field), found_text(node)));
            }
          }
          *target = *value;
          return {};
        }
      },
      field.locate(config));
}

/// Sets one member of a table of data.sources; `key` is its name in messages.
Status assign_member(const SourceMember& member, const toml::node& node, const std::string& place,
                     const std::string& key, DataSource& source) {
  const auto refused = [&] {
    const std::string_view type = type_name(member);
    return user_error(fmt::format("{}: {} must be {}, found {}", place, key,
                                  type == "text"      ? "text in quotes"
                                  : type == "integer" ? "an integer"
                                                      : "a number",
                                  found_text(node)));
  };
  return std::visit(
      [&](auto* target) -> Status {
        using Value = std::remove_pointer_t<decltype(target)>;
        // An integer is a number, too; a number is no integer.
        const bool fits = std::is_same_v<Value, std::string> ? node.is_string()
                          : std::is_same_v<Value, double>    ? node.is_number()
                                                             : node.is_integer();
        const std::optional<Value> value = fits ? node.value<Value>() : std::nullopt;
        if (!value) {
          return refused();
        }
        *target = *value;
        return {};
      },
      member.locate(source));
}

/// True if the key is a table of others, as "train.stop_after" is.
bool has_members(std::string_view key) {
  return std::ranges::any_of(all_fields(), [&](const Field& field) {
    return field.key().starts_with(fmt::format("{}.", key));
  });
}

std::vector<std::string> member_names() {
  std::vector<std::string> names;
  for (const SourceMember& member : source_members()) {
    names.emplace_back(member.name);
  }
  return names;
}

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (const Field& field : all_fields()) {
    keys.push_back(field.key());
  }
  return keys;
}

std::vector<std::string> all_sections() {
  std::vector<std::string> sections;
  for (const Field& field : all_fields()) {
    if (sections.empty() || sections.back() != field.section) {
      sections.emplace_back(field.section);
    }
  }
  return sections;
}

/// Hint at the likely mistake, if the parser's message is unspecific.
std::string_view hint_for(std::string_view description) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kHints = {
      {{"could not determine value type", "; text is written in quotes"},
       {"saw ':'", "; a line is \"key = value\""},
       {"saw ','", "; a value ends with its line, without a comma"},
       {"saw '{'", "; a run file has lines \"key = value\" under [sections]"},
       {"unescaped control characters", "; is a closing quote missing?"},
       {"cannot redefine", ": it is already defined above; merge both, or remove one"}}};
  for (const auto& [words, hint] : kHints) {
    if (description.find(words) != std::string_view::npos) {
      return hint;
    }
  }
  return {};
}

class Loader {
 public:
  explicit Loader(const std::string& file_name) { places_.file = file_name; }

  Status read_file(std::string_view text) {
    try {
      read_root(toml::parse(text));
      return {};
    } catch (const toml::parse_error& error) {
      const std::string why = one_line(error.description());
      return user_error(fmt::format("{}: not valid TOML: {}{}",
                                    place_of(places_.file, error.source()), why, hint_for(why)));
    }
  }

  void read_override(const std::string& text) { mistakes_.add(try_override(text)); }

  Result<RunConfig> finish() {
    const bool read = mistakes_.none();
    for (const Field& field : all_fields()) {
      if (field.key() == "data.dir" && !config_.data.sources.empty() &&
          !places_.by_key.contains(field.key())) {
        config_.data.dir = config_.data.sources.front().dir;
      } else if (read && field.required && !places_.by_key.contains(field.key())) {
        mistakes_.add(
            user_error(fmt::format("{}: {} is missing; add {} = ... under [{}] ({})", places_.file,
                                   field.key(), field.name, field.section, field.sentence)));
      }
      mistakes_.add(check_value(field, config_, places_));
    }
    for (const NamedSection* const section : {&objective_options(), &optimizer_options()}) {
      if (section->find(section->chosen(config_)) != nullptr) {
        section->apply(config_, places_, mistakes_);
      }
    }
    TRAIN_RETURN_IF_ERROR(mistakes_.result());
    TRAIN_RETURN_IF_ERROR(apply_scaling(config_, places_));
    const bool published = !config_.model.config.empty() || !config_.model.from.empty();
    const bool of_targets = objective_form(config_.objective.name) == ObjectiveForm::targets;
    if ((published || !of_targets) && !places_.by_key.contains("model.z_loss_coeff")) {
      config_.model.z_loss_coeff = 0.0;  // Loss with which such models were trained.
    }
    const std::string cut = shorten_warmup();
    TRAIN_RETURN_IF_ERROR(validate_config(config_, places_));
    if (!cut.empty()) {
      log_warning(cut);
    }
    return config_;
  }
  [[nodiscard]] const KeyPositions& places() const { return places_; }

 private:
  // Allows a short trial of a run file. Returns a notice for the user if the warm-up was cut.
  std::string shorten_warmup() {
    const std::int64_t steps = config_.run.steps;
    const std::int64_t wanted = std::exchange(config_.schedule.warmup_steps,
                                              cut_warmup(config_.schedule.warmup_steps, steps));
    return wanted == config_.schedule.warmup_steps
               ? std::string()
               : fmt::format("{}: {} is {}, but the run has {} steps: cut to a tenth of them, {}",
                             places_.of(kWarmup), kWarmup, wanted, steps, steps / 10);
  }

  Status try_override(const std::string& text) {
    const std::string place = fmt::format("--set {}", one_line(text));
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return user_error(fmt::format("{}: wants section.key=value", place));
    }
    const std::string key = text.substr(0, equals);
    if (key.starts_with("data.sources[")) {
      return override_member(key, text.substr(equals + 1), place);
    }
    const Field* field = find_field(key);
    if (field == nullptr) {
      return has_members(key) ? override_table(key, text.substr(equals + 1), place)
                              : unknown_key(place, key);
    }
    return read_override_value(*field, text.substr(equals + 1), place);
  }

  /// Sets one member of a source that the file names: "data.sources[1].weight=3".
  Status override_member(const std::string& key, const std::string& value,
                         const std::string& place) {
    const SourcePath path = parse_source_path(key);
    std::vector<DataSource>& sources = config_.data.sources;
    if (path.member == nullptr || path.index >= sources.size()) {
      return user_error(fmt::format(
          "{}: \"{}\" is no member of a source; sources are numbered from 0 to {}, and have {}",
          place, one_line(key), static_cast<std::int64_t>(sources.size()) - 1,
          fmt::join(member_names(), ", ")));
    }
    if (type_name(*path.member) == "text" && !value.starts_with('"') && !value.starts_with('\'')) {
      return take_member(path, toml::value<std::string>(value), place);
    }
    try {
      const toml::table parsed = toml::parse(fmt::format("value = {}", one_line(value)));
      return take_member(path, *parsed.get("value"), place);
    } catch (const toml::parse_error&) {
      return take_member(path, toml::value<std::string>(value), place);  // Says what it must be.
    }
  }

  Status take_member(const SourcePath& path, const toml::node& node, const std::string& place) {
    const std::string key = source_key(path.index, path.member->name);
    TRAIN_RETURN_IF_ERROR(
        assign_member(*path.member, node, place, key, config_.data.sources[path.index]));
    places_.by_key[key] = place;
    return {};
  }

  /// Reads the tables of data.sources in the place of those before.
  Status take_sources(const Field& field, const toml::node& node, const std::string& place) {
    const toml::array* tables = node.as_array();
    if (tables == nullptr ||
        !std::ranges::all_of(*tables, [](const toml::node& each) { return each.is_table(); })) {
      return user_error(
          fmt::format("{}: {} must be {}, found {}", place, field.key(), wanted_text(field),
                      tables == nullptr ? found_text(node) : "an array of other values"));
    }
    std::erase_if(places_.by_key,
                  [&](const auto& entry) { return entry.first.starts_with(field.key()); });
    config_.data.sources.assign(tables->size(), {});
    places_.by_key[field.key()] = place;
    for (std::size_t index = 0; index < tables->size(); ++index) {
      read_source(index, *tables->get(index)->as_table(), place);
    }
    return {};
  }

  void read_source(std::size_t index, const toml::table& table, const std::string& place) {
    const bool of_file = !place.starts_with("--set ");
    const auto place_in = [&](const toml::source_region& region) {
      return of_file ? place_of(places_.file, region) : place;
    };
    places_.by_key[fmt::format("data.sources[{}]", index)] = place_in(table.source());
    for (const auto& [name, node] : table) {
      const std::string key = source_key(index, name.str());
      const std::string here = place_in(name.source());
      const SourceMember* member = find_source_member(name.str());
      mistakes_.add(
          member == nullptr
              ? user_error(fmt::format("{}: unknown key \"{}\"{}", here, one_line(key),
                                       did_you_mean(std::string(name.str()), member_names())))
              : take_member({.index = index, .member = member}, node, here));
    }
  }

  void read_root(const toml::table& root) {
    for (const auto& [section, node] : root) {
      const std::string name(section.str());
      const std::string place = place_of(places_.file, section.source());
      const std::vector<std::string> sections = all_sections();
      const bool known = std::find(sections.begin(), sections.end(), name) != sections.end();
      if (!known && !node.is_table()) {
        mistakes_.add(unknown_key(place, name));
      } else if (!known) {
        mistakes_.add(user_error(fmt::format("{}: unknown section \"{}\"{}", place, one_line(name),
                                             did_you_mean(name, sections, "section"))));
      } else if (!node.is_table()) {
        mistakes_.add(user_error(fmt::format("{}: {} must be a section \"[{}]\", found {}", place,
                                             name, name, found_text(node))));
      } else {
        read_section(name, *node.as_table());
      }
    }
  }

  void read_section(const std::string& section, const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string key = fmt::format("{}.{}", section, name.str());
      const std::string place = place_of(places_.file, name.source());
      const Field* field = find_field(key);
      if (field == nullptr && node.is_table() && has_members(key)) {
        read_section(key, *node.as_table());
      } else {
        mistakes_.add(field == nullptr ? unknown_key(place, key) : take(*field, node, place));
      }
    }
  }

  /// Sets the keys of a table within a section: "train.stop_after={patience=3}".
  Status override_table(const std::string& key, const std::string& value,
                        const std::string& place) {
    try {
      const toml::table parsed = toml::parse(fmt::format("value = {}", one_line(value)));
      const toml::table* members = parsed.get("value")->as_table();
      for (const auto& [name, node] : members == nullptr ? toml::table() : *members) {
        const std::string member = fmt::format("{}.{}", key, name.str());
        const Field* field = find_field(member);
        TRAIN_RETURN_IF_ERROR(field == nullptr ? unknown_key(place, member)
                                               : take(*field, node, place));
      }
      if (members != nullptr) {
        return {};
      }
    } catch (const toml::parse_error&) {
      // Told as below.
    }
    return user_error(fmt::format("{}: {} must be a table, {{key = value, ...}}, found \"{}\"",
                                  place, key, one_line(value)));
  }

  Status read_override_value(const Field& field, const std::string& value,
                             const std::string& place) {
    const bool quoted = !value.empty() && (value.front() == '"' || value.front() == '\'');
    const bool list = type_name(field) == "list of texts";
    const bool bare = !quoted && !(list && value.starts_with('['));
    if (list && value.empty()) {
      return take(field, toml::array(), place);
    }
    if (bare && (list || type_name(field).starts_with("text"))) {
      return take(field, toml::value<std::string>(value), place);
    }
    if (value.find_first_of("\r\n") != std::string::npos) {
      return user_error(fmt::format("{}: the value must be one line", place));
    }
    try {
      const toml::table parsed = toml::parse(fmt::format("value = {}", value));
      return take(field, *parsed.get("value"), place);
    } catch (const toml::parse_error&) {
      std::int64_t number = 0;
      const bool too_large =
          type_name(field) == "integer" &&
          std::from_chars(value.data(), value.data() + value.size(), number).ec ==
              std::errc::result_out_of_range;
      return user_error(fmt::format("{}: {} must be {}, found \"{}\"", place, field.key(),
                                    too_large ? allowed_values(field) : wanted_text(field),
                                    one_line(value)));
    }
  }

  Status take(const Field& field, const toml::node& node, const std::string& place) {
    if (type_name(field) == "list of tables") {
      return take_sources(field, node, place);
    }
    TRAIN_RETURN_IF_ERROR(assign(field, node, place, config_));
    places_.by_key[field.key()] = place;
    return {};
  }

  RunConfig config_;
  KeyPositions places_;
  Mistakes mistakes_;
};

}  // namespace

Error unknown_key(const std::string& place, const std::string& key) {
  const std::vector<std::string> keys = all_keys();
  // The right name in the wrong section is likelier than several typos, but not than one.
  const std::string nearest = nearest_name(key, keys);
  const bool one_slip = !nearest.empty() && edit_distance(key, nearest) == 1;
  const std::string meant = key_meant(key);
  std::string hint = !meant.empty() && !one_slip ? fmt::format("; did you mean \"{}\"?", meant)
                                                 : did_you_mean(key, keys);
  if (hint.empty()) {
    const std::string section = did_you_mean(key, all_sections(), "section");
    hint = section.empty() ? "; \"actortrain config keys\" lists them all" : section;
  }
  return user_error(fmt::format("{}: unknown key \"{}\"{}", place, one_line(key), hint));
}

Result<RunConfig> parse_config(std::string_view text, const std::string& file_name,
                               std::span<const std::string> overrides, KeyPositions* places) {
  Loader loader(file_name);
  TRAIN_RETURN_IF_ERROR(loader.read_file(text));
  for (const std::string& override_text : overrides) {
    loader.read_override(override_text);
  }
  auto config = loader.finish();
  if (places != nullptr) {
    *places = loader.places();
  }
  return config;
}

Result<RunConfig> load_config(const std::string& path, std::span<const std::string> overrides,
                              KeyPositions* places) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) {
    constexpr const char* kWayOut =
        "; give the path of one, or make one with \"actortrain quickstart\"";
    const std::string whole = path + ".toml";
    const fs::path folder = fs::path(path).parent_path();
    std::error_code ignored;
    if (!folder.empty() && fs::status(folder, ignored).type() == fs::file_type::not_found) {
      return user_error(fmt::format("{}: no such run file: there is no directory {}{}", path,
                                    folder.string(), kWayOut));
    }
    return user_error(fmt::format("{}: no such run file{}", path,
                                  fs::exists(whole, ignored)
                                      ? fmt::format("; did you mean \"{}\"?", whole)
                                  : code && code != std::errc::no_such_file_or_directory
                                      ? fmt::format(" ({}){}", code.message(), kWayOut)
                                      : kWayOut));
  }
  if (fs::is_directory(status)) {
    return user_error(fmt::format("{}: is a directory; name a .toml file in it", path));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return user_error(
        fmt::format("{}: cannot be opened: {}", path, std::generic_category().message(errno)));
  }
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return user_error(fmt::format("{}: cannot be read", path));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile) {
    return user_error(fmt::format("{}: larger than 1 MiB; this is not a run file", path));
  }
  return parse_config(text, path, overrides, places);
}

}  // namespace train::configs
