#include "storage/files/untrusted_text.hpp"

#include <fmt/format.h>

namespace train::storage {

std::string json_excess(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return fmt::format("{} bytes of JSON, more than {}", text.size(), limits.bytes);
  }
  std::size_t depth = 0;
  std::size_t values = 1;
  std::size_t run_start = 0;
  bool inside_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (i - run_start > limits.run) {
      return fmt::format("JSON with a string, number or gap of more than {} bytes", limits.run);
    }
    if (inside_string && letter != '"') {
      i += letter == '\\' ? 1 : 0;
      continue;
    }
    if (letter == '"') {
      inside_string = !inside_string;
    } else if (letter == '{' || letter == '[') {
      ++depth;
      ++values;
    } else if (letter == '}' || letter == ']') {
      depth -= depth > 0 ? 1 : 0;
    } else if (letter == ',' || letter == ':') {
      ++values;
    } else {
      continue;
    }
    run_start = i;
    if (depth > limits.depth || values > limits.values) {
      return depth > limits.depth ? fmt::format("JSON nested deeper than {}", limits.depth)
                                  : fmt::format("JSON of more than {} values", limits.values);
    }
  }
  return {};
}

std::string shown(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string text_shown = "\"";
  for (const char letter : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      text_shown += '\\';
    }
    byte < 0x20 || byte >= 0x7f ? void(text_shown += fmt::format("\\x{:02x}", byte))
                                : void(text_shown += letter);
  }
  return text_shown + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace train::storage
