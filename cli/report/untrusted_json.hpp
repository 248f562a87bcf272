#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/untrusted_text.hpp"

// JSON in files of runs, which may belong to another user and hold anything: a text that would
// exhaust the reader's stack or memory is rejected without parsing.
namespace train::cli {

/// For a line of metrics.jsonl, which may have the loads of 64 layers of 1,024 experts, or of
/// events.jsonl.
inline constexpr storage::JsonLimits kLineLimits = {
    .bytes = std::size_t{1} << 20U, .values = 80'000, .run = std::size_t{64} << 10U, .depth = 16};
/// For a status.json with many thousand ranks.
inline constexpr storage::JsonLimits kStatusLimits = {.bytes = std::size_t{16} << 20U,
                                                      .values = 1'000'000,
                                                      .run = std::size_t{64} << 10U,
                                                      .depth = 16};

/// Errors (failure), without a file's name: beyond the limits; invalid JSON, or invalid UTF-8.
[[nodiscard]] inline Result<nlohmann::ordered_json> parse_untrusted_json(
    std::string_view text, const storage::JsonLimits& limits) {
  if (const std::string excess = storage::json_excess(text, limits); !excess.empty()) {
    return failure(excess);
  }
  auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return failure("no JSON");
  }
  return json;
}

}  // namespace train::cli
