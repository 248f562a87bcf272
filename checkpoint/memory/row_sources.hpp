#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {

/// Bytes that lie together at their source and where they are wanted.
struct RowPiece {
  std::int64_t rank = 0;         ///< Whose shard has them.
  std::uint64_t from = 0;        ///< First byte in that shard.
  std::size_t view = 0;          ///< Of those that were wanted.
  std::uint64_t to = 0;          ///< First byte in that view.
  std::uint64_t size_bytes = 0;  ///< Never 0.
};

/// Which rows the shards of a snapshot have, and on which node they are now; the shards may have
/// been written by other numbers of ranks and nodes than want them (CK-4). Knows no bytes, so that
/// every rank can work out for itself what each of them takes from whom.
///
/// Threading: not thread-safe. Ownership: of all it is told.
class RowSources {
 public:
  /// The shard of `rank` lies on `holder`. `rows`: in the order of its bytes; those of the ranks
  /// of one `group` are disjoint, and several groups may have the same rows.
  void add(std::int64_t rank, std::int64_t group, std::int64_t holder,
           std::span<const engine::StateView> rows);

  /// Where each byte of `wanted` is: on the node `near` if that has it, else in the lowest group
  /// that does. In the order of `wanted`; the same wherever it is asked. Errors (failure): nobody
  /// has a row; names it.
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
    std::map<std::string, std::map<std::int64_t, Rows>, std::less<>> rows;  // by their first
  };
  class Search;
  std::map<std::int64_t, Group> groups_;
};

}  // namespace train::checkpoint
