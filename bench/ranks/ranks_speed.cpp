// Rows that run the real program on this machine and compare tokens per second.
#include <fmt/format.h>

#include "bench/ranks/ranks_rows.hpp"

namespace train::bench {
namespace {

Values speeds(const std::vector<RunOutcome>& outcomes) {
  Values values;
  for (const RunOutcome& outcome : outcomes) {
    values.add(outcome.tokens_per_second);
  }
  return values;
}

/// Ratios of tokens per second of `one` to `other`, run by run.
Values ratios(const std::vector<RunOutcome>& one, const std::vector<RunOutcome>& other) {
  Values values;
  for (std::size_t i = 0; i < one.size(); ++i) {
    values.add(one[i].tokens_per_second / other[i].tokens_per_second);
  }
  return values;
}

Words with_ranks(const Shape& shape, int ranks, const std::string& strategy, int steps) {
  return joined(shape.keys, {"batch.lanes=8", fmt::format("run.steps={}", steps),
                             fmt::format("parallel.ranks={}", ranks),
                             fmt::format("parallel.strategy=\"{}\"", strategy)});
}

void compare_speed(const Workplace& place, const Shape& shape, int steps, int times) {
  const auto outcomes =
      run_alternately(place,
                      {{with_ranks(shape, 1, "none", steps)},
                       {with_ranks(shape, 2, "none", steps)},
                       {with_ranks(shape, 2, "full", steps)},
                       {.keys = with_ranks(shape, 1, "none", steps), .copies = 2}},
                      times);
  print_result(fmt::format("{}: 1 rank, tokens/s", shape.name), speeds(outcomes[0]).text(0));
  print_result(fmt::format("{}: 2 ranks, none, tokens/s", shape.name), speeds(outcomes[1]).text(0));
  print_result(fmt::format("{}: 2 ranks, full, tokens/s", shape.name), speeds(outcomes[2]).text(0));
  print_at_least(fmt::format("{}: 2 ranks / 1 rank, none", shape.name),
                 ratios(outcomes[1], outcomes[0]), 1.9);
  print_at_least(fmt::format("{}: 2 ranks / 1 rank, full", shape.name),
                 ratios(outcomes[2], outcomes[0]), 1.9);
  print_result(fmt::format("{}: 2 runs at once that never talk / 1", shape.name),
               ratios(outcomes[3], outcomes[0]).text(3));
  print_result(fmt::format("{}: 2 ranks / 2 runs at once: none; full", shape.name),
               fmt::format("{}; {}", ratios(outcomes[1], outcomes[3]).text(3),
                           ratios(outcomes[2], outcomes[3]).text(3)));
}

/// Means over ranks, from the run's own profile.
void show_exposed(const Shape& shape, const char* strategy, const nlohmann::json& profile) {
  double step = 0.0;
  double exposed = 0.0;
  double overlapped = 0.0;
  double sent = 0.0;
  const auto& ranks = profile.at("ranks");
  for (const auto& rank : ranks) {
    step += rank.at("step_seconds").get<double>();
    exposed += rank.at("exposed_seconds").get<double>();
    overlapped += rank.at("overlapped_seconds").get<double>();
    sent += rank.at("sent_bytes").get<double>();
  }
  const auto count = static_cast<double>(ranks.size());
  print_result(fmt::format("{}, {}: a step; overlapped; sent by a rank", shape.name, strategy),
               fmt::format("{:.1f} ms; {:.1f} ms; {:.1f} MB", step / count * 1e3,
                           overlapped / count * 1e3, sent / count * 1e-6));
  print_at_most(fmt::format("{}, {}: exposed communication / step", shape.name, strategy),
                Values{{exposed / step}}, 0.05);
}

}  // namespace

void speed_row(const Workplace& place) {
  compare_speed(place, quickstart_shape(), 14, 3);
  compare_speed(place, wide_shape(), 4, 2);
}

void exposed_row(const Workplace& place) {
  for (const Shape& shape : {quickstart_shape(), gpt2_shape()}) {
    for (const char* strategy : {"none", "full"}) {
      const int steps = shape.keys.empty() ? 14 : 3;
      const RunOutcome outcome =
          run_program(place, {.keys = with_ranks(shape, 2, strategy, steps), .profile = true});
      if (outcome.profile) {
        show_exposed(shape, strategy, *outcome.profile);
      } else {
        print_result(fmt::format("{}, {}: exposed communication", shape.name, strategy),
                     "skipped: the run left no profile/summary.json");
      }
    }
  }
}

void determinism_row(const Workplace& place) {
  std::vector<RunSpec> specs;
  for (const int ranks : {1, 2}) {
    for (const char* determinism : {"run", "world"}) {
      specs.push_back({joined(with_ranks(quickstart_shape(), ranks, "none", 14),
                              {fmt::format("precision.determinism=\"{}\"", determinism)})});
    }
  }
  const auto outcomes = run_alternately(place, specs, 4);
  for (const std::size_t ranks : {1U, 2U}) {
    const auto& run = outcomes[2 * ranks - 2];
    const auto& world = outcomes[2 * ranks - 1];
    print_result(fmt::format("{} ranks: \"run\", \"world\", tokens/s", ranks),
                 fmt::format("{}, {}", speeds(run).text(0), speeds(world).text(0)));
    Values price;
    for (const double ratio : ratios(run, world).all) {
      price.add(ratio - 1.0);
    }
    print_at_most(fmt::format("{} ranks: price of \"world\"", ranks), price, 0.03);
  }
}

}  // namespace train::bench
