#include "run/report/choice_report.hpp"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.hpp"
#include "storage/files/digest.hpp"

namespace train::run {
namespace {

using Json = nlohmann::ordered_json;

Json score_json(const data::ChoiceScore& score) {
  return {{"questions", score.questions},  {"acc", score.acc},
          {"acc_norm", score.acc_norm},    {"acc_bytes", score.acc_bytes},
          {"margin", score.margin},        {"correct_prob", score.correct_prob},
          {"perplexity", score.perplexity}};
}

}  // namespace

ChoiceReport report_choices(const data::ChoiceSet& choices, const EvaluationFinished& event) {
  TRAIN_CHECK(event.log_likelihoods.size() == choices.documents(), "{} of {} documents are scored",
              event.log_likelihoods.size(), choices.documents());
  ChoiceReport report;
  for (const std::uint64_t bits : event.log_likelihoods) {
    report.log_likelihoods.push_back(std::bit_cast<double>(bits));
  }
  report.scores = choices.scores(report.log_likelihoods);
  report.digest = storage::digest_bytes(std::as_bytes(std::span(event.log_likelihoods)));
  return report;
}

Json choices_json(const ChoiceReport& report) {
  Json all = score_json(report.scores.back());
  all["digest"] = report.digest;
  for (const data::ChoiceScore& score : report.scores) {
    if (!score.source.empty()) {
      all["sources"][score.source] = score_json(score);
    }
  }
  return all;
}

std::string choices_text(const ChoiceReport& report) {
  std::string text;
  for (const data::ChoiceScore& score : report.scores) {
    // With a single file, the line of all would repeat its line.
    if (report.scores.size() == 2 && score.source.empty()) {
      continue;
    }
    text += fmt::format(
        "choices {}: {} questions, acc {:.4f}, acc_norm {:.4f}, acc_bytes {:.4f}, margin {:.4f}, "
        "correct_prob {:.4f}, perplexity {:.4f}\n",
        score.source.empty() ? "all" : score.source, score.questions, score.acc, score.acc_norm,
        score.acc_bytes, score.margin, score.correct_prob, score.perplexity);
  }
  return text;
}

}  // namespace train::run
