#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace train::data {

/// Maps ids to texts and texts to ids. Ids may have gaps; texts are unique.
class Vocabulary {
 public:
  void reserve(std::size_t texts, std::size_t bytes);

  /// Returns false, without a change, if the text or the id is taken.
  bool add(std::string_view text, std::uint32_t id);

  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view text) const;
  /// Finds the concatenation of a and b.
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view a, std::string_view b) const;

  /// Empty if the id does not exist.
  [[nodiscard]] std::string_view text(std::uint32_t id) const {
    return id < spans_.size() ? std::string_view(bytes_).substr(spans_[id].begin, spans_[id].size)
                              : std::string_view();
  }
  [[nodiscard]] bool has(std::uint32_t id) const { return id < spans_.size() && spans_[id].used; }

  /// Number of texts.
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Largest id plus one.
  [[nodiscard]] std::uint32_t id_limit() const { return static_cast<std::uint32_t>(spans_.size()); }

 private:
  struct Span {
    std::uint32_t begin = 0;
    std::uint32_t size : 31 = 0;
    std::uint32_t used : 1 = 0;
  };

  void grow();
  /// Slot of a text, or the free slot for it.
  [[nodiscard]] std::size_t slot_of(std::string_view a, std::string_view b) const;

  std::string bytes_;
  std::vector<Span> spans_;           ///< By id.
  std::vector<std::uint32_t> slots_;  ///< Id + 1, or 0; the size is a power of two.
  std::size_t size_ = 0;
};

}  // namespace train::data
