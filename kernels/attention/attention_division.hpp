#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/attention_scratch.hpp"

// Division of work in both attention passes on the CPU.
namespace train::kernels::cpu {

/// Lists the documents of all sequences, in order.
template <class Params>
std::vector<Document> documents_of(const Params& p) {
  std::vector<Document> documents;
  for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
    if (p.positions == nullptr) {
      documents.push_back({sequence, 0, p.seq_len});
      continue;
    }
    const std::int32_t* positions = p.positions + sequence * p.seq_len;
    for (std::int64_t t = 0; t < p.seq_len; ++t) {
      if (positions[t] == 0) {
        documents.push_back({sequence, t, 0});
      }
      TRAIN_CHECK(positions[t] == 0 || (t > 0 && positions[t] == positions[t - 1] + 1),
                  "attention: position {} of token {} of sequence {}", positions[t], t, sequence);
      ++documents.back().length;
    }
  }
  return documents;
}

inline std::int64_t longest(const std::vector<Document>& documents) {
  std::int64_t length = 0;
  for (const Document& document : documents) {
    length = std::max(length, document.length);
  }
  return length;
}

/// Tracks whose keys and values each thread's scratch holds, as heads of a group share them.
class PackedKeys {
 public:
  explicit PackedKeys(int threads) : heads_(static_cast<std::size_t>(threads)) {}
  /// True if scratch `slot` already holds the keys of this document and head; it counts as holding
  /// them from now on. Safe concurrently for different slots.
  [[nodiscard]] bool has(std::int64_t slot, std::size_t document, std::int64_t kv_head) {
    Slot& held = heads_[static_cast<std::size_t>(slot)];
    const bool there = held.any && held.document == document && held.kv_head == kv_head;
    held = {.any = true, .document = document, .kv_head = kv_head};
    return there;
  }

 private:
  struct alignas(64) Slot {
    bool any = false;
    std::size_t document = 0;
    std::int64_t kv_head = 0;
  };
  std::vector<Slot> heads_;
};

/// Number of last heads, out of `heads` computed one per thread, that would leave half or more of
/// the threads idle. Such a head is computed by all threads together.
inline std::int64_t heads_to_share(std::int64_t heads, int threads) {
  const std::int64_t rest = heads % threads;
  return 2 * rest <= threads ? rest : 0;
}

}  // namespace train::kernels::cpu
