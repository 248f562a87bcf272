#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/attention_scratch.hpp"

// How both passes of attention on the CPU divide their work.
namespace train::kernels::cpu {

/// The documents of all sequences, in their order.
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

/// Whose keys and values the scratch of each thread holds: the heads of a group read the same.
class PackedKeys {
 public:
  explicit PackedKeys(int threads) : heads_(static_cast<std::size_t>(threads)) {}
  /// Whether scratch `slot` has those of a head of keys of a document already; from now on it does.
  /// For different slots at once.
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

/// Of `heads` that are computed one by a thread: the last few that would leave half of the threads
/// idle or more. All threads compute such a head together.
inline std::int64_t heads_to_share(std::int64_t heads, int threads) {
  const std::int64_t rest = heads % threads;
  return 2 * rest <= threads ? rest : 0;
}

}  // namespace train::kernels::cpu
