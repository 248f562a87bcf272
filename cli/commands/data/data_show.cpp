#include <unistd.h>

#include "cli/command.hpp"
#include "data/rows/row_split.hpp"
#include "data/rows/row_text.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "data/tokens/kept_tokenizer.hpp"

namespace train::cli {
namespace {

const char* side_name(bool kto, int side) {
  if (side == 2) {
    return "with the next one's answer";
  }
  return side == 0 ? (kto ? "desirable" : "chosen") : (kto ? "undesirable" : "rejected");
}

/// Prints one document after a line that describes it.
void show_document(const data::RowSplit& split, const data::Tokenizer& tokenizer,
                   const data::RowExcerpt& excerpt, std::uint64_t number) {
  const data::RowDocument& document = excerpt.document;
  const auto& sources = split.facts().sources;
  const auto source = static_cast<std::size_t>(document.source);
  std::string pair;
  if (document.pair >= 0) {
    const bool kto = split.facts().kind == "kto";
    pair = fmt::format(", {} {} ({})", kto ? "example" : "pair", document.pair,
                       side_name(kto, document.side));
  }
  print(fmt::format("-- document {}{}{}: {} tokens, {} trained\n", number, pair,
                    source < sources.size() ? ", of " + sources[source] : "", document.length,
                    document.trained));
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  print(fmt::format("{}\n", data::marked_text(tokenizer, excerpt,
                                              terminal ? data::Marks{"\x1b[32m", "\x1b[0m"}
                                                       : data::Marks{"[[", "]]"})));
}

Status show(const ShowOptions& options) {
  const auto split = TRAIN_TRY(data::RowSplit::open(options.dir, options.split));
  const auto tokenizer = TRAIN_TRY(data::Tokenizer::load(data::kept_tokenizer(options.dir)));
  auto row = static_cast<std::uint64_t>(options.row);
  if (options.document >= 0) {
    const auto wanted = static_cast<std::uint64_t>(options.document);
    const auto found = data::row_of_document(split, wanted);
    if (!found) {
      return user_error(fmt::format("{}: no row of {} has document {}; there are {} documents",
                                    options.dir, options.split, wanted,
                                    split.facts().of(options.split).documents));
    }
    row = *found;
  }
  if (row >= split.rows()) {
    return user_error(
        fmt::format("{}: row {}, but {} has {}", options.dir, row, options.split, split.rows()));
  }
  const auto excerpts = TRAIN_TRY(data::read_excerpts(split, row));
  print(fmt::format("row {} of {}: {} of {} tokens, {} trained\n", row, split.rows(),
                    split.tokens(row), split.row_length(), split.trained_tokens(row)));
  const std::vector<std::uint64_t> numbers = split.document_numbers(row);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (options.document < 0 || numbers[i] == static_cast<std::uint64_t>(options.document)) {
      show_document(split, tokenizer, excerpts[i], numbers[i]);
    }
  }
  return {};
}

}  // namespace

void describe_data_show(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "data show",
      "Print the documents of a row, or one of them, with what is trained of it in colour (on a "
      "terminal) or in [[ ]].");
  ShowOptions& options = command.runs(show);
  command.app.add_option("dir", options.dir, "Made by data prepare --row-length")
      ->required()
      ->type_name("DIR");
  command.text("--split", options.split, "Which split", "train|val")->capture_default_str();
  command.integer("--row", options.row, "Which row", 0)->default_str("0");
  command.integer("--document", options.document,
                  "Which document, by its number; else all of the row", 0);
  command.check([&options] {
    return options.split == "train" || options.split == "val"
               ? std::string()
               : fmt::format("--split must be train or val, not \"{}\"", options.split);
  });
}

}  // namespace train::cli
