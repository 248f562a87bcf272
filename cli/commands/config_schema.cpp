#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "configs/fields/field_table.hpp"

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number_schema(const configs::Field& field, bool whole) {
  const auto end = [whole](double value) {
    return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  Json schema = {{"type", whole ? "integer" : "number"}};
  if (const configs::Limits& limits = field.limits; limits.low < limits.high) {
    if (std::isfinite(limits.low)) {
      schema[limits.low_excluded ? "exclusiveMinimum" : "minimum"] = end(limits.low);
    }
    if (std::isfinite(limits.high)) {
      schema[limits.high_excluded ? "exclusiveMaximum" : "maximum"] = end(limits.high);
    }
  }
  return schema;
}

Json text_schema(const configs::Field& field) {
  Json schema = {{"type", "string"}};
  if (!field.choices.empty()) {
    schema["enum"] = configs::split_choices(field);
  }
  if (field.or_integer) {
    return {{"anyOf", {schema, number_schema(field, /*whole=*/true)}}};
  }
  return schema;
}

/// Schema of a key's value.
Json value_schema(const configs::Field& field, configs::RunConfig& defaults) {
  return std::visit(
      [&field](auto* value) -> Json {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return {{"type", "boolean"}};
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return text_schema(field);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return {{"type", "array"}, {"items", {{"type", "string"}}}};
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          return {{"type", "array"}, {"items", number_schema(field, /*whole=*/true)}};
        } else {
          return number_schema(field, std::is_integral_v<Value>);
        }
      },
      field.locate(defaults));
}

Json default_of(const configs::Field& field, configs::RunConfig& defaults) {
  return std::visit(
      [&field](auto* value) -> Json {
        if constexpr (std::is_same_v<std::remove_pointer_t<decltype(value)>, std::string>) {
          const auto number = field.or_integer ? configs::whole_number(*value) : std::nullopt;
          return number ? Json(*number) : Json(*value);
        } else {
          return *value;
        }
      },
      field.locate(defaults));
}

Status print_schema(const SchemaOptions& /*options*/) {
  configs::RunConfig defaults;
  Json sections = Json::object();
  Json needed = Json::array();
  for (const configs::Field& field : configs::all_fields()) {
    Json& section = sections[std::string(field.section)];
    if (section.is_null()) {
      section = {{"type", "object"}, {"additionalProperties", false}};
    }
    Json schema = value_schema(field, defaults);
    schema["description"] = field.unit.empty() ? std::string(field.sentence)
                                               : fmt::format("{} ({})", field.sentence, field.unit);
    if (field.required) {
      if (!section.contains("required")) {
        needed.push_back(field.section);
      }
      section["required"].push_back(field.name);
    } else {
      schema["default"] = default_of(field, defaults);
    }
    section["properties"][std::string(field.name)] = std::move(schema);
  }
  // The draft that editors of TOML know.
  const Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                       {"title", "Run file of actortrain"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"required", std::move(needed)},
                       {"properties", std::move(sections)}};
  print(schema.dump(2) + "\n");
  return {};
}

}  // namespace

void describe_config_schema(CommandSyntaxes& commands) {
  commands
      .add("config schema",
           "Print a JSON Schema of run files, by which editors complete and check keys.")
      .runs(print_schema);
}

}  // namespace train::cli
