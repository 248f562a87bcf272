#pragma once

#include <algorithm>
#include <string>

// Classes of ASCII characters, whatever the locale.
namespace train {

/// True for a letter or a digit.
[[nodiscard]] constexpr bool is_alphanumeric(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9');
}

/// Lowers ASCII letters only.
[[nodiscard]] inline std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return text;
}

}  // namespace train
