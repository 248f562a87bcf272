#include "cli/command.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/load_config.hpp"

namespace train::cli {
namespace {

Status print_keys(const KeysOptions& options) {
  const std::string text = options.prefix.empty() ? configs::describe_keys_markdown()
                                                  : configs::describe_keys(options.prefix);
  if (text.empty()) {
    return configs::unknown_key("config keys", options.prefix);
  }
  print(text);
  return {};
}

}  // namespace

void describe_config_keys(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "config keys", "Print every key of a run file: type, default, allowed values, meaning.");
  KeysOptions& options = command.runs(print_keys);
  command.text("prefix", options.prefix, "A section or the beginning of a key, for example model",
               "PREFIX");
}

}  // namespace train::cli
