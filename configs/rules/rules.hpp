#pragma once

#include <fmt/format.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// User error at `key`: its place, its name, and `rule`, which begins with the fault and ends with
/// the fix.
[[nodiscard]] inline Error broken(const KeyPositions& places, std::string_view key,
                                  const std::string& rule) {
  return user_error(fmt::format("{}: {} {}", places.of(key), key, rule));
}

/// Collects rules between keys; keeps the first violation of each key.
class Rules {
 public:
  explicit Rules(const KeyPositions& places) : places_(places) {}

  template <class... Args>
  void refuse_if(bool is_broken, std::string_view key, fmt::format_string<Args...> text,
                 Args&&... args) {
    if (is_broken && keys_.emplace(key).second) {
      broken_.add(broken(places_, key, fmt::format(text, std::forward<Args>(args)...)));
    }
  }
  [[nodiscard]] Status result() const { return broken_.result(); }

 private:
  const KeyPositions& places_;
  std::set<std::string, std::less<>> keys_;
  Mistakes broken_;
};

// Rules of a run file, one source file per kind of section. REQUIRES: every value is in its range.
void check_names(const RunConfig& config, Rules& rules);
void check_sources(const RunConfig& config, Rules& rules);
void check_model(const RunConfig& config, Rules& rules);
/// Checks CF-3.
void check_experts(const RunConfig& config, Rules& rules);
void check_sizes(const RunConfig& config, Rules& rules);
void check_optimizer(const RunConfig& config, Rules& rules);
void check_objective(const RunConfig& config, Rules& rules);
void check_schedule(const RunConfig& config, Rules& rules);
void check_scaling(const RunConfig& config, Rules& rules);
void check_evaluation(const RunConfig& config, Rules& rules);
void check_checkpoint(const RunConfig& config, Rules& rules);
/// Checks that device, precision and strategy support the keys of [memory].
void check_memory(const RunConfig& config, Rules& rules);
void check_parallel(const RunConfig& config, Rules& rules);
void check_lora(const RunConfig& config, Rules& rules);
void check_status(const RunConfig& config, Rules& rules);

}  // namespace train::configs
