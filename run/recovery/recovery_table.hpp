#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.hpp"

// Building blocks of recovery tables: rows of (states, event, facts) -> (state, actions, exit,
// line). The tables are head_table.hpp and node_table.hpp; docs/recovery.md shows both, generated
// from the code.
namespace train::run {

/// Kind (HeadKind, NodeKind) to which an enumeration of states, events, facts or actions belongs;
/// each Kind declares `kind_of` for its four.
template <class Enum>
using KindOf = decltype(kind_of(Enum{}));

/// Value as the compiler spells it in the name of this instantiation: "HeadKind::Fact::room", or a
/// number after a cast if there is no such enumerator.
template <auto Value>
[[nodiscard]] consteval std::string_view spelled() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__;
  constexpr std::size_t kBegin = kText.find("Value = ") + std::string_view("Value = ").size();
  return kText.substr(kBegin, kText.find_first_of(";]", kBegin) - kBegin);
}

inline constexpr std::size_t kMostEnumerators = 32;

/// Names of an enumeration whose values begin at 0 without gaps; empty past the last.
template <class Enum>
inline constexpr auto kNames = []<std::size_t... n>(std::index_sequence<n...>) {
  const auto name = [](std::string_view text) {
    return text.starts_with('(') ? std::string_view() : text.substr(text.rfind(':') + 1);
  };
  return std::array{name(spelled<static_cast<Enum>(n)>())...};
}
(std::make_index_sequence<kMostEnumerators>());

/// Number of its values.
template <class Enum>
inline constexpr std::size_t kCount = static_cast<std::size_t>(std::find(kNames<Enum>.begin(),
                                                                         kNames<Enum>.end(), "") -
                                                               kNames<Enum>.begin());

/// Name of an enumerator of a Kind in the code.
template <class Enum, class = KindOf<Enum>>
[[nodiscard]] constexpr std::string_view name_of(Enum value) {
  return kNames<Enum>.at(static_cast<std::size_t>(value));
}

/// Set of values of an enumeration with at most kMostEnumerators.
template <class Enum>
class SetOf {
 public:
  constexpr SetOf() = default;
  constexpr SetOf(std::initializer_list<Enum> values) {
    for (const Enum value : values) {
      bits_ |= bit(value);
    }
  }
  [[nodiscard]] constexpr bool has(Enum value) const { return (bits_ & bit(value)) != 0; }
  [[nodiscard]] constexpr bool has_all(SetOf other) const {
    return (bits_ & other.bits_) == other.bits_;
  }
  [[nodiscard]] constexpr bool has_any(SetOf other) const { return (bits_ & other.bits_) != 0; }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  constexpr SetOf& set(Enum value, bool there = true) {
    bits_ = there ? bits_ | bit(value) : bits_ & ~bit(value);
    return *this;
  }
  [[nodiscard]] friend constexpr SetOf operator|(SetOf a, SetOf b) {
    a.bits_ |= b.bits_;
    return a;
  }
  [[nodiscard]] friend constexpr SetOf operator-(SetOf a, SetOf b) {
    a.bits_ &= ~b.bits_;
    return a;
  }
  friend constexpr bool operator==(SetOf, SetOf) = default;

 private:
  [[nodiscard]] static constexpr std::uint32_t bit(Enum value) {
    return std::uint32_t{1} << static_cast<std::uint32_t>(value);
  }
  std::uint32_t bits_ = 0;
};

/// Exit code of a row.
enum class Exit : std::uint8_t {
  none,        ///< The run is not over, or an earlier row has set it.
  finished,    ///< 0
  failure,     ///< 1
  mistake,     ///< 2
  stopped,     ///< 75
  from_event,  ///< Code that came with the event: of the program, or from the head for a node.
};

/// Numeric code. `told`: code that came with the event. REQUIRES: `exit` is not none.
[[nodiscard]] std::int32_t exit_code_of(Exit exit, std::int32_t told);

/// Row of a table. It applies to one of its events in one of its states if all of `with` and none
/// of `without` hold.
template <class Kind>
struct TableRow {
  SetOf<typename Kind::State> in;
  SetOf<typename Kind::Event> on;
  SetOf<typename Kind::Fact> with = {}, without = {};
  typename Kind::State next;  ///< New state, or `same`.
  SetOf<typename Kind::Action> actions = {};
  Exit exit = Exit::none;
  /// Log line, with words in braces filled in from the event; empty: none.
  std::string_view line = {};

  [[nodiscard]] constexpr bool applies(typename Kind::State state, typename Kind::Event what,
                                       SetOf<typename Kind::Fact> facts) const {
    return on.has(what) && in.has(state) && facts.has_all(with) && !facts.has_any(without);
  }
};

/// Result of an event.
template <class Kind>
struct TableStep {
  typename Kind::State next;
  SetOf<typename Kind::Action> actions = {};
  Exit exit = Exit::none;
  std::string_view line = {};

  [[nodiscard]] bool has(typename Kind::Action action) const { return actions.has(action); }
};

/// Result of the one row that applies.
template <class Kind>
[[nodiscard]] TableStep<Kind> step_of(std::span<const TableRow<Kind>> rows,
                                      typename Kind::State state, typename Kind::Event event,
                                      SetOf<typename Kind::Fact> facts) {
  for (const TableRow<Kind>& row : rows) {
    if (row.applies(state, event, facts)) {
      const bool same = row.next == Kind::State::same;
      return {same ? state : row.next, row.actions, row.exit, row.line};
    }
  }
  TRAIN_CHECK(false, "no entry for {} in state {}", name_of(event), name_of(state));
  return {state};
}

/// All rows of a Kind: head_table.cpp, node_table.cpp.
template <class Kind>
[[nodiscard]] std::span<const TableRow<Kind>> rows_of();

/// Result of an event, from the row that applies. Pure.
template <class State>
[[nodiscard]] TableStep<KindOf<State>> decide(State state, typename KindOf<State>::Event event,
                                              SetOf<typename KindOf<State>::Fact> facts) {
  return step_of(rows_of<KindOf<State>>(), state, event, facts);
}

/// Words for a line.
struct LineWords {
  std::int64_t rank = -1;
  std::int64_t node = -1;
  std::int64_t seconds = 0;
  int signal = 0;
  std::string text = {};   ///< Cause, in the words of its reporter.
  std::string nodes = {};  ///< "node 2", "nodes 1, 2".
};

/// The line with its words filled in.
[[nodiscard]] std::string fill_in(std::string_view line, const LineWords& words);

}  // namespace train::run
