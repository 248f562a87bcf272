#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/reader.hpp"
#include "engine/state_view.hpp"

// Which bytes of what ranks of one layout wrote go where with ranks of another (CK-4).
namespace train::checkpoint {

/// Records by tensor name, in row order. Borrows them.
using RecordsByName = std::map<std::string_view, std::vector<const TensorRecord*>>;

/// REQUIRES: `tensors` are sorted by name, then first_row.
[[nodiscard]] RecordsByName by_name(std::span<const TensorRecord> tensors);

/// Whether the records have the tensors of `state`, in their shapes; with Restore::every_tensor no
/// others. `source` names them in errors. Errors (user): names the first that differs.
[[nodiscard]] Status check_fit(std::string_view source, const RecordsByName& records,
                               std::span<const engine::StateView> state, Restore which);

/// Bytes [begin, end) of a record's rows, and where they go.
struct Wanted {
  const TensorRecord* record = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* to = nullptr;
};

/// What fills `state`. REQUIRES: check_fit(). Borrows both.
[[nodiscard]] std::vector<Wanted> wanted_of(const RecordsByName& records,
                                            std::span<engine::StateView> state);

}  // namespace train::checkpoint
