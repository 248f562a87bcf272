#include "tests/sim/table_entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace train::sim {
namespace {

template <class Enum>
std::string listed(run::SetOf<Enum> set, const char* before) {
  std::string text;
  for (std::size_t i = 0; i < run::kCount<Enum>; ++i) {
    const auto value = static_cast<Enum>(i);
    text += set.has(value) ? fmt::format(", {} {}", before, name_of(value)) : "";
  }
  return text;
}

/// True of a row that leaves everything as it is whatever the facts: most are there for what cannot
/// come in a state.
template <class Kind>
bool idle(const run::TableRow<Kind>& row) {
  return row.next == Kind::State::same && row.actions.empty() && row.exit == run::Exit::none &&
         row.with.empty() && row.without.empty();
}

/// An entry that no world can take, or not this one.
struct Impossible {
  std::string_view entry, why;
};
constexpr auto kImpossible = std::to_array<Impossible>({
    {"head: rank_stranded in training, if alone", "a single rank has no other to wait for"},
    {"head: ranks_gone in ending_back, if not signalled, if not respawn",
     "only a run that respawns keeps snapshots in memory, and lets nodes in at one of them"},
    {"head: launcher_came in restoring", "it is read when ranks start"},
    {"head: launcher_came in ending_phase", "a run with phases has one node"},
    {"node: again in leaving", "the head has said that the run is over"},
    {"node: without in running", "the head sends only nodes away whose ranks it has not started"},
    {"node: without in unclear", "the head sends only nodes away whose ranks it has not started"},
});

}  // namespace

template <class Kind>
void TableEntries<Kind>::take(State state, Event event, Facts facts) {
  std::size_t at = 0;
  for (const auto& row : run::rows_of<Kind>()) {
    if (row.applies(state, event, facts)) {
      ++taken_.at(at).at(index(state, event));
      return;
    }
    ++at;
  }
}

template <class Kind>
std::vector<typename TableEntries<Kind>::Entry> TableEntries<Kind>::entries(
    const std::string& table) const {
  std::vector<Entry> all;
  std::size_t at = 0;
  for (const auto& row : run::rows_of<Kind>()) {
    const auto& counts = taken_.at(at++);
    for (std::size_t i = 0; i < counts.size() && !idle<Kind>(row); ++i) {
      const auto state = static_cast<State>(i / run::kCount<Event>);
      const auto event = static_cast<Event>(i % run::kCount<Event>);
      if (row.in.has(state) && row.on.has(event)) {
        all.push_back({fmt::format("{}: {} in {}{}{}", table, name_of(event), name_of(state),
                                   listed(row.with, "if"), listed(row.without, "if not")),
                       counts.at(i)});
      }
    }
  }
  return all;
}

std::string wrong_entries(const TakenEntries& taken) {
  std::string text;
  std::size_t found = 0;
  const auto judge = [&](const auto& entries) {
    for (const auto& [name, count] : entries) {
      const auto* const listed =
          std::find_if(kImpossible.begin(), kImpossible.end(),
                       [&name = name](const Impossible& entry) { return entry.entry == name; });
      found += listed != kImpossible.end() ? 1 : 0;
      if (listed == kImpossible.end() && count == 0) {
        text += fmt::format("no seed has taken {}\n", name);
      } else if (listed != kImpossible.end() && count > 0) {
        text += fmt::format("{} seeds have taken {}, which is listed as impossible: {}\n", count,
                            name, listed->why);
      }
    }
  };
  judge(taken.head.entries("head"));
  judge(taken.node.entries("node"));
  if (found != kImpossible.size()) {
    text += "an entry is listed as impossible that the tables do not have\n";
  }
  return text;
}

template class TableEntries<run::HeadKind>;
template class TableEntries<run::NodeKind>;

}  // namespace train::sim
