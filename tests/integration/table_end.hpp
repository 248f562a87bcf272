#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/exit_codes.hpp"
#include "run/recovery/head_table.hpp"
#include "run/recovery/node_table.hpp"
#include "tests/integration/sites/rank_runs.hpp"

// How a run with an injected fault ends, as the tables of recovery have it: tests compare the exit
// code and the first line of error with the tables' rows, not with words of their own.
namespace train::test {

namespace run = train::run;
using run::HeadEvent;
using run::HeadFact;
using run::HeadState;

/// What the head hears of a fault. In its words `*` stands for whatever the process says there.
struct HeadFault {
  HeadState in;
  std::vector<HeadEvent> events;  ///< One after the other, until the ranks are ended.
  run::HeadFacts facts = {};
  run::LineWords words = {};
  int told = kExitFailure;
  int killed_by = 0;  ///< The signal that the kernel says has ended the worker; 0: says nothing.
};

struct TableEnd {
  int exit_code = 0;
  std::string line;
};

TableEnd end_of(const HeadFault& fault);
/// Of another node's launcher.
TableEnd end_of(run::NodeState state, run::NodeEvent event, run::NodeFacts facts,
                const run::LineWords& words, int told = kExitFailure);

/// Whether `line` is `pattern`, in which each `*` stands for any text.
bool is_as(const std::string& line, const std::string& pattern);

/// The first line of error that begins with `start`, without its mark; empty: there is none.
inline std::string first_error(const Ended& ended, const std::string& start = {}) {
  const std::string mark = "error ";
  for (const std::string& line : lines_of(ended.err)) {
    if (line.starts_with(mark + start)) {
      return line.substr(mark.size());
    }
  }
  return {};
}

/// The process ended with the code of the table, and its first line of error is the table's.
/// `start`: of lines of its own, where its workers have something to say, too.
inline void check_ends_as(const TableEnd& end, const Ended& ended, const std::string& start = {}) {
  INFO("wanted: " << end.line << "\nfound: " << first_error(ended, start));
  CHECK(ended.exit_code == end.exit_code);
  CHECK(is_as(first_error(ended, start), end.line));
}

/// Whether the table's line is among a log's news or warnings.
inline bool says(const std::string& log, const TableEnd& end) {
  const Words lines = lines_of(log);
  return std::any_of(lines.begin(), lines.end(), [&end](const std::string& line) {
    const Words marks = {"info run_finished ", "info ", "warning "};
    return std::any_of(marks.begin(), marks.end(), [&](const std::string& mark) {
      return line.starts_with(mark) && is_as(line.substr(mark.size()), end.line);
    });
  });
}

/// The same of a process whose end is no error: the table's line is among its news, or a warning.
inline void check_ends_in_order_as(const TableEnd& end, const Ended& ended) {
  INFO("wanted: " << end.line);
  CHECK(ended.exit_code == end.exit_code);
  CHECK(says(ended.err, end));
}

/// The head's end when all `steps` steps of the run are done, whatever was lost on the way.
inline TableEnd end_of_steps(int steps) {
  TableEnd end = end_of({.in = HeadState::training,
                         .events = {HeadEvent::program_over},
                         .words = {.text = fmt::format("finished at step {}", steps)},
                         .told = kExitFinished});
  CHECK(end.exit_code == kExitFinished);
  return end;
}

/// Another node's launcher ends as its ranks did, in order, and has nothing to say of it.
inline void check_ends_with_ranks(const Ended& other, int node) {
  const TableEnd end =
      end_of(run::NodeState::leaving, run::NodeEvent::ranks_gone, {run::NodeFact::in_order}, {});
  CHECK(end.exit_code == kExitFinished);
  check_ends_as(end, other, fmt::format("node {}", node));
}

/// Every generation that was lost ended as one of `any`, by the log of a head that went on.
inline void check_lost_as(const std::vector<TableEnd>& any, const std::string& log) {
  const std::string mark = "warning rank_lost ";
  std::size_t lost = 0;
  for (const std::string& line : lines_of(log)) {
    if (line.starts_with(mark)) {
      ++lost;
      INFO(line);
      CHECK(std::any_of(any.begin(), any.end(), [&](const TableEnd& end) {
        return is_as(line.substr(mark.size()), end.line);
      }));
    }
  }
  CHECK(lost > 0);
}

/// A node's launcher is gone: as the head misses it, or one of its ranks, whichever is first.
inline std::vector<TableEnd> ends_of_lost_node(int node, const std::vector<int>& ranks) {
  std::vector<TableEnd> ends = {end_of(
      {.in = HeadState::training, .events = {HeadEvent::launcher_lost}, .words = {.node = node}})};
  for (const int rank : ranks) {
    ends.push_back(end_of({.in = HeadState::training,
                           .events = {HeadEvent::rank_lost},
                           .words = {.rank = rank, .text = "*"}}));
  }
  return ends;
}

}  // namespace train::test
