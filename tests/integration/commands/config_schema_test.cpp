// The schema of run files says of each key what the reader takes.

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/fields/field_table.hpp"
#include "configs/load_config.hpp"
#include "tests/support/processes/process.hpp"

namespace train::integration::config_schema_test {
namespace {

using Json = nlohmann::json;

bool has_type(const Json& value, const std::string& type) {
  return type == "object"    ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
         : type == "boolean" ? value.is_boolean()
         : type == "integer" ? value.is_number_integer()
                             : value.is_number();
}

/// Whether a value is valid, by the words that the schema of a key uses.
bool valid(const Json& schema, const Json& value) {
  if (schema.contains("anyOf")) {
    return std::ranges::any_of(schema["anyOf"], [&](const Json& one) { return valid(one, value); });
  }
  if (!has_type(value, schema.at("type").get<std::string>())) {
    return false;
  }
  if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end()) {
    return false;
  }
  const auto keeps = [&](const char* word, const auto& compare) {
    return !schema.contains(word) ||
           (value.is_number() && compare(value.get<double>(), schema[word].get<double>()));
  };
  if (!keeps("minimum", std::greater_equal<>()) || !keeps("maximum", std::less_equal<>()) ||
      !keeps("exclusiveMinimum", std::greater<>()) || !keeps("exclusiveMaximum", std::less<>())) {
    return false;
  }
  if (value.is_string() && value.get<std::string>().size() < schema.value("minLength", 0U)) {
    return false;
  }
  if (value.is_array() && value.size() < schema.value("minItems", 0U)) {
    return false;
  }
  if (value.is_array()) {
    return std::ranges::all_of(value, [&](const Json& one) { return valid(schema["items"], one); });
  }
  if (value.is_object()) {
    return std::ranges::all_of(schema.value("required", Json::array()),
                               [&](const Json& name) { return value.contains(name); }) &&
           std::ranges::all_of(value.items(), [&](const auto& entry) {
             return schema["properties"].contains(entry.key()) &&
                    valid(schema["properties"][entry.key()], entry.value());
           });
  }
  return true;
}

Json printed_schema() {
  const auto ended =
      test::Process({ACTORTRAIN_BINARY_DIR "/actortrain", "config", "schema"}).wait();
  REQUIRE(ended.exit_code == 0);
  return Json::parse(ended.out);
}

Json schema_of(const Json& schema, const configs::Field& field) {
  Json found = schema.at("properties").at(std::string(field.section));
  std::string name(field.name);
  if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    found = found.at("properties").at(name.substr(0, dot));
    name.erase(0, dot + 1);
  }
  return found.at("properties").at(name);
}

/// A value of TOML, and the same as JSON.
struct Probe {
  std::string toml;
  Json json;
};

std::vector<Probe> probes(const configs::Field& field) {
  std::vector<Probe> all = {
      {"{dir = \"a\"}", Json::parse(R"({"dir": "a"})")},
      {"[{dir = \"a\", weight = 2}]", Json::parse(R"([{"dir": "a", "weight": 2}])")},
      {"[{dir = \"a\", weight = -2}]", Json::parse(R"([{"dir": "a", "weight": -2}])")}};
  for (const char* const both :
       {"true", "0", "1", "-1", "16", "0.5", "-0.5", R"("text")", R"("")", "[]", R"(["text"])",
        "[1, 2]", "[0.5]", "[-1]", R"([1, "text"])", "[[1]]"}) {
    all.push_back({both, Json::parse(both)});
  }
  for (const std::string& choice : configs::split_choices(field)) {
    all.push_back({"\"" + choice + "\"", choice});
  }
  return all;
}

/// Whether the reader takes the value for its kind and range; rules about several keys are others.
bool taken(const configs::Field& field, const std::string& value) {
  const std::string text =
      "[" + std::string(field.section) + "]\n" + std::string(field.name) + " = " + value + "\n";
  const auto config = configs::parse_config(text, "x.toml");
  const std::string message = config ? "" : config.error().message;
  return std::ranges::none_of(
      std::vector<std::string>{" must ", " is \"", " is empty", " holds an empty text", " holds ",
                               "[0].weight must be "},
      [&](const std::string& words) {
        return message.find(field.key() + words) != std::string::npos;
      });
}

}  // namespace

TEST_CASE("config schema: of each key it allows what the reader takes",
          "[integration][config_schema]") {
  const Json schema = printed_schema();
  for (const configs::Field& field : configs::all_fields()) {
    const Json key = schema_of(schema, field);
    for (const Probe& probe : probes(field)) {
      INFO(field.key() << " = " << probe.toml);
      CHECK(valid(key, probe.json) == taken(field, probe.toml));
    }
  }
}

}  // namespace train::integration::config_schema_test
