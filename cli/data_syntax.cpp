#include <memory>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

Result<Command> finish_prepare(const CLI::App& command, const PrepareOptions& options) {
  if (!(options.val_fraction > 0 && options.val_fraction < 1)) {
    return usage_error(command, fmt::format("--val-fraction must be above 0 and below 1, not {}",
                                            options.val_fraction));
  }
  if (options.tokenizer != "bytes") {
    return usage_error(command, fmt::format("--tokenizer \"{}\" is not known; there is \"bytes\"",
                                            options.tokenizer));
  }
  if (options.out.empty()) {
    return usage_error(command, "--out is empty");
  }
  return Command(options);
}

}  // namespace

void describe_data(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* group = app.add_subcommand("data", "Prepare training data.");
  group->require_subcommand(1);
  CLI::App* command =
      group->add_subcommand("prepare", "Turn text files into the token files that runs read.");
  const auto options = std::make_shared<PrepareOptions>();
  command
      ->add_option("--input", options->inputs,
                   "Text files, or .jsonl files with a member \"text\" on each line")
      ->required()
      ->type_name("FILE");
  command->add_option("--out", options->out, "Directory to write, created if missing")
      ->required()
      ->type_name("DIR");
  command->add_option("--tokenizer", options->tokenizer, "bytes: a token is a byte")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--val-fraction", options->val_fraction, "Share of the text held out")
      ->capture_default_str();
  command
      ->add_option("--document-separator", options->separator,
                   "Text between two documents of a file; none: a file is one document")
      ->type_name("TEXT");
  add_integer(*command, "--seed", options->seed, "Chooses the documents held out")
      ->default_str("0");
  command->add_flag("--force", options->force, "Replace token files already in DIR");
  syntaxes.push_back({command, [command, options] { return finish_prepare(*command, *options); }});
}

}  // namespace train::cli
