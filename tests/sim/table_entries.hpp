#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "run/recovery/head_table.hpp"
#include "run/recovery/node_table.hpp"

namespace train::sim {

/// Counts how often the entries of a recovery table were taken. An entry: one event in one state,
/// by one row.
template <class Kind>
class TableEntries {
 public:
  using State = typename Kind::State;
  using Event = typename Kind::Event;
  using Facts = run::SetOf<typename Kind::Fact>;

  /// Counts the entry that decide() takes.
  void take(State state, Event event, Facts facts);
  struct Entry {
    std::string name;  ///< "head: signal in training, if not in_memory"
    std::int64_t taken;
  };
  /// Every entry that does something or depends on a fact. `table`: the name of the table.
  [[nodiscard]] std::vector<Entry> entries(const std::string& table) const;

 private:
  static constexpr std::size_t kMostRows = 96;
  [[nodiscard]] static std::size_t index(State state, Event event) {
    return static_cast<std::size_t>(state) * run::kCount<Event> + static_cast<std::size_t>(event);
  }
  std::array<std::array<std::int64_t, run::kCount<State> * run::kCount<Event>>, kMostRows> taken_{};
};

extern template class TableEntries<run::HeadKind>;
extern template class TableEntries<run::NodeKind>;

/// Of both tables.
struct TakenEntries {
  TableEntries<run::HeadKind> head;
  TableEntries<run::NodeKind> node;
};

/// What is wrong with the entries that were taken, a line each: those left out, and those taken
/// that are listed as impossible in this world. Empty: nothing.
[[nodiscard]] std::string wrong_entries(const TakenEntries& taken);

}  // namespace train::sim
