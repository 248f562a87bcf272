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

// What a recovery table is made of: rows of (states, event, facts) -> (state, actions, exit, line).
// Tables are head_table.hpp and node_table.hpp; docs/recovery.md shows both as the code has them.
namespace train::actors {

/// The Kind (HeadKind, NodeKind) that an enumeration of states, events, facts or actions is of;
/// each Kind declares `kind_of` for its four.
template <class Enum>
using KindOf = decltype(kind_of(Enum{}));

/// The value as the compiler spells it in the name of this instantiation: "HeadKind::Fact::room",
/// or, where there is no such enumerator, a number with a cast before it.
template <auto Value>
[[nodiscard]] consteval std::string_view spelled() {
  constexpr std::string_view kText = __PRETTY_FUNCTION__;
  constexpr std::size_t kBegin = kText.find("Value = ") + std::string_view("Value = ").size();
  return kText.substr(kBegin, kText.find_first_of(";]", kBegin) - kBegin);
}

inline constexpr std::size_t kMostEnumerators = 32;

/// The names of an enumeration whose values begin at 0 and have no gap; empty past the last.
template <class Enum>
inline constexpr auto kNames = []<std::size_t... n>(std::index_sequence<n...>) {
  const auto name = [](std::string_view text) {
    return text.starts_with('(') ? std::string_view() : text.substr(text.rfind(':') + 1);
  };
  return std::array{name(spelled<static_cast<Enum>(n)>())...};
}
(std::make_index_sequence<kMostEnumerators>());

/// How many values it has.
template <class Enum>
inline constexpr std::size_t kCount = static_cast<std::size_t>(std::find(kNames<Enum>.begin(),
                                                                         kNames<Enum>.end(), "") -
                                                               kNames<Enum>.begin());

/// How an enumerator of a Kind is written in the code.
template <class Enum, class = KindOf<Enum>>
[[nodiscard]] constexpr std::string_view name_of(Enum value) {
  return kNames<Enum>.at(static_cast<std::size_t>(value));
}

/// Some values of an enumeration of at most kMostEnumerators.
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

/// Which exit code a row says.
enum class Exit : std::uint8_t {
  none,      ///< None: it is not over, or an earlier row has said it.
  finished,  ///< 0
  failure,   ///< 1
  mistake,   ///< 2
  stopped,   ///< 75
  as_told,   ///< What came with the event: of the program, or of the head for a node.
};

/// The code. `told`: what came with the event. REQUIRES: `exit` is not none.
[[nodiscard]] std::int32_t exit_code_of(Exit exit, std::int32_t told);

/// One entry of a table. It applies to one of its events in one of its states while all of `with`
/// and none of `without` hold.
template <class Kind>
struct TableRow {
  SetOf<typename Kind::State> in;
  SetOf<typename Kind::Event> on;
  SetOf<typename Kind::Fact> with = {}, without = {};
  typename Kind::State next;  ///< Or the same as before.
  SetOf<typename Kind::Action> actions = {};
  Exit exit = Exit::none;
  /// What is said of it, with words in braces that the event fills in; empty: nothing.
  std::string_view line = {};

  [[nodiscard]] constexpr bool applies(typename Kind::State state, typename Kind::Event what,
                                       SetOf<typename Kind::Fact> facts) const {
    return on.has(what) && in.has(state) && facts.has_all(with) && !facts.has_any(without);
  }
};

/// What an event leads to.
template <class Kind>
struct TableStep {
  typename Kind::State next;
  SetOf<typename Kind::Action> actions = {};
  Exit exit = Exit::none;
  std::string_view line = {};

  [[nodiscard]] bool has(typename Kind::Action action) const { return actions.has(action); }
};

/// That of the one row that applies.
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

/// What follows an event, from the row that applies. Pure.
template <class State>
[[nodiscard]] TableStep<KindOf<State>> decide(State state, typename KindOf<State>::Event event,
                                              SetOf<typename KindOf<State>::Fact> facts) {
  return step_of(rows_of<KindOf<State>>(), state, event, facts);
}

/// What a line's words stand for.
struct LineWords {
  std::int64_t rank = -1;
  std::int64_t node = -1;
  std::int64_t seconds = 0;
  int signal = 0;
  std::string text = {};   ///< The cause, as whoever noticed it puts it.
  std::string nodes = {};  ///< "node 2 has", "nodes 1, 2 have".
};

/// The line with its words filled in.
[[nodiscard]] std::string fill_in(std::string_view line, const LineWords& words);

}  // namespace train::actors
