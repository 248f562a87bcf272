#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/choices/choice_set.hpp"
#include "run/events/rank_reports.hpp"

namespace train::run {

/// Results of the questions in an evaluation. A pure function of the questions and of the
/// documents' log-likelihoods, so bitwise equal on any number of ranks.
struct ChoiceReport {
  std::vector<double> log_likelihoods;    ///< All documents, in nats.
  std::vector<data::ChoiceScore> scores;  ///< Per file, then of all files.
  std::string digest;                     ///< Digest of log_likelihoods' bits.
};

/// REQUIRES: the event is the merged one of all ranks.
[[nodiscard]] ChoiceReport report_choices(const data::ChoiceSet& choices,
                                          const EvaluationFinished& event);

/// Entry for metrics.jsonl: the numbers of all questions, "digest", and "sources" by file.
[[nodiscard]] nlohmann::ordered_json choices_json(const ChoiceReport& report);

/// Text for the terminal: a line per file and one for all files.
[[nodiscard]] std::string choices_text(const ChoiceReport& report);

}  // namespace train::run
