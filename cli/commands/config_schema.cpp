#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/fields/source_table.hpp"

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string with_unit(std::string_view sentence, std::string_view unit) {
  return unit.empty() ? std::string(sentence) : fmt::format("{} ({})", sentence, unit);
}

Json number_schema(const configs::Limits& limits, bool whole) {
  const auto end = [whole](double value) {
    return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  Json schema = {{"type", whole ? "integer" : "number"}};
  if (limits.low < limits.high) {
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
    if (field.key() == "model.arch") {
      schema["enum"].push_back("");  // In stored run files whose model is in model.config.
    }
  }
  if (field.or_integer) {
    return {{"anyOf", {schema, number_schema(field.limits, /*whole=*/true)}}};
  }
  return schema;
}

/// Schema of a table of data.sources.
Json source_schema() {
  Json schema = {{"type", "object"}, {"additionalProperties", false}};
  configs::DataSource defaults;
  for (const configs::SourceMember& member : configs::source_members()) {
    Json value = std::visit(
        [&member](const auto* at) -> Json {
          using Value = std::remove_cv_t<std::remove_pointer_t<decltype(at)>>;
          Json type = {{"type", "string"}};
          if constexpr (!std::is_same_v<Value, std::string>) {
            type = number_schema(member.limits, std::is_integral_v<Value>);
          }
          if (!member.required) {
            type["default"] = *at;
          }
          return type;
        },
        member.locate(defaults));
    value["description"] = with_unit(member.sentence, member.unit);
    if (member.required) {
      schema["required"].push_back(member.name);
    }
    schema["properties"][std::string(member.name)] = std::move(value);
  }
  return schema;
}

/// Schema of a list, which as the reader has it may also be one value without brackets.
Json list_schema(const Json& item, int least) {
  const Json list = {{"type", "array"}, {"items", item}, {"minItems", least}};
  return {{"anyOf", {list, item}}};
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
          return list_schema({{"type", "string"}, {"minLength", 1}}, /*least=*/0);
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          return list_schema(number_schema(field.limits, /*whole=*/true), /*least=*/1);
        } else if constexpr (std::is_same_v<Value, std::vector<configs::DataSource>>) {
          return {{"type", "array"}, {"items", source_schema()}};
        } else {
          return number_schema(field.limits, std::is_integral_v<Value>);
        }
      },
      field.locate(defaults));
}

Json default_of(const configs::Field& field, configs::RunConfig& defaults) {
  return std::visit(
      [&field](auto* value) -> Json {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::vector<configs::DataSource>>) {
          return Json::array();
        } else if constexpr (std::is_same_v<Value, std::string>) {
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
    schema["description"] = with_unit(field.sentence, field.unit);
    if (field.key() == "data.dir") {
      section["anyOf"] = {{{"required", {"dir"}}}, {{"required", {"sources"}}}};
      needed.push_back(field.section);
    } else if (field.required) {
      if (!section.contains("required")) {
        needed.push_back(field.section);
      }
      section["required"].push_back(field.name);
    } else {
      schema["default"] = default_of(field, defaults);
    }
    Json* properties = &section["properties"];
    std::string name(field.name);
    if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
      Json& table = (*properties)[name.substr(0, dot)];
      table["type"] = "object";
      table["additionalProperties"] = false;
      properties = &table["properties"];
      name.erase(0, dot + 1);
    }
    (*properties)[name] = std::move(schema);
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
