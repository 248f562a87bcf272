#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <string>
#include <vector>

namespace train::engine {

/// Gloo's texts begin with "[file:line] ", of its own source: without that.
[[nodiscard]] inline std::string without_place(const std::string& text) {
  const std::size_t end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

/// "rank 3", "ranks 1, 2".
[[nodiscard]] inline std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

[[nodiscard]] inline std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace train::engine
