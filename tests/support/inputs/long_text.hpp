#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace train::test {

inline std::string glued(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) {
    all += part;
  }
  return all;
}

inline std::string repeated(std::size_t count, std::string_view text) {
  std::string all;
  all.reserve(count * text.size());
  for (std::size_t i = 0; i < count; ++i) {
    all += text;
  }
  return all;
}

}  // namespace train::test
