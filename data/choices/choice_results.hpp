#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train::data {

/// Data of a tokenized question needed for scoring.
struct ScoredQuestion {
  std::size_t source = 0;          ///< Index of its file.
  std::uint64_t line = 0;          ///< Line in that file, from 1.
  std::size_t first_document = 0;  ///< Index of its first choice's document; the others follow.
  std::size_t answer = 0;          ///< Index of the correct choice.
  struct Choice {
    std::size_t characters = 0;  ///< Characters (code points) of the choice's text.
    std::size_t bytes = 0;
    std::size_t tokens = 0;  ///< Tokens whose log-probabilities are added.

    bool operator==(const Choice&) const = default;
  };
  std::vector<Choice> choices;
};

/// Scores over the questions of one file, or of all files: means over questions, so files weigh by
/// size.
struct ChoiceScore {
  std::string source = {};  ///< Empty: all files.
  std::int64_t questions = 0;
  double acc = 0.0;        ///< Accuracy: the likeliest choice is correct; ties: first choice wins.
  double acc_norm = 0.0;   ///< Accuracy with log-likelihoods divided by characters of the choice,
  double acc_bytes = 0.0;  ///< and divided by its bytes.
  /// Log-likelihood of the correct choice minus that of the likeliest other.
  double margin = 0.0;
  double correct_prob = 0.0;  ///< Probability of the correct choice, normalised over the choices.
  double perplexity = 0.0;    ///< Perplexity of the correct choices' tokens, given their contexts.
};

/// Scores of each file in order, then of all. `log_likelihoods`: by document, in nats. Pure; sums
/// are in the order of the questions.
[[nodiscard]] std::vector<ChoiceScore> score_choices(std::span<const std::string> sources,
                                                     std::span<const ScoredQuestion> questions,
                                                     std::span<const double> log_likelihoods);

/// Index of the largest value; ties: the first.
[[nodiscard]] std::size_t likeliest(std::span<const double> values);

}  // namespace train::data
