#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/text/log.hpp"
#include "cli/command.hpp"
#include "data/prepare/prepare.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/text_stream.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::cli {
namespace {

using nlohmann::json;
using Ids = std::vector<std::uint32_t>;

/// Calls `each` with the lines of a text, without line ends; the last line may lack one.
template <class Each>
Status for_each_line(std::string_view text, Each&& each) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    TRAIN_RETURN_IF_ERROR(each(text.substr(0, end), number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

/// Member of a line that is a JSON object, if it has the wanted type.
template <class Wanted>
Result<Wanted> member_of(std::string_view line, std::size_t number, const char* name) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_object() && object.contains(name)) {
    try {
      return object.at(name).get<Wanted>();
    } catch (const json::exception&) {  // The wrong type is reported below.
    }
  }
  return user_error(fmt::format("line {}: not a JSON object with the member \"{}\": {}", number,
                                name, storage::shown(line)));
}

/// Value of --tokenizer whose tokens are bytes, as in `data prepare`.
constexpr std::string_view kBytes = "bytes";

Result<data::Tokenizer> load(const TokenizeOptions& options) {
  auto tokenizer = data::Tokenizer::load(options.tokenizer);
  if (tokenizer) {
    for (const std::string& note : tokenizer->notes()) {
      log_info(fmt::format("tokenizer_note {}: {}", options.tokenizer, note));
    }
  }
  return tokenizer;
}

/// Appends the bytes of a text as ids, each with its place; no byte is replaced.
void add_bytes(std::string_view text, data::EncodedText& encoded) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    encoded.ids.push_back(static_cast<unsigned char>(text[i]));
    encoded.spans.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + 1)});
  }
}

/// Text of byte tokens. Their end of text is special: no byte stands for it.
std::string text_of_bytes(const Ids& ids) {
  std::string text;
  for (const std::uint32_t id : ids) {
    if (id < data::kBytesEndOfText) {
      text += static_cast<char>(id);
    }
  }
  return text;
}

/// Buffers lines, so that many short ones need few system calls.
class LinePrinter {
 public:
  LinePrinter() = default;
  LinePrinter(const LinePrinter&) = delete;
  LinePrinter& operator=(const LinePrinter&) = delete;
  ~LinePrinter() { print(waiting_); }

  void add(std::string_view line) {
    waiting_.append(line) += '\n';
    if (waiting_.size() >= kBlock) {
      print(waiting_);
      waiting_.clear();
    }
  }

 private:
  static constexpr std::size_t kBlock = 65536;
  std::string waiting_;
};

std::string spans_text(std::span<const storage::TokenSpan> spans) {
  std::string text = ",\"spans\":[";
  for (const storage::TokenSpan& span : spans) {
    fmt::format_to(std::back_inserter(text), "{}[{},{}]", &span == spans.data() ? "" : ",",
                   span.first, span.last);
  }
  return text += ']';
}

/// Encodes one text after another as the options say.
class Encoder {
 public:
  static Result<Encoder> open(const TokenizeOptions& options) {
    if (options.tokenizer == kBytes) {
      return Encoder(options, std::nullopt);
    }
    return Encoder(options, TRAIN_TRY(load(options)));
  }

  /// Replaces `encoded`.
  Status encode(std::string_view text, data::EncodedText& encoded) {
    encoded.ids.clear();
    encoded.spans.clear();
    if (!encoder_) {
      add_bytes(text, encoded);
      return {};
    }
    return spans_ ? encoder_->encode_with_spans(text, how_, encoded)
                  : encoder_->encode(text, how_, encoded.ids);
  }
  [[nodiscard]] std::uint64_t replaced_count() const {
    return encoder_ ? encoder_->replaced_count() : 0;
  }

 private:
  Encoder(const TokenizeOptions& options, const std::optional<data::Tokenizer>& tokenizer)
      : how_{.add_special_tokens = options.special, .rendered = options.rendered},
        spans_(options.spans),
        encoder_(tokenizer ? std::make_unique<data::TextEncoder>(*tokenizer) : nullptr) {}

  data::EncodeOptions how_;
  bool spans_;
  std::unique_ptr<data::TextEncoder> encoder_;  ///< Null: bytes.
};

Status tokenize(const TokenizeOptions& options) {
  auto encoder = TRAIN_TRY(Encoder::open(options));
  const auto input = TRAIN_TRY(whole_input(options.file));
  LinePrinter printer;
  data::EncodedText encoded;
  const Ids& ids = encoded.ids;
  const auto encode = [&](std::string_view text) { return encoder.encode(text, encoded); };
  const auto encode_line = [&](std::string_view line, std::size_t number) -> Status {
    if (options.lines) {
      TRAIN_RETURN_IF_ERROR(encode(line));
      printer.add(fmt::format("{}", fmt::join(ids, " ")));
      return {};
    }
    const auto text = TRAIN_TRY(member_of<std::string>(line, number, "text"));
    TRAIN_RETURN_IF_ERROR(encode(text));
    printer.add(fmt::format("{{\"ids\":[{}]{}}}", fmt::join(ids, ","),
                            options.spans ? spans_text(encoded.spans) : ""));
    return {};
  };
  if (options.lines || options.jsonl) {
    TRAIN_RETURN_IF_ERROR(for_each_line(input, encode_line));
  } else {
    TRAIN_RETURN_IF_ERROR(encode(input));
    printer.add(fmt::format("{}", fmt::join(ids, " ")));
  }
  if (encoder.replaced_count() > 0) {
    log_warning(fmt::format("text_replaced {} places were not UTF-8 and became U+FFFD",
                            encoder.replaced_count()));
  }
  return {};
}

