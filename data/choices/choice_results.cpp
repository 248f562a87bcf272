#include "data/choices/choice_results.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"

namespace train::data {
namespace {

/// Sums over questions.
struct Sums {
  std::int64_t questions = 0;
  double acc = 0.0, acc_norm = 0.0, acc_bytes = 0.0, margin = 0.0, correct_prob = 0.0;
  double log_likelihood = 0.0, tokens = 0.0;  // Sums over correct choices.

  void add(const ScoredQuestion& question, std::span<const double> values);
  [[nodiscard]] ChoiceScore means(std::string source) const;
};

double best_other(std::span<const double> values, std::size_t answer) {
  double best = -HUGE_VAL;
  for (std::size_t i = 0; i < values.size(); ++i) {
    best = i == answer ? best : std::max(best, values[i]);
  }
  return best;
}

double probability(std::span<const double> values, std::size_t answer) {
  const double largest = values[likeliest(values)];
  double sum = 0.0;
  for (const double value : values) {
    sum += fixed::exp(value - largest);
  }
  return fixed::exp(values[answer] - largest) / sum;
}

void Sums::add(const ScoredQuestion& question, std::span<const double> values) {
  std::vector<double> by_characters(values.begin(), values.end());
  std::vector<double> by_bytes(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    by_characters[i] /= static_cast<double>(question.choices[i].characters);
    by_bytes[i] /= static_cast<double>(question.choices[i].bytes);
  }
  const std::size_t answer = question.answer;
  ++questions;
  acc += likeliest(values) == answer ? 1.0 : 0.0;
  acc_norm += likeliest(by_characters) == answer ? 1.0 : 0.0;
  acc_bytes += likeliest(by_bytes) == answer ? 1.0 : 0.0;
  margin += values[answer] - best_other(values, answer);
  correct_prob += probability(values, answer);
  log_likelihood += values[answer];
  tokens += static_cast<double>(question.choices[answer].tokens);
}

ChoiceScore Sums::means(std::string source) const {
  const auto mean = [this](double sum) { return sum / static_cast<double>(questions); };
  return {.source = std::move(source),
          .questions = questions,
          .acc = mean(acc),
          .acc_norm = mean(acc_norm),
          .acc_bytes = mean(acc_bytes),
          .margin = mean(margin),
          .correct_prob = mean(correct_prob),
          .perplexity = fixed::exp(-log_likelihood / tokens)};
}

}  // namespace

std::size_t likeliest(std::span<const double> values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

std::vector<ChoiceScore> score_choices(std::span<const std::string> sources,
                                       std::span<const ScoredQuestion> questions,
                                       std::span<const double> log_likelihoods) {
  std::vector<Sums> by_source(sources.size());
  Sums all;
  for (const ScoredQuestion& question : questions) {
    const std::size_t count = question.choices.size();
    TRAIN_CHECK(question.first_document + count <= log_likelihoods.size() &&
                    question.answer < count && question.source < sources.size(),
                "line {} has no score", question.line);
    const auto values = log_likelihoods.subspan(question.first_document, count);
    by_source[question.source].add(question, values);
    all.add(question, values);
  }
  std::vector<ChoiceScore> scores;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    scores.push_back(by_source[i].means(sources[i]));
  }
  scores.push_back(all.means({}));
  return scores;
}

}  // namespace train::data
