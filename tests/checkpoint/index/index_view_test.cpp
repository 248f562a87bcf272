// What a program that looks on sees of a run that goes on saving and retiring meanwhile.

#include "checkpoint/index/index_view.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>
#include <vector>

#include "checkpoint/save/retention.hpp"
#include "tests/checkpoint/index/index_fixture.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::TempDirectory;

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t nothing = -1;

struct Look {
  std::int64_t in_place = 0;  ///< Newest checkpoint when the look began.
  std::int64_t seen = nothing;
};

/// Looks at the run in `home` again and again, in a thread of its own.
class Onlooker {
 public:
  Onlooker(const fs::path& home, int looks)
      : home_(home), least_(static_cast<std::size_t>(looks)), thread_([this] { look_on(); }) {}
  Onlooker(const Onlooker&) = delete;
  Onlooker& operator=(const Onlooker&) = delete;
  ~Onlooker() { thread_.join(); }

  void placed(std::int64_t step) { in_place_ = step; }
  [[nodiscard]] bool finished() const { return finished_; }
  /// REQUIRES: finished().
  [[nodiscard]] const std::vector<Look>& looks() const { return looks_; }

 private:
  void look_on() {
    // As often as it takes to see another checkpoint, however slow the disk is.
    while (looks_.size() < least_ ||
           (looks_.back().seen == looks_.front().seen && looks_.size() < 50 * least_)) {
      Look look;
      while (in_place_ == 0) {
        std::this_thread::yield();
      }
      look.in_place = in_place_;
      const auto view = view_index(home_ / "index", home_ / "checkpoints");
      for (const IndexEntry& entry : view ? view->entries : std::vector<IndexEntry>()) {
        if (entry.state == CheckpointState::committed) {
          look.seen = std::max(look.seen, entry.step);
        }
      }
      looks_.push_back(look);
    }
    finished_ = true;
  }

  fs::path home_;
  std::size_t least_;
  std::vector<Look> looks_;
  std::atomic<std::int64_t> in_place_ = 0;
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("checkpoint index: a run that replaces its checkpoints is never seen without one (CK-7)",
          "[checkpoint][index]") {
  const TempDirectory home;
  const fs::path checkpoints = home / "checkpoints";
  auto opened = open_index(home / "index", checkpoints);
  REQUIRE(opened);
  Onlooker onlooker(home.path(), 200);
  std::int64_t step = 0;
  while (!onlooker.finished()) {
    test::save(opened->index, checkpoints, ++step);
    onlooker.placed(step);
    for (const std::int64_t old : to_retire(opened->index.committed(), {.keep_last = 1})) {
      REQUIRE(retire(checkpoints, old));
      REQUIRE(opened->index.retire(old));
    }
  }
  for (const Look& look : onlooker.looks()) {
    REQUIRE(look.seen >= look.in_place);
  }
  CHECK(onlooker.looks().back().seen > onlooker.looks().front().seen);
}
