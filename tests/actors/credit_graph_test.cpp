#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/head/conductor_actor.hpp"
#include "actors/train/lane_driver.hpp"
#include "actors/train/rank_actors.hpp"
#include "base/result.hpp"

namespace train::actors {
namespace {

/// One kind of credit: how many there are, and which other kinds its holder may wait for before it
/// gives it back.
struct Credit {
  std::string name;
  std::int64_t count = 0;
  std::vector<std::string> waits_for;
};

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

/// EX-4: with every queue bounded by credits, a run can only come to a standstill if holders wait
/// for each other in a circle. Fails, naming the circle, if the credits allow one; also if a kind
/// has no credit at all or waits for an unknown one. Pure.
Status check_credits(std::span<const Credit> credits) {
  for (const Credit& credit : credits) {
    if (credit.count < 1) {
      return failure(
          fmt::format("there are {} {}; at least one is needed", credit.count, credit.name));
    }
  }
  return CircleSearch(credits).run();
}

/// The credits of a one-rank run with `lane_slots` lane slots.
std::vector<Credit> credits_of_run(std::int64_t lane_slots) {
  return {
      {.name = "commands", .count = kCommandWindow, .waits_for = {"lane slots", "lanes in flight"}},
      {.name = "lane slots", .count = lane_slots, .waits_for = {"lanes in flight"}},
      {.name = "lanes in flight", .count = LaneDriver::kLanesInFlight, .waits_for = {}},
      {.name = "staging buffers", .count = kStagingBuffers, .waits_for = {}}};
}

TEST_CASE("credit graph: the credits of a run allow no circle", "[actors][credit_graph][EX-4]") {
  CHECK(check_credits(credits_of_run(4)).ok());
}

TEST_CASE("credit graph: a circle is named", "[actors][credit_graph][EX-4]") {
  std::vector<Credit> credits = credits_of_run(4);
  for (Credit& credit : credits) {
    if (credit.name == "lanes in flight") {
      credit.waits_for = {"lane slots"};  // as if a lane on the stream had to read more tokens
    }
  }
  const Status status = check_credits(credits);
  REQUIRE(!status.ok());
  CHECK(status.error().message ==
        "credits wait for each other in a circle: lane slots -> lanes in flight -> lane slots");
}

TEST_CASE("credit graph: holders that wait for their own kind are a circle",
          "[actors][credit_graph][EX-4]") {
  const std::vector<Credit> credits = {{.name = "buffers", .count = 2, .waits_for = {"buffers"}}};
  CHECK(!check_credits(credits).ok());
}

TEST_CASE("credit graph: two ways to one kind are no circle", "[actors][credit_graph]") {
  const std::vector<Credit> credits = {{.name = "a", .count = 1, .waits_for = {"b", "c"}},
                                       {.name = "b", .count = 1, .waits_for = {"d"}},
                                       {.name = "c", .count = 1, .waits_for = {"d"}},
                                       {.name = "d", .count = 1, .waits_for = {}}};
  CHECK(check_credits(credits).ok());
}

TEST_CASE("credit graph: no credit at all, or an unknown one, is refused",
          "[actors][credit_graph]") {
  CHECK(!check_credits(credits_of_run(0)).ok());
  const std::vector<Credit> unknown = {{.name = "a", .count = 1, .waits_for = {"b"}}};
  CHECK(check_credits(unknown).error().message == "a wait for b, which nobody gives out");
}

}  // namespace
}  // namespace train::actors
