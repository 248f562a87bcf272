#include "cli/byte_text.hpp"

#include "storage/tokens/prepare.hpp"

namespace train::cli {

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() + 1);
  for (const char letter : text) {
    tokens.push_back(static_cast<unsigned char>(letter));
  }
  if (tokens.empty()) {
    tokens.push_back(static_cast<std::int32_t>(storage::bytes_end_of_text));
  }
  return tokens;
}

std::string show_byte(std::int32_t token) {
  if (token >= storage::bytes_end_of_text || token == '\n') {
    return "\n";
  }
  const bool control = (token < 32 && token != '\t') || token == 127;
  return std::string(1, control ? '?' : static_cast<char>(token));
}

}  // namespace train::cli
