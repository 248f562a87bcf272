#include "configs/words/nearest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "configs/words/other_words.hpp"

namespace train::configs {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view wrong, std::span<const std::string> candidates) {
  // Long input is not a typo, and the distance costs the product of the lengths.
  constexpr std::size_t kLongest = 80;
  if (wrong.size() > kLongest) {
    return {};
  }
  const std::size_t allowed = std::max<std::size_t>(2, wrong.size() / 3);
  std::size_t best_distance = allowed + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(wrong, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string> candidates,
                         std::string_view scope) {
  if (is_absent(scope, wrong)) {
    return "; that method is not here";
  }
  std::string nearest = meaning_of(scope, wrong);
  if (nearest.empty()) {
    std::vector<std::string> all = vocabulary(scope).words;
    all.insert(all.begin(), candidates.begin(), candidates.end());
    nearest = nearest_name(wrong, all);
    const bool own = std::find(candidates.begin(), candidates.end(), nearest) != candidates.end();
    nearest = own || nearest.empty() ? nearest : meaning_of(scope, nearest);
  }
  return nearest.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", nearest);
}

}  // namespace train::configs
