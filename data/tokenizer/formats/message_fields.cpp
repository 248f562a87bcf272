#include "data/tokenizer/formats/message_fields.hpp"

namespace train::data {
namespace {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

constexpr unsigned kVarintLimitBytes = 10;

}  // namespace

std::optional<std::uint64_t> MessageFields::varint() {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < kVarintLimitBytes && i < rest_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> MessageFields::fixed(std::size_t size) {
  if (rest_.size() < size) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
  }
  rest_.remove_prefix(size);
  return value;
}

std::optional<MessageFields::Field> MessageFields::fail() {
  broken_ = true;
  rest_ = {};
  return std::nullopt;
}

std::optional<MessageFields::Field> MessageFields::next() {
  if (rest_.empty()) {
    return std::nullopt;
  }
  const auto tag = varint();
  if (!tag || *tag < 8) {
    return fail();
  }
  Field field{.number = *tag >> 3U, .value = 0, .bytes = {}};
  std::optional<std::uint64_t> value;
  switch (static_cast<WireType>(*tag & 7U)) {
    case WireType::varint:
      value = varint();
      break;
    case WireType::fixed64:
      value = fixed(8);
      break;
    case WireType::fixed32:
      value = fixed(4);
      break;
    case WireType::bytes:
      value = varint();
      if (!value || *value > rest_.size()) {
        return fail();
      }
      field.bytes = rest_.substr(0, *value);
      field.holds_bytes = true;
      rest_.remove_prefix(*value);
      break;
  }
  if (!value) {
    return fail();
  }
  field.value = *value;
  return field;
}

}  // namespace train::data
