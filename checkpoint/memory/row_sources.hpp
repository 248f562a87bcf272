#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {

/// Bytes that are contiguous at both source and destination.
struct RowPiece {
  std::int64_t rank = 0;         ///< Rank whose shard holds them.
  std::uint64_t from = 0;        ///< First byte in that shard.
  std::size_t view = 0;          ///< Index of the wanted view.
  std::uint64_t to = 0;          ///< First byte in that view.
  std::uint64_t size_bytes = 0;  ///< Never 0.
};

/// Rows in the shards of a snapshot, and the nodes that hold them; the shards may have been written
/// by other numbers of ranks and nodes (CK-4). Works without the bytes, so that every rank can
/// compute each transfer on its own.
///
/// Threading: not thread-safe. Ownership: owns all data.
class RowSources {
 public:
  /// Adds the shard of `rank`, held by node `holder`. `rows`: in the order of its bytes; those of
  /// the ranks of one `group` are disjoint, and several groups may have the same rows.
  void add(std::int64_t rank, std::int64_t group, std::int64_t holder,
           std::span<const engine::StateView> rows);

  /// Source of each byte of `wanted`: on the node `near` if it has it, otherwise in the lowest
  /// group that does. In the order of `wanted`; equal on every rank. Errors (failure): a row is
  /// missing; names it.
  [[nodiscard]] Result<std::vector<RowPiece>> find(std::span<const engine::StateView> wanted,
                                                   std::int64_t near) const;

 private:
  struct Rows {
    std::int64_t end = 0;
    std::int64_t rank = 0;
    std::uint64_t from = 0;
  };
  struct Group {
    std::int64_t holder = 0;
    std::map<std::string, std::map<std::int64_t, Rows>, std::less<>> rows;  // By first row.
  };
  class Search;
  std::map<std::int64_t, Group> groups_;
};

}  // namespace train::checkpoint
