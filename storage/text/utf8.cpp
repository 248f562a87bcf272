#include "storage/text/utf8.hpp"

#include <cstring>

namespace train::storage {
namespace {

/// Beginning of a text: a code point of `length` bytes, or, if not `valid`, that many bytes of an
/// incomplete one.
struct Utf8Step {
  std::size_t length = 1;
  bool valid = false;
};

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) {
    return {1, true};
  }
  if (first < 0xc2 || first > 0xf4) {
    return {1, false};
  }
  // The second byte's range excludes overlong forms, surrogates and values above 10FFFF.
  const unsigned low = first == 0xe0 ? 0xa0U : first == 0xf0 ? 0x90U : 0x80U;
  const unsigned high = first == 0xed ? 0x9fU : first == 0xf4 ? 0x8fU : 0xbfU;
  if (text.size() < 2 || byte(1) < low || byte(1) > high) {
    return {1, false};
  }
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 2; i < length; ++i) {
    if (i >= text.size() || !continues(text[i])) {
      return {i, false};
    }
  }
  return {length, true};
}

}  // namespace

void append_utf8(std::string& text, char32_t value) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
    return;
  }
  if (value < 0x800) {
    put(0xc0U | (value >> 6U));
  } else {
    if (value < 0x10000) {
      put(0xe0U | (value >> 12U));
    } else {
      put(0xf0U | (value >> 18U));
      put(0x80U | ((value >> 12U) & 0x3fU));
    }
    put(0x80U | ((value >> 6U) & 0x3fU));
  }
  put(0x80U | (value & 0x3fU));
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t block = 0;
    std::memcpy(&block, text.data() + at, sizeof(block));
    if ((block & 0x8080808080808080U) != 0) {
      break;
    }
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) {
    ++at;
  }
  return at;
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    at += ascii_prefix(text.substr(at));
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) {
      const Utf8Step step = utf8_step(text.substr(at));
      if (!step.valid) {
        return at;
      }
      at += step.length;
    }
  }
  return at;
}

std::string repaired_utf8(std::string_view text, std::uint64_t& replaced) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = valid_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (!text.empty()) {
      out.append("\xef\xbf\xbd");
      ++replaced;
      text.remove_prefix(utf8_step(text).length);
    }
  }
  return out;
}

void Utf8Breaks::add(std::string_view piece) {
  while (!begun_.empty() && !piece.empty()) {
    begun_ += piece.front();
    piece.remove_prefix(1);
    begun_ = count(begun_);
  }
  if (begun_.empty()) {
    begun_ = count(piece);
  }
}

std::string Utf8Breaks::count(std::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(valid_prefix(text));
    const std::size_t broken = text.empty() ? 0 : utf8_step(text).length;
    if (broken == text.size()) {
      break;  // The next piece may continue it.
    }
    ++count_;
    text.remove_prefix(broken);
  }
  return std::string(text);
}

void Utf8Breaks::finish() {
  count_ += begun_.empty() ? 0 : 1;
  begun_.clear();
}

std::string repaired_utf8(std::string_view text, std::uint64_t& replaced, Origins& origins) {
  constexpr std::string_view replacement = "\xef\xbf\xbd";
  std::string out;
  out.reserve(text.size());
  origins.clear();
  origins.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const std::string_view written = step.valid ? text.substr(at, step.length) : replacement;
    replaced += step.valid ? 0 : 1;
    out += written;
    origins.insert(origins.end(), written.size(),
                   {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + step.length)});
    at += step.length;
  }
  return out;
}

}  // namespace train::storage
