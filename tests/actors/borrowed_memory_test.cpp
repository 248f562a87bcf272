// What a rank hands to an exchange is borrowed until its `done`: the others may read it where it
// lies until then (direct_memory.hpp). So nothing may write it, however late the exchange ends.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_codes.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::test {
namespace {

/// What was sent in an exchange that has moved its bytes, and is not over for this rank.
struct Unfinished {
  engine::CollectiveIdentity identity;
  engine::Transfer transfer;
  std::vector<std::vector<std::byte>> sent;  // by rank, as it was at the beginning
  engine::Collectives::Done done;
  Status status;
};

/// The in-process transport of a rank, but an exchange ends only when the test says so.
class LateTransport final : public engine::Collectives {
 public:
  explicit LateTransport(std::unique_ptr<engine::Collectives> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int world_size() const override { return inner_->world_size(); }
  void exchange(const engine::CollectiveIdentity& identity, engine::Transfer transfer,
                Done done) override {
    auto under_way = std::make_shared<Unfinished>();
    under_way->identity = identity;
    under_way->transfer = transfer;
    for (const auto& range : transfer.send) {
      under_way->sent.emplace_back(range.begin(), range.end());
    }
    under_way->done = std::move(done);
    inner_->exchange(identity, std::move(transfer), [this, under_way](const Status& status) {
      under_way->status = status;
      unfinished_.push_back(under_way);
    });
  }
  void cancel(const std::string& reason) override { inner_->cancel(reason); }

  [[nodiscard]] bool waiting() const { return !unfinished_.empty(); }
  /// Ends the oldest exchange. False: what was sent in it has been written meanwhile.
  [[nodiscard]] bool finish() {
    const std::shared_ptr<Unfinished> one = std::move(unfinished_.front());
    unfinished_.pop_front();
    bool unchanged = true;
    for (std::size_t to = 0; to < one->sent.size(); ++to) {
      const auto now = one->transfer.send[to];
      unchanged = unchanged && std::equal(now.begin(), now.end(), one->sent[to].begin());
    }
    INFO("rank " << rank() << ", " << to_string(one->identity));
    CHECK(unchanged);
    one->done(one->status);
    return unchanged;
  }

 private:
  std::deque<std::shared_ptr<Unfinished>> unfinished_;
  std::unique_ptr<engine::Collectives> inner_;  // last: it may end what is under way
};

std::vector<LateTransport*> make_late(TrainingRun& run) {
  std::vector<LateTransport*> all;
  for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
    for (auto& transport : run.runtime(rank).transports) {
      auto late = std::make_unique<LateTransport>(std::move(transport));
      all.push_back(late.get());
      transport = std::move(late);
    }
  }
  return all;
}

/// Exchanges end when nothing else is left to do, one at a time; those of `latest` when no other is
/// left either. False: memory was written that an exchange still had.
bool run_with_late_ends(TrainingRun& run, const std::vector<LateTransport*>& transports,
                        const LateTransport* latest, Random& random) {
  while (true) {
    run.run(random);
    std::vector<LateTransport*> waiting;
    std::copy_if(transports.begin(), transports.end(), std::back_inserter(waiting),
                 [](const LateTransport* transport) { return transport->waiting(); });
    if (waiting.empty()) {
      return true;
    }
    if (waiting.size() > 1) {
      std::erase(waiting, latest);
    }
    if (!waiting[random() % waiting.size()]->finish()) {
      return false;
    }
  }
}

}  // namespace

TEST_CASE("borrowed memory: no rank writes what an exchange of its own has not let go of",
          "[actors][EX-1][P1][P2]") {
  // With 4 lanes on 3 ranks, two ranks have no lane in the second round of a step.
  const RunSetup base{.steps = 2, .lanes = 4, .manual_streams = true};
  const PlainRun plain(base);
  Random random(Catch::rngSeed());
  for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
    for (const char* reshard : {"after_forward", "never"}) {
      for (std::size_t latest = 0; latest < 3 * engine::kChannelCount; ++latest) {
        INFO(strategy << ", reshard " << reshard << ", latest: channel "
                      << latest % engine::kChannelCount << " of rank "
                      << latest / engine::kChannelCount);
        RunSetup setup = base;
        setup.parallel = split_over(3, strategy);
        setup.parallel.reshard = reshard;
        TrainingRun run(setup);
        const std::vector<LateTransport*> transports = make_late(run);
        run.start();
        REQUIRE(run_with_late_ends(run, transports, transports.at(latest), random));
        REQUIRE(run.finished().exit_code == kExitFinished);
        require_same(run, plain);
      }
    }
  }
}

}  // namespace train::test
