#include "actors/train/credit_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "actors/head/conductor_actor.hpp"
#include "actors/train/lane_driver.hpp"
#include "actors/train/snapshot_actor.hpp"

namespace train::actors {
namespace {

enum class Visit : std::uint8_t { unseen, open, done };

/// Depth-first search; `path` holds the open kinds from the first to the current one.
class CircleSearch {
 public:
  explicit CircleSearch(std::span<const Credit> credits)
      : credits_(credits), visits_(credits.size(), Visit::unseen) {}

  [[nodiscard]] Status run() {
    for (std::size_t index = 0; index < credits_.size(); ++index) {
      TRAIN_RETURN_IF_ERROR(visit(index));
    }
    return {};
  }

 private:
  [[nodiscard]] Status visit(std::size_t index) {
    const Credit& credit = credits_[index];
    path_.push_back(credit.name);
    if (visits_[index] == Visit::open) {
      const auto begin = std::find(path_.begin(), path_.end(), credit.name);
      return failure(fmt::format("credits wait for each other in a circle: {}",
                                 fmt::join(begin, path_.end(), " -> ")));
    }
    if (visits_[index] == Visit::unseen) {
      visits_[index] = Visit::open;
      for (const std::string& wanted : credit.waits_for) {
        TRAIN_RETURN_IF_ERROR(follow(credit, wanted));
      }
      visits_[index] = Visit::done;
    }
    path_.pop_back();
    return {};
  }

  [[nodiscard]] Status follow(const Credit& from, const std::string& wanted) {
    const auto found = std::find_if(credits_.begin(), credits_.end(),
                                    [&](const Credit& credit) { return credit.name == wanted; });
    if (found == credits_.end()) {
      return failure(fmt::format("{} wait for {}, which nobody gives out", from.name, wanted));
    }
    return visit(static_cast<std::size_t>(found - credits_.begin()));
  }

  std::span<const Credit> credits_;
  std::vector<Visit> visits_;
  std::vector<std::string> path_;
};

}  // namespace

Status check_credits(std::span<const Credit> credits) {
  for (const Credit& credit : credits) {
    if (credit.count < 1) {
      return failure(
          fmt::format("there are {} {}; at least one is needed", credit.count, credit.name));
    }
  }
  return CircleSearch(credits).run();
}

std::vector<Credit> credits_of_run(std::int64_t lane_slots) {
  return {
      {.name = "commands", .count = kCommandWindow, .waits_for = {"lane slots", "lanes in flight"}},
      {.name = "lane slots", .count = lane_slots, .waits_for = {"lanes in flight"}},
      {.name = "lanes in flight", .count = LaneDriver::kLanesInFlight, .waits_for = {}},
      {.name = "staging buffers", .count = kStagingBuffers, .waits_for = {}}};
}

}  // namespace train::actors
