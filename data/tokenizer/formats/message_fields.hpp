#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace train::data {

/// Iterates over the fields of a protocol buffer message, in order.
class MessageFields {
 public:
  /// REQUIRES: the memory of `bytes` outlives this object and the fields.
  explicit MessageFields(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;  ///< Bits of a number.
    std::string_view bytes;   ///< Content of a string or a nested message.
    bool holds_bytes = false;

    [[nodiscard]] bool flag() const { return value != 0; }
    [[nodiscard]] float real() const {
      return std::bit_cast<float>(static_cast<std::uint32_t>(value));
    }
  };

  /// nullopt at the end, and if the bytes are malformed: see broken().
  [[nodiscard]] std::optional<Field> next();

  [[nodiscard]] bool broken() const { return broken_; }

 private:
  [[nodiscard]] std::optional<std::uint64_t> varint();
  [[nodiscard]] std::optional<std::uint64_t> fixed(std::size_t size);
  std::optional<Field> fail();

  std::string_view rest_;
  bool broken_ = false;
};

}  // namespace train::data
