#include "bench/published/scan_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/steps/step_compare.hpp"
#include "bench/steps/step_shares.hpp"
#include "bench/steps/step_sides.hpp"

namespace train::bench {
namespace {

struct ScanModel {
  const char* name;
  std::int64_t vocabulary;
  double most_seconds;  ///< Of a step of 128 tokens.
};
constexpr ScanModel kModels[] = {{"mamba-130m", 50280, 1.4}, {"mamba2-130m", 50288, 1.1}};

/// The same with four layers, so that long rows fit.
StepCase four_layers(const Workplace& place, const ScanModel& model, std::int64_t seq_len) {
  return published_case(
      fmt::format("{}/../bench/published/{}_4_layers.json", place.paths().configs, model.name),
      model.vocabulary, seq_len);
}

}  // namespace

void scans_short_row(const Workplace& place) {
  for (const ScanModel& model : kModels) {
    StepCase one = published_case(model.name, model.vocabulary, /*seq_len=*/128);
    one.same_loss = 0.5;
    // transformers walks row by row without CUDA: a step takes a minute.
    const Comparison result = compare(
        place, one, {.rounds = 1, .steps = 1, .dropped = 3, .thorough = false, .compiled = false});
    print_at_most(fmt::format("{}: a step of 128 tokens, s", model.name), result.ours_s,
                  model.most_seconds);
    print_memory(one, result, std::nullopt);
  }
}

void scans_long_row(const Workplace& place) {
  const StepCase attention = gpt2_case(1024, 1, 1);
  for (const ScanModel& model : kModels) {
    const StepCase one = published_case(model.name, model.vocabulary, /*seq_len=*/1024);
    Values speed, memory;
    for (int round = 0; round < 3; ++round) {
      const StepTimes of_scans = run_ours(place, one, 2, 2);
      const StepTimes of_attention = run_ours(place, attention, 2, 2);
      print_result(fmt::format("{}, GPT-2: a step of 1024 tokens, s", model.name),
                   fmt::format("{:.3f}, {:.3f}", of_scans.seconds, of_attention.seconds));
      speed.add(of_attention.seconds / of_scans.seconds);
      memory.add(of_scans.peak_bytes / of_attention.peak_bytes);
    }
    print_at_least(fmt::format("{}: tokens/s / GPT-2's", model.name), speed, 0.7);
    print_at_most(fmt::format("{}: peak memory / GPT-2's", model.name), memory, 1.2);
  }
}

void scans_lengths_row(const Workplace& place) {
  for (const ScanModel& model : kModels) {
    Values spread;
    for (int round = 0; round < 3; ++round) {
      std::vector<double> of_token;
      for (const std::int64_t seq_len : {1024, 4096, 16384}) {
        const StepTimes times = run_ours(place, four_layers(place, model, seq_len), 2, 1);
        of_token.push_back(times.seconds / static_cast<double>(seq_len));
      }
      print_result(fmt::format("{}, 4 layers: us a token of 1024, 4096, 16384", model.name),
                   fmt::format("{:.1f}, {:.1f}, {:.1f}", 1e6 * of_token[0], 1e6 * of_token[1],
                               1e6 * of_token[2]));
      const auto [least, most] = std::minmax_element(of_token.begin(), of_token.end());
      spread.add(*most / *least);
    }
    print_at_most(fmt::format("{}, 4 layers: slowest / fastest token", model.name), spread, 1.1);
  }
}

void scans_shares_row(const Workplace& place) {
  for (const ScanModel& model : kModels) {
    print_shares(place, published_case(model.name, model.vocabulary, /*seq_len=*/1024),
                 fmt::format("{}, T 1024", model.name), 3);
  }
}

}  // namespace train::bench