/// Parses the ids of a line. Errors (user): an invalid id.
Result<Ids> ids_in(std::string_view line, std::uint32_t vocab) {
  Ids ids;
  std::istringstream stream{std::string(line)};
  for (std::string word; stream >> word;) {
    const auto id = integer_in(word, 0, static_cast<std::int64_t>(vocab) - 1);
    if (!id) {
      return user_error(
          fmt::format("{} is not a token id; they are 0 to {}", storage::shown(word), vocab - 1));
    }
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
  return ids;
}

/// Checks the ids of a list.
Result<Ids> checked_ids(const std::vector<std::int64_t>& numbers, std::uint32_t vocab) {
  for (const std::int64_t number : numbers) {
    if (number < 0 || number >= static_cast<std::int64_t>(vocab)) {
      return user_error(fmt::format("{} is not a token id; they are 0 to {}", number, vocab - 1));
    }
  }
  return Ids(numbers.begin(), numbers.end());
}

/// Line with the text added by each token after a prompt, and the rest at the end.
Result<std::string> pieces_line(const data::Tokenizer& tokenizer, std::string_view line,
                                std::size_t number, const Ids& ids) {
  const auto numbers = TRAIN_TRY(member_of<std::vector<std::int64_t>>(line, number, "prompt"));
  const auto prompt = TRAIN_TRY(checked_ids(numbers, tokenizer.vocab_size()));
  data::TextStream text(tokenizer, prompt);
  std::vector<std::string> pieces;
  for (const std::uint32_t id : ids) {
    pieces.push_back(text.add(id));
  }
  pieces.push_back(text.finish());
  return json{{"pieces", pieces}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

Status detokenize(const TokenizeOptions& options) {
  std::optional<data::Tokenizer> tokenizer;  // nullopt: bytes.
  if (options.tokenizer != kBytes) {
    tokenizer = TRAIN_TRY(load(options));
  }
  const auto input = TRAIN_TRY(whole_input(options.file));
  const std::uint32_t vocab =
      tokenizer ? tokenizer->vocab_size() : static_cast<std::uint32_t>(data::kBytesVocabSize);
  LinePrinter printer;
  const auto decode = [&](const Ids& ids) {
    return tokenizer ? tokenizer->decode(ids, /*skip_special=*/!options.special)
                     : text_of_bytes(ids);
  };
  const auto decode_line = [&](std::string_view line, std::size_t number) -> Status {
    if (options.lines) {
      const auto ids = TRAIN_TRY(ids_in(line, vocab));
      printer.add(decode(ids));
      return {};
    }
    const auto numbers = TRAIN_TRY(member_of<std::vector<std::int64_t>>(line, number, "ids"));
    const auto ids = TRAIN_TRY(checked_ids(numbers, vocab));
    if (options.pieces) {
      const auto pieces = TRAIN_TRY(pieces_line(*tokenizer, line, number, ids));
      printer.add(pieces);
      return {};
    }
    printer.add(json{{"text", decode(ids)}}.dump(-1, ' ', false, json::error_handler_t::replace));
    return {};
  };
  if (options.lines || options.jsonl) {
    return for_each_line(input, decode_line);
  }
  const auto ids = TRAIN_TRY(ids_in(input, vocab));
  print(decode(ids));
  return {};
}

TokenizeOptions& describe_words(CommandSyntax& command, TokenizeOptions& options, const char* jsonl,
                                const char* special) {
  command
      .text("--tokenizer", options.tokenizer,
            "bytes (a token is a byte), a model's directory, or a tokenizer's file",
            "bytes|DIR|FILE")
      ->required();
  command.app.add_flag("--lines", options.lines, "Each line is a document and gives a line of ids");
  command.app.add_flag("--jsonl", options.jsonl, jsonl);
  command.app.add_flag("--special", options.special, special);
  command.app.add_option("FILE", options.file, "File to read; by default standard input")
      ->type_name("FILE");
  command.check([&options] {
    return std::string(options.lines && options.jsonl    ? "--lines and --jsonl exclude each other"
                       : options.spans && !options.jsonl ? "--spans needs --jsonl"
                       : options.pieces && (!options.jsonl || options.special)
                           ? "--pieces needs --jsonl, and shows no special tokens"
                       : options.pieces && options.tokenizer == kBytes
                           ? "--pieces is for a tokenizer's tokens; one of bytes adds its byte"
                           : "");
  });
  return options;
}

}  // namespace

/// Converts text to ids, separated by spaces.
void describe_tokenize(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add("tokenize", "Print the token ids of a text.");
  TokenizeOptions& options = describe_words(command, command.runs(tokenize),
                                            "Read lines {\"text\"} and print lines {\"ids\"}",
                                            "Add the special tokens that surround every text");
  command.app.add_flag("--rendered", options.rendered,
                       "The text was rendered by a chat template: read control tokens by name");
  command.app.add_flag("--spans", options.spans,
                       "With --jsonl: \"spans\", the bytes of the text that each id stands for");
}

/// Converts ids to text.
void describe_detokenize(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add("detokenize", "Print the text of token ids.");
  TokenizeOptions& options =
      describe_words(command, command.runs(detokenize),
                     "Read lines {\"ids\"} and print lines {\"text\"}", "Show special tokens too");
  command.app.add_flag("--pieces", options.pieces,
                       "With --jsonl: read lines {\"prompt\", \"ids\"} and print lines "
                       "{\"pieces\"}: the text that each id adds behind the prompt");
}

}  // namespace train::cli
