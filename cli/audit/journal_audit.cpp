#include "cli/audit/journal_audit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/rank/state/state_rows.hpp"

namespace train::cli {

std::vector<std::string> audit_journal(const checkpoint::StepJournal& journal,
                                       std::int64_t tokens_per_step) {
  std::vector<std::string> problems;
  for (const std::int64_t step : journal.unreadable) {
    problems.push_back(fmt::format("journal: the record of step {} cannot be read", step));
  }
  std::int64_t before = journal.steps.empty() ? 0 : journal.steps.begin()->first - 1;
  for (const auto& [step, record] : journal.steps) {
    if (step == before + 2) {
      problems.push_back(fmt::format("journal: step {} is missing", before + 1));
    } else if (step > before + 1) {
      problems.push_back(fmt::format("journal: steps {} to {} are missing", before + 1, step - 1));
    }
    before = step;
    if (record.tokens != step * tokens_per_step) {
      problems.push_back(fmt::format("journal: step {} has read {} tokens, not {}", step,
                                     record.tokens, step * tokens_per_step));
    }
  }
  return problems;
}

std::vector<std::string> audit_checkpoint(const CheckpointFacts& facts,
                                          const checkpoint::StepJournal& journal) {
  std::vector<std::string> problems;
  const auto problem = [&](const std::string& what) {
    problems.push_back(fmt::format("{}: {}", facts.name, what));
  };
  const std::string weights =
      fmt::format("{:016x}", engine::weights_digest(facts.digests, facts.tensors));
  if (!facts.weights_digest.empty() && facts.weights_digest != weights) {
    problem(fmt::format("its weights have the digest {}, its manifest says {}", weights,
                        facts.weights_digest));
  }
  const auto& steps = journal.steps;
  const auto record = steps.find(facts.step);
  if (record == steps.end()) {
    if (steps.empty() || facts.step > steps.rbegin()->first) {
      problem(
          fmt::format("the journal ends at step {}", steps.empty() ? 0 : steps.rbegin()->first));
    }
    return problems;  // a step in between is the journal's problem; the oldest ones it forgets
  }
  if (record->second.tokens != facts.tokens) {
    problem(fmt::format("it has read {} tokens, the journal says {}", facts.tokens,
                        record->second.tokens));
  }
  const auto& digests = record->second.tensor_digests;
  if (!digests.empty() && digests.size() != facts.digests.size()) {
    problem(fmt::format("it has {} tensors, the journal digests of {}", facts.digests.size(),
                        digests.size()));
  }
  for (std::size_t i = 0; i < std::min(digests.size(), facts.digests.size()); ++i) {
    if (digests.size() == facts.digests.size() && digests[i] != facts.digests[i]) {
      problem(fmt::format("tensor {} is not the one that the journal has the digest of",
                          facts.tensors[i]));
    }
  }
  return problems;
}

}  // namespace train::cli
