#include "cli/command.hpp"
#include "configs/fields/field_table.hpp"

namespace train::cli {

void describe_config_keys(CommandSyntaxes& commands) {
  commands
      .add("config keys", "Print every key of a run file: type, default, allowed values, meaning.")
      .runs(+[](const KeysOptions&) {
        print(configs::describe_keys_markdown());
        return Status();
      });
}

}  // namespace train::cli
