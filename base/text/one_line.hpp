#pragma once

#include <string>
#include <string_view>

namespace train {

/// True for a control character, which could break a message into lines or move a terminal's
/// cursor.
[[nodiscard]] inline bool is_control(char letter) {
  return static_cast<unsigned char>(letter) < 32 || letter == 127;
}

/// Text with control characters replaced by spaces.
[[nodiscard]] inline std::string without_controls(std::string text) {
  for (char& letter : text) {
    letter = is_control(letter) ? ' ' : letter;
  }
  return text;
}

/// First 200 bytes of a user's text with control characters replaced by spaces: for one-line
/// messages.
[[nodiscard]] inline std::string one_line(std::string_view text) {
  return without_controls(std::string(text.substr(0, 200)));
}

}  // namespace train
