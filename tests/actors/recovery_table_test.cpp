// The tables of recovery: every event in every state has one entry, and what follows holds.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "actors/cluster/recovery/head_table.hpp"
#include "actors/cluster/recovery/node_table.hpp"
#include "base/exit_codes.hpp"

namespace train::actors {
namespace {

template <class Enum>
Enum nth(std::size_t n) {
  return static_cast<Enum>(n);
}

/// The facts that a table's entries for one event ask for: others make no difference.
template <class Kind>
std::vector<typename Kind::Fact> facts_of(std::span<const TableRow<Kind>> rows,
                                          typename Kind::State state, typename Kind::Event event) {
  std::vector<typename Kind::Fact> facts;
  for (std::size_t i = 0; i < Kind::kFacts; ++i) {
    const auto fact = nth<typename Kind::Fact>(i);
    for (const TableRow<Kind>& row : rows) {
      if (row.event == event && row.in.has(state) &&
          (row.with.has(fact) || row.without.has(fact))) {
        facts.push_back(fact);
        break;
      }
    }
  }
  return facts;
}

template <class Fact>
SetOf<Fact> chosen(const std::vector<Fact>& facts, std::size_t bits) {
  SetOf<Fact> set;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    set.set(facts[i], ((bits >> i) & 1U) != 0);
  }
  return set;
}

/// Calls `what(state, event, facts)` for all that can make a difference.
template <class Kind, class What>
void for_all(std::span<const TableRow<Kind>> rows, const What& what) {
  for (std::size_t state = 0; state < Kind::kStates; ++state) {
    for (std::size_t event = 0; event < Kind::kEvents; ++event) {
      const auto in = nth<typename Kind::State>(state);
      const auto comes = nth<typename Kind::Event>(event);
      const auto facts = facts_of(rows, in, comes);
      for (std::size_t bits = 0; bits < std::size_t{1} << facts.size(); ++bits) {
        what(in, comes, chosen(facts, bits));
      }
    }
  }
}

template <class Kind>
std::string gaps(std::span<const TableRow<Kind>> rows) {
  std::string text;
  for_all<Kind>(rows, [&](auto state, auto event, auto facts) {
    if (const std::size_t count = rows_for(rows, state, event, facts); count != 1) {
      text +=
          fmt::format("{} entries for {} in state {} of", count, name_of(event), name_of(state));
      for (std::size_t i = 0; i < Kind::kFacts; ++i) {
        const auto fact = nth<typename Kind::Fact>(i);
        text += facts.has(fact) ? fmt::format(" {}", name_of(fact)) : "";
      }
      text += "\n";
    }
  });
  return text;
}

TEST_CASE("recovery table: every event in every state has one entry, whatever the facts",
          "[actors][recovery_table][P4]") {
  CHECK(gaps<HeadKind>(head_rows()).empty());
  CHECK(gaps<NodeKind>(node_rows()).empty());
  INFO(gaps<HeadKind>(head_rows()) << gaps<NodeKind>(node_rows()));
  CHECK(true);
}

}  // namespace
}  // namespace train::actors
