#include "checkpoint/memory/row_sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace train::checkpoint {

using engine::StateView;

void RowSources::add(std::int64_t rank, std::int64_t group, std::int64_t holder,
                     std::span<const StateView> rows) {
  Group& of = groups_[group];
  of.holder = holder;
  std::uint64_t from = 0;
  for (const StateView& view : rows) {
    if (view.rows > 0) {
      of.rows[view.name][view.first_row] = {view.first_row + view.rows, rank, from};
    }
    from += view.size_bytes;
  }
}

/// Part of one view still to be found, as the groups are searched in turn.
class RowSources::Search {
 public:
  Search(const StateView& view, std::size_t index)
      : view_(view),
        index_(index),
        row_bytes_(view.rows > 0 ? view.size_bytes / static_cast<std::uint64_t>(view.rows) : 0) {
    if (view.rows > 0) {
      missing_.emplace_back(view.first_row, view.first_row + view.rows);
    }
  }

  [[nodiscard]] bool done() const { return missing_.empty(); }
  [[nodiscard]] std::int64_t first_missing() const { return missing_.front().first; }

  void ask(const Group& group, std::vector<RowPiece>& pieces) {
    const auto found = group.rows.find(view_.name);
    if (found == group.rows.end()) {
      return;
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> left;
    for (const auto& [first, end] : missing_) {
      take(found->second, first, end, pieces, left);
    }
    missing_ = std::move(left);
  }

 private:
  void take(const std::map<std::int64_t, Rows>& rows, std::int64_t at, std::int64_t end,
            std::vector<RowPiece>& pieces,
            std::vector<std::pair<std::int64_t, std::int64_t>>& left) const {
    auto next = rows.upper_bound(at);
    next = next == rows.begin() ? next : std::prev(next);
    for (; next != rows.end() && next->first < end && at < end; ++next) {
      const std::int64_t first = std::max(at, next->first);
      const std::int64_t last = std::min(end, next->second.end);
      if (first >= last) {
        continue;
      }
      if (at < first) {
        left.emplace_back(at, first);
      }
      pieces.push_back({.rank = next->second.rank,
                        .from = next->second.from + bytes(first - next->first),
                        .view = index_,
                        .to = bytes(first - view_.first_row),
                        .size_bytes = bytes(last - first)});
      at = last;
    }
    if (at < end) {
      left.emplace_back(at, end);
    }
  }
  [[nodiscard]] std::uint64_t bytes(std::int64_t rows) const {
    return static_cast<std::uint64_t>(rows) * row_bytes_;
  }

  const StateView& view_;
  std::size_t index_;
  std::uint64_t row_bytes_;
  std::vector<std::pair<std::int64_t, std::int64_t>> missing_;
};

Result<std::vector<RowPiece>> RowSources::find(std::span<const StateView> wanted,
                                               std::int64_t near) const {
  std::vector<RowPiece> pieces;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Search search(wanted[i], i);
    for (const bool here : {true, false}) {
      for (auto group = groups_.begin(); !search.done() && group != groups_.end(); ++group) {
        if ((group->second.holder == near) == here) {
          search.ask(group->second, pieces);
        }
      }
    }
    if (!search.done()) {
      return failure(fmt::format("no snapshot has row {} of tensor {}", search.first_missing(),
                                 wanted[i].name));
    }
  }
  return pieces;
}

}  // namespace train::checkpoint
