#include "cli/audit/run_audit.hpp"

#include <catch2/catch.hpp>

namespace train::cli::journal_audit_test {
namespace {

using checkpoint::StepJournal;
using Lines = std::vector<std::string>;

constexpr std::int64_t kTokens = 10;  // a step

StepJournal journal_of(const std::vector<std::int64_t>& steps) {
  StepJournal journal;
  for (const std::int64_t step : steps) {
    journal.steps[step] = {.step = step, .tokens = kTokens * step};
  }
  return journal;
}

bool is(const Lines& lines, const std::string& part) {
  return lines.size() == 1 && lines.front().find(part) != std::string::npos;
}

CheckpointFacts facts() {
  return {.step = 2,
          .name = "step-00000002",
          .tokens = 2 * kTokens,
          .weights_digest = "0000000000000007",
          .tensors = {"model.a", "model.b", "optimizer.x.a"},
          .digests = {3, 4, 9}};
}

TEST_CASE("journal audit: steps follow each other", "[actors][audit]") {
  CHECK(audit_journal({}, kTokens).empty());
  CHECK(audit_journal(journal_of({5, 6, 7}), kTokens).empty());  // it forgets the oldest
  CHECK(is(audit_journal(journal_of({1, 2, 4}), kTokens), "step 3 is missing"));
  CHECK(is(audit_journal(journal_of({1, 6}), kTokens), "steps 2 to 5 are missing"));
  StepJournal journal = journal_of({1, 2});
  journal.steps[2].tokens = 19;
  CHECK(is(audit_journal(journal, kTokens), "step 2 has read 19 tokens, not 20"));
  journal = journal_of({1, 2});
  journal.unreadable = {2};
  CHECK(is(audit_journal(journal, kTokens), "record of step 2 cannot be read"));
}

TEST_CASE("journal audit: a checkpoint fits the journal and itself", "[actors][audit]") {
  StepJournal journal = journal_of({1, 2, 3});
  CHECK(audit_checkpoint(facts(), journal).empty());
  journal.steps[2].tensor_digests = facts().digests;
  CHECK(audit_checkpoint(facts(), journal).empty());
  journal.steps[2].tensor_digests[1] = 5;
  CHECK(is(audit_checkpoint(facts(), journal), "tensor model.b is not the one"));
  journal.steps[2].tensor_digests = {3};
  CHECK(is(audit_checkpoint(facts(), journal),
           "the checkpoint has 3 tensors, the journal digests of 1"));
  journal = journal_of({1});
  CHECK(is(audit_checkpoint(facts(), journal), "step-00000002: the journal ends at step 1"));
  CHECK(is(audit_checkpoint(facts(), {}), "the journal ends at step 0"));
  CHECK(audit_checkpoint(facts(), journal_of({3, 4})).empty());  // it forgets the oldest
  CheckpointFacts other = facts();
  other.weights_digest = "0000000000000008";
  CHECK(is(audit_checkpoint(other, journal_of({2})), "the digest 0000000000000007"));
  other = facts();
  other.tokens = 1;
  CHECK(is(audit_checkpoint(other, journal_of({2})),
           "the checkpoint says 1 tokens read, the journal 20"));
}

}  // namespace
}  // namespace train::cli::journal_audit_test
