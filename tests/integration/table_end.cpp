#include "tests/integration/table_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "run/recovery/verdict.hpp"

namespace train::test {

TableEnd end_of(const HeadFault& fault) {
  run::Verdict verdict(fault.in);
  for (const HeadEvent event : fault.events) {
    verdict.hear(event, fault.facts, fault.words, fault.told);
  }
  run::RunFinished end = verdict.outcome(0);
  if (fault.killed_by != 0) {
    run::FirstLoss loss;
    loss.hear({.rank = static_cast<std::int32_t>(fault.words.rank),
               .text = fmt::format("killed by SIG{}*", sigabbrev_np(fault.killed_by)),
               .killed = fault.killed_by == SIGKILL,
               .unasked = true});
    end = loss.cause_of(end);
  }
  if (verdict.state() != HeadState::over) {
    verdict = run::Verdict(run::state_of(end.end));
    verdict.hear(HeadEvent::ranks_gone, fault.facts,
                 {.signal = fault.words.signal, .text = end.text}, end.exit_code);
    end = verdict.outcome(0);
  }
  return {end.exit_code, end.text};
}

TableEnd end_of(run::NodeState state, run::NodeEvent event, run::NodeFacts facts,
                const run::LineWords& words, int told) {
  const run::NodeStep step = run::decide(state, event, facts);
  return {run::exit_code_of(step.exit, told), run::fill_in(step.line, words)};
}

bool is_as(const std::string& line, const std::string& pattern) {
  std::size_t at = 0;
  std::size_t begin = 0;
  while (true) {
    const std::size_t star = pattern.find('*', begin);
    const std::string part = pattern.substr(begin, star - begin);
    const std::size_t found = star == std::string::npos
                                  ? line.size() - std::min(line.size(), part.size())
                                  : line.find(part, at);
    if (found == std::string::npos || found < at || line.compare(found, part.size(), part) != 0 ||
        (begin == 0 && found != 0)) {
      return false;
    }
    at = found + part.size();
    if (star == std::string::npos) {
      return true;
    }
    begin = star + 1;
  }
}

}  // namespace train::test
