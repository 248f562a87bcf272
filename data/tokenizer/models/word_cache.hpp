#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace train::data {

/// Cache of recent words' ids, two-way set associative with the older entry evicted: a stream of
/// unique words costs little, and frequent words hit.
///
/// Threading: not thread-safe. Memory: 4 MiB.
class WordCache {
 public:
  static constexpr std::size_t kWordLimitBytes = 42;
  static constexpr std::size_t kIdsLimit = 5;

  WordCache() : entries_(kEntryCount) {}

  /// Ids of the word, valid until put(); empty if unknown. REQUIRES: 0 < size <= limit.
  [[nodiscard]] std::span<const std::uint32_t> find(std::string_view word) const {
    const std::size_t place = place_of(word);
    for (const std::size_t at : {place, place ^ 1U}) {
      const Entry& entry = entries_[at];
      if (entry.size == word.size() &&
          std::memcmp(entry.bytes.data(), word.data(), word.size()) == 0) {
        return {entry.ids.data(), entry.count};
      }
    }
    return {};
  }

  /// Adds a word that find() does not know. REQUIRES: sizes within the limits, not 0.
  void put(std::string_view word, std::span<const std::uint32_t> ids) {
    const std::size_t place = place_of(word);
    entries_[place ^ 1U] = entries_[place];
    Entry& entry = entries_[place];
    std::memcpy(entry.bytes.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
    entry.size = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
  }

 private:
  static constexpr std::size_t kEntryCount = std::size_t{1} << 16U;
  /// One cache line.
  struct alignas(64) Entry {
    std::array<std::uint32_t, kIdsLimit> ids{};
    std::uint8_t size = 0;
    std::uint8_t count = 0;
    std::array<char, kWordLimitBytes> bytes{};
  };

  template <class Number>
  static std::uint64_t load(const char* from) {
    Number number = 0;
    std::memcpy(&number, from, sizeof(number));
    return number;
  }

  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t block) {
    hash = (hash ^ block) * 0x9e3779b97f4a7c15U;
    return hash ^ (hash >> 29U);
  }

  /// Hashes all bytes in blocks; the last may overlap the one before.
  static std::size_t place_of(std::string_view word) {
    const char* bytes = word.data();
    const std::size_t size = word.size();
    std::uint64_t hash = size;
    if (size >= 8) {
      for (std::size_t at = 0; at + 8 < size; at += 8) {
        hash = mixed(hash, load<std::uint64_t>(bytes + at));
      }
      hash = mixed(hash, load<std::uint64_t>(bytes + size - 8));
    } else if (size >= 4) {
      hash = mixed(hash, load<std::uint32_t>(bytes) | load<std::uint32_t>(bytes + size - 4) << 32U);
    } else {
      hash = mixed(hash, load<std::uint8_t>(bytes) | load<std::uint8_t>(bytes + size / 2) << 8U |
                             load<std::uint8_t>(bytes + size - 1) << 16U);
    }
    return ((hash * 0xd6e8feb86659fd93U) >> 40U) & (kEntryCount - 1);
  }

  std::vector<Entry> entries_;
};

}  // namespace train::data
