#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train::storage {

/// What is known of a question once it is made of tokens.
struct ScoredQuestion {
  std::size_t source = 0;          ///< Index of its file.
  std::uint64_t line = 0;          ///< In that file, from 1.
  std::size_t first_document = 0;  ///< Of its first choice; the others follow.
  std::size_t answer = 0;          ///< Index of the right choice.
  struct Choice {
    std::size_t characters = 0;  ///< Of its text (code points).
    std::size_t bytes = 0;
    std::size_t tokens = 0;  ///< Whose log-probabilities are added up.

    bool operator==(const Choice&) const = default;
  };
  std::vector<Choice> choices;
};

/// What a model makes of the questions of a file, or of all of them: means over questions, so that
/// files weigh by their size.
struct ChoiceScore {
  std::string source = {};  ///< Empty: all.
  std::int64_t questions = 0;
  double acc = 0.0;        ///< The likeliest choice is the right one; of equals the first counts.
  double acc_norm = 0.0;   ///< The same of log-likelihoods divided by the choices' characters,
  double acc_bytes = 0.0;  ///< and by their bytes.
  /// Log-likelihood of the right choice less that of the likeliest other one.
  double margin = 0.0;
  double correct_prob = 0.0;  ///< Of the right one, of likelihoods that add up to 1.
  double perplexity = 0.0;    ///< Of the tokens of right choices, after their contexts.
};

/// Of every file in their order, and then of all. `log_likelihoods`: by document, in nats. Pure;
/// all sums are made in the order of the questions.
[[nodiscard]] std::vector<ChoiceScore> score_choices(std::span<const std::string> sources,
                                                     std::span<const ScoredQuestion> questions,
                                                     std::span<const double> log_likelihoods);

/// Index of the largest value; of equals the first.
[[nodiscard]] std::size_t likeliest(std::span<const double> values);

}  // namespace train::storage
