#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace train::cli {

/// Loads of experts over a run's steps in bounded memory, however long the run: if there are too
/// many steps, those that remain are at least a distance apart, which doubles each time. The first
/// step and the newest one always remain.
///
/// Threading: not thread-safe.
class ExpertHistory {
 public:
  static constexpr std::size_t kMostSteps = 1024;
  static constexpr std::size_t kMostLoads = std::size_t{1} << 21U;  ///< Loads of all steps: 8 MiB.

  /// A list for each layer of experts: choices of each expert relative to the mean.
  using Loads = std::vector<std::vector<float>>;

  /// Adds or replaces a step's; steps may come in any order.
  void add(std::int64_t step, Loads loads);
  /// The remaining steps.
  [[nodiscard]] const std::map<std::int64_t, Loads>& steps() const { return steps_; }

 private:
  using Place = std::map<std::int64_t, Loads>::iterator;
  Place erase(Place place);
  void thin();

  std::map<std::int64_t, Loads> steps_;
  std::size_t count_ = 0;  ///< Loads of all steps.
  std::int64_t distance_ = 1;
};

/// One step of a history as one JSON object:
///   steps        all steps that it has, rising
///   step, loads  the last of them up to `wanted`, or else the first; nullopt: the newest. Both
///                are absent if there is none
/// Loads have four digits.
[[nodiscard]] std::string expert_loads_json(const ExpertHistory& history,
                                            std::optional<std::int64_t> wanted);

}  // namespace train::cli
