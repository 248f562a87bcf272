#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace train::configs {

/// Number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`
/// (optimal string alignment distance).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// Candidate nearest to `wrong`, or "" if none is near enough.
[[nodiscard]] std::string nearest_name(std::string_view wrong,
                                       std::span<const std::string> candidates);

/// `; did you mean "x"?`, or "" if nothing is near. With a `scope` also for the words that other
/// programs use (OtherWords), and for misspellings of them.
[[nodiscard]] std::string did_you_mean(std::string_view wrong,
                                       std::span<const std::string> candidates,
                                       std::string_view scope = {});

}  // namespace train::configs
