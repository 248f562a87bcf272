#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "actors/messages/event_messages.hpp"
#include "storage/choices/choice_set.hpp"

namespace train::actors {

/// What an evaluation's answers to questions come to. A pure function of the questions and of the
/// documents' log-likelihoods, so the same bits on any number of ranks.
struct ChoiceReport {
  std::vector<double> log_likelihoods;       ///< Of all documents, in nats.
  std::vector<storage::ChoiceScore> scores;  ///< Of every file, and then of all.
  std::string digest;                        ///< Of all bits of log_likelihoods.
};

/// REQUIRES: the event is that of all ranks.
[[nodiscard]] ChoiceReport report_choices(const storage::ChoiceSet& choices,
                                          const EvaluationFinished& event);

/// For metrics.jsonl: the numbers of all questions, "digest", and "sources" by file.
[[nodiscard]] nlohmann::ordered_json choices_json(const ChoiceReport& report);

/// For people: a line for every file and one for all.
[[nodiscard]] std::string choices_text(const ChoiceReport& report);

}  // namespace train::actors
