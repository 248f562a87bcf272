#include "actors/train/runtime/rank_runtime.hpp"

#include <malloc.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/runs/joined_ranks.hpp"
#include "tests/support/runs/plain_run.hpp"

namespace train::actors {
namespace {

/// A transport that is closed while an exchange is under way: until its destructor has returned it
/// may read what it was given.
class ReadsToTheEnd final : public engine::Collectives {
 public:
  ReadsToTheEnd(std::span<const float> memory, bool* unchanged)
      : memory_(memory), before_(memory.begin(), memory.end()), unchanged_(unchanged) {}
  ~ReadsToTheEnd() override {
    *unchanged_ = std::equal(memory_.begin(), memory_.end(), before_.begin());
  }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 2; }
  void exchange(const engine::CollectiveIdentity&, engine::Transfer, Done) override {}
  void cancel(const std::string&) override {}

 private:
  std::span<const float> memory_;
  std::vector<float> before_;
  bool* unchanged_;
};

/// While one lives, memory that is given back is overwritten (glibc).
struct FreedMemoryIsOverwritten {
  FreedMemoryIsOverwritten() { ::mallopt(M_PERTURB, 0x5a); }
  ~FreedMemoryIsOverwritten() { ::mallopt(M_PERTURB, 0); }
  FreedMemoryIsOverwritten(const FreedMemoryIsOverwritten&) = delete;
  FreedMemoryIsOverwritten& operator=(const FreedMemoryIsOverwritten&) = delete;
};

}  // namespace

TEST_CASE("rank runtime: transports are closed before the memory they borrow is given back",
          "[actors][rank_runtime]") {
  test::RunSetup setup;
  setup.parallel = test::split_over(2, "full");
  const test::TempDirectory data;
  test::write_tokens(data.path(), setup);
  auto runtime = std::make_unique<RankRuntime>(
      std::make_unique<engine::RankEngine>(kernels::cpu_backend(), test::engine_options(setup)),
      test::token_lanes(setup, data.path()), StreamKind::inline_, 1);
  const std::span<const float> weights = test::state_of(*runtime->engine, test::kWeightOfBlock1);
  REQUIRE(weights.size() > 100);
  bool unchanged = false;
  runtime->transports.front() = std::make_unique<ReadsToTheEnd>(weights, &unchanged);
  {
    const FreedMemoryIsOverwritten overwritten;
    runtime.reset();
  }
  CHECK(unchanged);
}

}  // namespace train::actors
