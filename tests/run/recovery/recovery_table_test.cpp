// The tables of recovery: every event in every state has one entry, and what follows holds.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/exit_codes.hpp"
#include "run/directory/run_file_table.hpp"
#include "run/recovery/head_table.hpp"
#include "run/recovery/node_table.hpp"

namespace train::run {
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
  for (std::size_t i = 0; i < kCount<typename Kind::Fact>; ++i) {
    const auto fact = nth<typename Kind::Fact>(i);
    for (const TableRow<Kind>& row : rows) {
      if (row.on.has(event) && row.in.has(state) && (row.with.has(fact) || row.without.has(fact))) {
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
  for (std::size_t state = 0; state < kCount<typename Kind::State> - 1; ++state) {
    for (std::size_t event = 0; event < kCount<typename Kind::Event>; ++event) {
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
    const auto count = std::count_if(rows.begin(), rows.end(), [&](const TableRow<Kind>& row) {
      return row.applies(state, event, facts);
    });
    if (count != 1) {
      text +=
          fmt::format("{} entries for {} in state {} of", count, name_of(event), name_of(state));
      for (std::size_t i = 0; i < kCount<typename Kind::Fact>; ++i) {
        const auto fact = nth<typename Kind::Fact>(i);
        text += facts.has(fact) ? fmt::format(" {}", name_of(fact)) : "";
      }
      text += "\n";
    }
  });
  return text;
}

constexpr const char* kDocs = ACTORTRAIN_SOURCE_DIR "/docs/recovery.md";
constexpr std::string_view kBegin = "<!-- tables: written by ./dev docs -->\n";
constexpr std::string_view kEnd = "<!-- end of tables -->\n";

template <class Enum>
std::string names_of(SetOf<Enum> set, std::string_view mark = {}, std::string_view quote = {}) {
  std::string text;
  for (std::size_t i = 0; i < kCount<Enum>; ++i) {
    if (set.has(nth<Enum>(i))) {
      text += fmt::format("{}{}{}{}{}", text.empty() ? "" : ", ", mark, quote,
                          name_of(nth<Enum>(i)), quote);
    }
  }
  return text;
}

std::string exit_text(Exit exit) {
  return exit == Exit::none         ? "–"
         : exit == Exit::from_event ? "from event"
                                    : fmt::format("{}", exit_code_of(exit, 0));
}

std::string or_none(const std::string& text) { return text.empty() ? "–" : text; }

/// The rows in their order; then those that change nothing and say nothing, in short.
template <class Kind>
std::string markdown_of(std::span<const TableRow<Kind>> rows) {
  std::string text =
      "| in state | event | if | next | actions | exit code | line "
      "|\n|---|---|---|---|---|---|---|\n";
  std::string ignored;
  for (const TableRow<Kind>& row : rows) {
    const std::string states = names_of(row.in);
    const std::string events = names_of(row.on, {}, "`");
    const std::string with = names_of(row.with);
    const std::string without = names_of(row.without, "not ");
    const std::string facts = with + (with.empty() || without.empty() ? "" : ", ") + without;
    if (row.next == Kind::State::same && row.actions.empty() && row.exit == Exit::none) {
      ignored += fmt::format("- {} in {}{}\n", events, states,
                             facts.empty() ? "" : fmt::format(", if {}", facts));
      continue;
    }
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", states, events, or_none(facts),
                        row.next == Kind::State::same ? "–" : name_of(row.next),
                        or_none(names_of(row.actions)), exit_text(row.exit),
                        or_none(std::string(row.line)));
  }
  return text + "\nNothing follows from these:\n\n" + ignored;
}

std::string rendered() {
  return fmt::format("### The head\n\n{}\n### The launcher of another node\n\n{}",
                     markdown_of<HeadKind>(rows_of<HeadKind>()),
                     markdown_of<NodeKind>(rows_of<NodeKind>()));
}

std::string rendered_files() {
  std::string text =
      "| file | content | its write fails | a kill or a power cut during a write | the write is "
      "slow |\n"
      "|---|---|---|---|---|\n";
  for (const RunFileRow& row : kRunFiles) {
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.pattern, row.content, row.on_refusal,
                        row.on_tear, row.on_delay);
  }
  return text;
}

std::string committed() {
  std::ifstream file(kDocs);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A part of docs/recovery.md that the code writes.
struct Generated {
  std::string_view begin;  ///< The lines around it.
  std::string_view end;
  std::string (*render)();
};
constexpr std::array<Generated, 2> kGenerated = {{
    {kBegin, kEnd, rendered},
    {"<!-- files: written by ./dev docs -->\n", "<!-- end of files -->\n", rendered_files},
}};

/// Where it lies in the text: the first byte and the one after the last.
std::pair<std::size_t, std::size_t> place_in(const std::string& docs, const Generated& part) {
  const std::size_t begin = docs.find(part.begin);
  const std::size_t end = docs.find(part.end);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  return {begin + part.begin.size(), end};
}

TEST_CASE("recovery table: every event in every state has one entry, whatever the facts",
          "[run][recovery_table][P4]") {
  const std::string found =
      gaps<HeadKind>(rows_of<HeadKind>()) + gaps<NodeKind>(rows_of<NodeKind>());
  INFO(found);
  CHECK(found.empty());
}

TEST_CASE("recovery table: a gap and two entries for one event are found",
          "[run][recovery_table]") {
  const auto all = rows_of<NodeKind>();
  std::vector<NodeRow> rows(all.begin(), all.end());
  rows.front().with.set(NodeFact::respawn);
  rows.push_back(rows.back());
  const std::string found = gaps<NodeKind>(std::span<const NodeRow>(rows));
  CHECK(found.find("0 entries for head_found in state first_look") != std::string::npos);
  CHECK(found.find("2 entries for ranks_gone") != std::string::npos);
}

TEST_CASE("recovery table: what is over stays over, and nothing is done any more",
          "[run][recovery_table][P4]") {
  for_all<HeadKind>(rows_of<HeadKind>(), [](HeadState state, HeadEvent event, HeadFacts facts) {
    const HeadStep step = decide(state, event, facts);
    CHECK((state != HeadState::over || (step.next == state && step.actions.empty())));
    // Whatever ends the run says a code; one that is ending has said it.
    CHECK((step.next != HeadState::over || state == step.next || step.exit != Exit::none));
    // Ranks start when a meeting is complete, or its state is laid out: from nowhere else.
    const bool starts = step.has(HeadAction::start_ranks);
    CHECK(starts == (step.next == HeadState::starting && state < HeadState::starting));
    CHECK((!starts || event == HeadEvent::met || event == HeadEvent::placed));
  });
  for_all<NodeKind>(rows_of<NodeKind>(), [](NodeState state, NodeEvent event, NodeFacts facts) {
    const NodeStep step = decide(state, event, facts);
    CHECK((state != NodeState::over || (step.next == state && step.actions.empty())));
    CHECK((step.next != NodeState::over || state == step.next || step.exit != Exit::none));
    CHECK(step.has(NodeAction::start_ranks) ==
          (event == NodeEvent::start && state == NodeState::joined));
  });
}

TEST_CASE("recovery table: every cause ends with its code and its line",
          "[run][recovery_table][P4]") {
  struct Case {
    HeadState state;
    HeadEvent event;
    HeadFacts facts;
    int exit_code;
    std::string line;
  };
  const auto [state, event, facts, exit_code, line] = GENERATE(values<Case>({
      {HeadState::training, HeadEvent::rank_failed, {}, 1, "rank 3 failed: x"},
      {HeadState::training, HeadEvent::rank_mistaken, {}, 2, "rank 3 failed: x"},
      {HeadState::training, HeadEvent::rank_lost, {}, 1, "rank 3 failed: x"},
      {HeadState::doubt, HeadEvent::cause_time_over, {}, 1, "rank 3 failed: x"},
      {HeadState::starting, HeadEvent::rank_mistaken, {}, 2, "x"},
      {HeadState::starting,
       HeadEvent::launcher_lost,
       {},
       1,
       "the launcher of node 2 has ended or cannot be reached"},
      {HeadState::starting,
       HeadEvent::signal,
       {},
       75,
       "stopped by signal 15 before the first step"},
      {HeadState::ending_loss,
       HeadEvent::worker_killed,
       {},
       1,
       "rank 3 failed: its process ended: x"},
      {HeadState::ending_loss,
       HeadEvent::worker_crashed,
       {},
       1,
       "rank 3 failed: its process ended: x"},
      {HeadState::ending_loss, HeadEvent::ranks_gone, {}, 1, "x"},
      {HeadState::restoring, HeadEvent::placed, {HeadFact::saved}, 75, "x"},
      {HeadState::restoring, HeadEvent::placed, {}, 1, "x"},
  }));
  const HeadStep step = decide(state, event, facts);
  CHECK(exit_code_of(step.exit, kExitFailure) == exit_code);
  CHECK(fill_in(step.line, {.rank = 3, .node = 2, .signal = 15, .text = "x"}) == line);
}

TEST_CASE("recovery table: docs/recovery.md shows the rows as the code has them",
          "[run][recovery_table]") {
  const std::string docs = committed();
  INFO("docs/recovery.md is not what the tables say; renew it with ./dev docs");
  for (const Generated& part : kGenerated) {
    const auto [begin, end] = place_in(docs, part);
    CHECK((docs.substr(begin, end - begin) == part.render()));
  }
}

TEST_CASE("recovery table: writes docs/recovery.md", "[.write]") {
  std::string docs = committed();
  for (const Generated& part : kGenerated) {
    const auto [begin, end] = place_in(docs, part);
    docs.replace(begin, end - begin, part.render());
  }
  std::ofstream(kDocs) << docs;
}

}  // namespace
}  // namespace train::run
