#include "data/tokenizer/stages/token_decoder.hpp"

#include <algorithm>
#include <utility>

#include "data/tokenizer/text/byte_level.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

using Texts = std::vector<std::string>;

std::optional<unsigned> hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') {
    return static_cast<unsigned>(letter - '0');
  }
  const char lower = letter >= 'A' && letter <= 'F' ? static_cast<char>(letter + 32) : letter;
  return lower >= 'a' && lower <= 'f' ? std::optional(static_cast<unsigned>(lower - 'a' + 10))
                                      : std::nullopt;
}

/// Byte of a token like <0x0A>.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) {
    return std::nullopt;
  }
  const auto high = hex_digit(token[3]);
  const auto low = hex_digit(token[4]);
  if (!low || !(high || token[3] == '+')) {
    return std::nullopt;
  }
  return static_cast<char>(static_cast<unsigned char>(high.value_or(0) * 16 + *low));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t found = text.find(from);
  if (found == std::string::npos) {
    return;
  }
  std::string out;
  std::size_t done = 0;
  for (; found != std::string::npos; found = text.find(from, done)) {
    out.append(text, done, found - done).append(to);
    done = found + from.size();
  }
  text = out.append(text, done);
}

/// Each step changes the tokens in place.
struct DecodeRunner {
  Texts& tokens;

  void operator()(const ByteLevelDecode&) const {
    std::string bytes;
    for (const std::string& token : tokens) {
      bytes += decoded_bytes(token);
    }
    std::uint64_t replaced = 0;
    tokens.assign(1, storage::repaired_utf8(bytes, replaced));
  }

  void operator()(const ReplaceDecode& step) const {
    for (std::string& token : tokens) {
      if (!step.literal.empty()) {
        replace_all(token, step.literal, step.content);
      } else {
        token = replaced_matches(step, token);
      }
    }
  }

  void operator()(const ByteFallbackDecode&) const {
    Texts out;
    std::string bytes;
    const auto flush = [&] {
      if (!bytes.empty()) {
        if (storage::valid_prefix(bytes) == bytes.size()) {
          out.push_back(bytes);
        } else {
          out.insert(out.end(), bytes.size(), "\ufffd");
        }
        bytes.clear();
      }
    };
    for (std::string& token : tokens) {
      if (const auto byte = fallback_byte(token)) {
        bytes.push_back(*byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

  void operator()(const FuseDecode&) const {
    std::string all;
    for (const std::string& token : tokens) {
      all += token;
    }
    tokens.clear();
    tokens.push_back(std::move(all));
  }

  void operator()(const StripDecode& step) const {
    std::string content;
    storage::append_utf8(content, step.content);
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (std::size_t i = 0; i < step.start && text.starts_with(content); ++i) {
        text.remove_prefix(content.size());
      }
      for (std::size_t i = 0; i < step.stop && text.ends_with(content); ++i) {
        text.remove_suffix(content.size());
      }
      token = std::string(text);
    }
  }

  void operator()(const MetaspaceDecode& step) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], step.replacement, i == 0 && step.drop_first ? "" : " ");
    }
  }

  void operator()(const SentencePieceDecode& step) const {
    std::string out;
    std::string bytes;
    const auto flush = [&] {
      append_characters(out, bytes);
      bytes.clear();
    };
    bool at_start = true;  // A space here is dropped.
    bool dropped = false;
    for (std::string& token : tokens) {
      if (const auto byte = step.has_bytes ? fallback_byte(token) : std::nullopt) {
        bytes.push_back(*byte);
        continue;
      }
      flush();
      at_start = at_start && !dropped && out.empty();
      dropped = false;
      if (token == step.unknown) {
        out += step.surface;
        continue;
      }
      std::size_t begin = 0;
      if (at_start && step.drop_first && token.starts_with(storage::kSpaceMarker)) {
        begin = storage::kSpaceMarker.size();
        dropped = !step.drop_leading;
      }
      token.erase(0, begin);
      replace_all(token, storage::kSpaceMarker, " ");
      out += token;
    }
    flush();
    tokens.clear();
    tokens.push_back(std::move(out));
  }

 private:
  /// Copies valid characters, and writes U+FFFD for each other byte.
  static void append_characters(std::string& out, std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t valid = storage::valid_prefix(bytes);
      out += bytes.substr(0, valid);
      bytes.remove_prefix(valid);
      if (!bytes.empty()) {
        out += "\ufffd";
        bytes.remove_prefix(1);
      }
    }
  }

  /// Text on which a hostile expression takes too long is left unchanged.
  static std::string replaced_matches(const ReplaceDecode& step, const std::string& text) {
    Regex::Matches matches(step.pattern, text);
    std::string out;
    std::size_t from = 0;
    while (true) {
      const auto match = matches.next();
      if (!match || !*match) {
        break;
      }
      out.append(text, from, (*match)->begin - from);
      out += step.content;
      from = (*match)->end;
    }
    return out.append(text, from);
  }
};

}  // namespace

std::string decoded_bytes(std::string_view token) {
  auto bytes = from_byte_level(token);
  return bytes ? std::move(*bytes) : std::string(token);
}

bool TokenDecoder::only_byte_level() const {
  return steps_ && steps_->size() == 1 && std::holds_alternative<ByteLevelDecode>(steps_->front());
}

bool TokenDecoder::joins_bytes() const {
  return steps_ && std::any_of(steps_->begin(), steps_->end(), [](const DecodeStep& step) {
           const auto* pieces = std::get_if<SentencePieceDecode>(&step);
           return std::holds_alternative<ByteFallbackDecode>(step) ||
                  (pieces != nullptr && pieces->has_bytes);
         });
}

bool is_fallback_byte(std::string_view token) { return fallback_byte(token).has_value(); }

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  if (steps_) {
    for (const DecodeStep& step : *steps_) {
      std::visit(DecodeRunner{tokens}, step);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    text += i > 0 && !steps_ ? " " : "";
    text += tokens[i];
  }
  return text;
}

}  // namespace train::data
