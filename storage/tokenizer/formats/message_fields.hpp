#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace train::storage {

/// Goes through the fields of a protocol buffer's message, in their order.
class MessageFields {
 public:
  /// REQUIRES: what `bytes` shows outlives this and the fields.
  explicit MessageFields(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;  ///< Of a number: its bits.
    std::string_view bytes;   ///< Of a text or an inner message.
    bool holds_bytes = false;

    [[nodiscard]] bool flag() const { return value != 0; }
    [[nodiscard]] float real() const {
      return std::bit_cast<float>(static_cast<std::uint32_t>(value));
    }
  };

  /// Nothing at the end, and where the bytes are no message: see broken().
  [[nodiscard]] std::optional<Field> next();

  [[nodiscard]] bool broken() const { return broken_; }

 private:
  [[nodiscard]] std::optional<std::uint64_t> varint();
  [[nodiscard]] std::optional<std::uint64_t> fixed(std::size_t size);
  std::optional<Field> fail();

  std::string_view rest_;
  bool broken_ = false;
};

}  // namespace train::storage
