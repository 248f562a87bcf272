#include "cli/command.hpp"

/// All commands, one per line, in the order of help. Each is defined by describe_<command>(), in
/// the file of that name. A macro, because a table would name each twice: to declare it and to call
/// it.
#define TRAIN_COMMANDS(COMMAND) \
  COMMAND(quickstart)           \
  COMMAND(run)                  \
  COMMAND(recipe_list)          \
  COMMAND(recipe_check)         \
  COMMAND(plan)                 \
  COMMAND(submit)               \
  COMMAND(status)               \
  COMMAND(board)                \
  COMMAND(eval)                 \
  COMMAND(generate)             \
  COMMAND(checkpoints_list)     \
  COMMAND(checkpoints_show)     \
  COMMAND(checkpoints_verify)   \
  COMMAND(checkpoints_prune)    \
  COMMAND(checkpoints_reindex)  \
  COMMAND(checkpoints_diff)     \
  COMMAND(replay)               \
  COMMAND(verify)               \
  COMMAND(export)               \
  COMMAND(convert)              \
  COMMAND(merge)                \
  COMMAND(describe)             \
  COMMAND(scale)                \
  COMMAND(plot)                 \
  COMMAND(log)                  \
  COMMAND(data_prepare)         \
  COMMAND(data_show)            \
  COMMAND(tokenize)             \
  COMMAND(detokenize)           \
  COMMAND(render)               \
  COMMAND(config_keys)          \
  COMMAND(config_schema)        \
  COMMAND(completion)           \
  COMMAND(manual)               \
  COMMAND(version)              \
  COMMAND(worker)

namespace train::cli {

#define TRAIN_DECLARE(name) void describe_##name(CommandSyntaxes& commands);
TRAIN_COMMANDS(TRAIN_DECLARE)
#undef TRAIN_DECLARE

void describe_commands(CommandSyntaxes& commands) {
#define TRAIN_DESCRIBE(name) describe_##name(commands);
  TRAIN_COMMANDS(TRAIN_DESCRIBE)
#undef TRAIN_DESCRIBE
}

}  // namespace train::cli
