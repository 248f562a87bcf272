// Run files and tables of scaling rules.
#include <string>

#include "configs/fields/field_table.hpp"
#include "configs/load_config.hpp"
#include "configs/scaling/scaling.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

void run_config(std::string_view text, std::vector<std::string> overrides) {
  const auto config = configs::parse_config(text, "run.toml", overrides);
  if (!config) {
    require(config.error().kind == ErrorKind::user, "a bad run file is the user's");
    for (const std::string_view line : cut(config.error().message, '\n')) {
      require_readable({ErrorKind::user, std::string(line)});
    }
    return;
  }
  const std::string resolved = configs::to_toml(*config);
  const auto again = configs::parse_config(resolved, "resolved.toml");
  require(again && configs::to_toml(*again) == resolved, "a resolved run is read as it was");
}

/// The first line says what the rest is: "rules", or "--set" and overrides split by ';'.
void run(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view first = input.substr(0, end);
  if (first == "rules") {
    const auto table = configs::parse_scaling_table(input.substr(end), "rules.toml");
    if (!table) {
      require_readable(table.error());
    }
    return;
  }
  std::vector<std::string> overrides;
  if (first.starts_with("--set ")) {
    for (const std::string_view one : cut(first.substr(6), ';')) {
      overrides.emplace_back(one);
    }
    input.remove_prefix(end);
  }
  run_config(input, overrides);
}

std::vector<std::string> seeds() {
  const configs::RunConfig defaults;
  const std::string resolved = configs::to_toml(defaults);
  const std::string small = "[run]\nname = \"x\"\nsteps = 10\n[data]\ndir = \"d\"\n";
  return {resolved, small, "--set run.steps=3;optimizer.lr=1e-3;parallel.strategy=zero3\n" + small,
          "rules\n" + std::string(configs::built_in_scaling_rules())};
}

}  // namespace

Target config_target() {
  std::vector<std::string> words = {
      "[run]",   "[model]", "[data]",  "[optimizer]", "[parallel]",
      "true",    "nan",     "-inf",    "1e308",       "0x7fffffffffffffff",
      "\"\"\"",  "'''",     "[[",      "= [",         "{ a = 1 }",
      "\\u0000", "--set ",  "rules\n", "1979-05-27",  "\"\\n\""};
  for (const configs::Field& field : configs::all_fields()) {
    words.push_back(std::string(field.name) + " = ");
  }
  return {"config", run, seeds, words};
}

}  // namespace train::fuzz
