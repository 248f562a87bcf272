#include <sstream>

#include "cli/command.hpp"
#include "storage/tokenizer/tokenizer.hpp"

namespace train::cli {
namespace {

/// Lines of a text, without their ends; the last one also where it has none.
std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

Status tokenize(const TokenizeOptions& options) {
  const auto tokenizer = storage::Tokenizer::load(options.tokenizer);
  TRAIN_RETURN_IF_ERROR(tokenizer);
  const auto input = whole_input(options.file);
  TRAIN_RETURN_IF_ERROR(input);
  const std::vector<std::string> texts =
      options.lines ? lines_in(*input) : std::vector<std::string>{*input};
  for (const std::string& text : texts) {
    const auto ids = tokenizer->encode(text, options.special);
    TRAIN_RETURN_IF_ERROR(ids);
    print(fmt::format("{}\n", fmt::join(*ids, " ")));
  }
  return {};
}

/// Ids of a line. Errors (user): what is none.
Result<std::vector<std::uint32_t>> ids_in(const std::string& line, std::uint32_t vocab) {
  std::vector<std::uint32_t> ids;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) {
    const auto id = integer_in(word, 0, static_cast<std::int64_t>(vocab) - 1);
    if (!id) {
      return user_error(fmt::format("\"{}\" is no token id; they are 0 to {}", word, vocab - 1));
    }
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
  return ids;
}

Status detokenize(const TokenizeOptions& options) {
  const auto tokenizer = storage::Tokenizer::load(options.tokenizer);
  TRAIN_RETURN_IF_ERROR(tokenizer);
  const auto input = whole_input(options.file);
  TRAIN_RETURN_IF_ERROR(input);
  const auto vocab = static_cast<std::uint32_t>(tokenizer->vocab_size());
  const std::vector<std::string> lines =
      options.lines ? lines_in(*input) : std::vector<std::string>{*input};
  for (const std::string& line : lines) {
    const auto ids = ids_in(line, vocab);
    TRAIN_RETURN_IF_ERROR(ids);
    print(tokenizer->decode(*ids, /*skip_special=*/!options.special) + (options.lines ? "\n" : ""));
  }
  return {};
}

TokenizeOptions& describe_words(CommandSyntax& command, TokenizeOptions& options,
                                const char* special) {
  command
      .text("--tokenizer", options.tokenizer, "Directory of a model, or a tokenizer's file",
            "DIR|FILE")
      ->required();
  command.app.add_flag("--lines", options.lines, "A document and a line of ids a line");
  command.app.add_flag("--special", options.special, special);
  command.app.add_option("FILE", options.file, "What to read; none: standard input")
      ->type_name("FILE");
  return options;
}

}  // namespace

/// Text to ids, separated by spaces.
void describe_tokenize(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add("tokenize", "Print the token ids of a text.");
  describe_words(command, command.runs(tokenize), "With the tokens that every text gets");
}

/// The inverse.
void describe_detokenize(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add("detokenize", "Print the text of token ids.");
  describe_words(command, command.runs(detokenize), "Show special tokens, too");
}

}  // namespace train::cli
