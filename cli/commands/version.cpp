#include "cli/command.hpp"

namespace train::cli {

void describe_version(CommandSyntaxes& commands) {
  commands.add("version", "Print the version.").runs(+[](const VersionOptions&) {
    print("actortrain " ACTORTRAIN_VERSION "\n");
    return Status();
  });
}

}  // namespace train::cli
