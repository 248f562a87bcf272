#include "configs/scaling/scaling.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "configs/load_config.hpp"
#include "configs/words/nearest.hpp"

namespace train::configs {
namespace {

constexpr const char* kBuiltIn = "the built-in scaling rules";
constexpr std::int64_t kLargestWhole = std::int64_t{1} << 24;

/// Reads the keys of one table; keeps the first error.
class Reader {
 public:
  Reader(const toml::table& table, std::string name, const std::string& file)
      : table_(table), name_(std::move(name)), file_(file) {}

  std::int64_t whole(const char* key) {
    const toml::node* node = need(key);
    const auto* value = node == nullptr ? nullptr : node->as_integer();
    return value == nullptr ? refuse(key, node, "an integer") : checked(key, *node, value->get());
  }

  std::string text(const char* key) {
    const toml::node* node = need(key);
    const auto* value = node == nullptr ? nullptr : node->as_string();
    if (value == nullptr || value->get().empty()) {
      refuse(key, node, "text in quotes");
      return {};
    }
    return value->get();
  }

  double number(const char* key) {
    const toml::node* node = need(key);
    const std::optional<double> value = node == nullptr ? std::nullopt : node->value<double>();
    if (!value || !std::isfinite(*value)) {
      return static_cast<double>(refuse(key, node, "a number"));
    }
    return *value;
  }

  const toml::array* list(const char* key) {
    const toml::node* node = need(key);
    const toml::array* value = node == nullptr ? nullptr : node->as_array();
    if (value == nullptr) {
      refuse(key, node, "a list");
    }
    return value;
  }

  [[nodiscard]] bool has(const char* key) const { return table_.contains(key); }

  /// Returns the first error, which may be an unread key.
  Status finish() {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (!error_ && std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
        error_ = user_error(fmt::format("{}: unknown key \"{}\"{}", place(&node), full(name),
                                        did_you_mean(name, asked_)));
      }
    }
    return error_ ? Status(*error_) : Status();
  }

  std::int64_t refuse(const char* key, const toml::node* node, const std::string& wanted) {
    if (!error_) {
      error_ = user_error(fmt::format("{}: {} {} {}", place(node), full(key),
                                      node == nullptr ? "is missing; it is" : "wants", wanted));
    }
    return 0;
  }

 private:
  const toml::node* need(const char* key) {
    asked_.emplace_back(key);
    return table_.get(key);
  }

  std::int64_t checked(const char* key, const toml::node& node, std::int64_t value) {
    return value >= 1 && value <= kLargestWhole
               ? value
               : refuse(key, &node, fmt::format("1 .. {}, found {}", kLargestWhole, value));
  }

  [[nodiscard]] std::string full(std::string_view key) const {
    return fmt::format("{}.{}", name_, key);
  }

  [[nodiscard]] std::string place(const toml::node* node) const {
    const toml::source_region& region = node == nullptr ? table_.source() : node->source();
    return fmt::format("{}:{}", file_, region.begin.line);
  }

  const toml::table& table_;
  std::string name_;
  const std::string& file_;
  std::vector<std::string> asked_;
  std::optional<Error> error_;
};

Result<LrFormula> read_formula(const toml::node& node, const std::string& name,
                               const std::string& file) {
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    return user_error(fmt::format("{}:{}: {} must be tables {{ optimizer = ..., a = ..., ... }}",
                                  file, node.source().begin.line, name));
  }
  Reader reader(*table, name, file);
  LrFormula formula{.optimizer = reader.text("optimizer"),
                    .kappa = {},
                    .sequences = {},
                    .a = reader.number("a"),
                    .b = reader.number("b"),
                    .d = reader.number("d")};
  if (reader.has("kappa")) {
    formula.kappa = reader.number("kappa");
  }
  if (reader.has("sequences")) {
    formula.sequences = reader.whole("sequences");
  }
  TRAIN_RETURN_IF_ERROR(reader.finish());
  if (formula.a <= 0.0 || formula.b < 0.0) {
    return user_error(fmt::format("{}:{}: {} for {} needs a above 0 and b at least 0", file,
                                  node.source().begin.line, name, formula.optimizer));
  }
  return formula;
}

/// [3, 4]: times and over.
void read_fraction(Reader& reader, ScalingRule& rule) {
  const char* key = "layers_per_heads";
  const toml::array* pair = reader.list(key);
  if (pair == nullptr) {
    return;
  }
  std::vector<std::int64_t> numbers;
  for (const toml::node& node : *pair) {
    const auto* number = node.as_integer();
    numbers.push_back(number == nullptr ? 0 : number->get());
  }
  const bool good = numbers.size() == 2 && std::all_of(numbers.begin(), numbers.end(),
                                                       [](auto n) { return n >= 1 && n <= 1000; });
  if (!good) {
    reader.refuse(key, pair, "two integers, each 1 .. 1000");
    return;
  }
  rule.layers_times = numbers[0];
  rule.layers_over = numbers[1];
}

Result<ScalingRule> read_rule(const toml::table& table, const std::string& name,
                              const std::string& file) {
  Reader reader(table, name, file);
  ScalingRule rule{.name = name,
                   .arch = reader.text("arch"),
                   .head_dim = reader.whole("head_dim"),
                   .layers_times = 0,
                   .layers_over = 0,
                   .mlp_ratio = reader.whole("mlp_ratio"),
                   .block_weights = reader.whole("block_weights"),
                   .vocab_size = reader.whole("vocab_size"),
                   .lr = {}};
  read_fraction(reader, rule);
  const toml::array* formulas = reader.list("lr");
  TRAIN_RETURN_IF_ERROR(reader.finish());
  for (const toml::node& node : *formulas) {
    auto formula = TRAIN_TRY(read_formula(node, name + ".lr", file));
    rule.lr.push_back(std::move(formula));
  }
  return rule;
}

}  // namespace

const ScalingRule* ScalingTable::find(std::string_view rule) const {
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const ScalingRule& one) { return one.name == rule; });
  return found == rules.end() ? nullptr : &*found;
}

Result<ScalingTable> parse_scaling_table(std::string_view text, const std::string& place) {
  ScalingTable table{.name = place, .rules = {}};
  try {
    const toml::table root = toml::parse(text);
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (!node.is_table()) {
        return user_error(fmt::format("{}:{}: \"{}\" is not a rule; a rule is a section [{}]",
                                      place, node.source().begin.line, name, name));
      }
      auto rule = TRAIN_TRY(read_rule(*node.as_table(), name, place));
      table.rules.push_back(std::move(rule));
    }
  } catch (const toml::parse_error& error) {
    std::string description(error.description());
    std::replace(description.begin(), description.end(), '\n', ' ');
    return user_error(
        fmt::format("{}:{}: not valid TOML: {}", place, error.source().begin.line, description));
  }
  if (table.rules.empty()) {
    return user_error(fmt::format("{}: holds no rule; a rule is a section", place));
  }
  return table;
}

Result<ScalingTable> load_scaling_table(const std::string& path) {
  if (path.empty()) {
    return parse_scaling_table(built_in_scaling_rules(), kBuiltIn);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || !file.eof() || text.size() > kLargestFile) {
    return user_error(fmt::format(
        "{}: cannot be read as a file of scaling rules (at most 1 MiB of TOML); check the path",
        path));
  }
  return parse_scaling_table(text, path);
}

}  // namespace train::configs
