#include "data/tokenizer/models/vocabulary.hpp"

#include "base/check.hpp"

namespace train::data {
namespace {

/// Byte by byte, so that two parts hash like their concatenation.
std::uint64_t hash_on(std::uint64_t hash, std::string_view text) {
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32U;
  }
  return hash;
}

constexpr std::uint64_t kHashBegin = 0x51ab2dc9e46f7013U;

}  // namespace

void Vocabulary::reserve(std::size_t texts, std::size_t bytes) {
  bytes_.reserve(bytes);
  spans_.reserve(texts);
}

std::size_t Vocabulary::slot_of(std::string_view a, std::string_view b) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_on(hash_on(kHashBegin, a), b) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const std::string_view held = text(slots_[slot] - 1);
    if (held.size() == a.size() + b.size() && held.starts_with(a) && held.ends_with(b)) {
      break;
    }
  }
  return slot;
}

void Vocabulary::grow() {
  std::vector<std::uint32_t> old(slots_.empty() ? 1024 : slots_.size() * 2, 0);
  old.swap(slots_);
  for (const std::uint32_t entry : old) {
    if (entry != 0) {
      slots_[slot_of(text(entry - 1), {})] = entry;
    }
  }
}

bool Vocabulary::add(std::string_view text_of_id, std::uint32_t id) {
  TRAIN_CHECK(bytes_.size() + text_of_id.size() < std::size_t{0x7fffffff} && id < 0x7fffffffU);
  if (has(id)) {
    return false;
  }
  if (2 * (size_ + 1) > slots_.size()) {
    grow();
  }
  const std::size_t slot = slot_of(text_of_id, {});
  if (slots_[slot] != 0) {
    return false;
  }
  if (id >= spans_.size()) {
    spans_.resize(std::size_t{id} + 1);
  }
  spans_[id].begin = static_cast<std::uint32_t>(bytes_.size());
  spans_[id].size = static_cast<std::uint32_t>(text_of_id.size()) & 0x7fffffffU;
  spans_[id].used = 1;
  bytes_.append(text_of_id);
  slots_[slot] = id + 1;
  ++size_;
  return true;
}

std::optional<std::uint32_t> Vocabulary::find(std::string_view a, std::string_view b) const {
  if (slots_.empty()) {
    return std::nullopt;
  }
  const std::uint32_t entry = slots_[slot_of(a, b)];
  return entry == 0 ? std::nullopt : std::optional(entry - 1);
}

std::optional<std::uint32_t> Vocabulary::find(std::string_view text_of_id) const {
  return find(text_of_id, {});
}

}  // namespace train::data
