#include "tests/step_model/step_model.hpp"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/engine/rank/small_model.hpp"
#include "tests/step_model/exchange_sizes.hpp"

namespace train::engine::step_model_test {
namespace {

using Options = RankOptions;

Options options_of(std::int64_t ranks, const std::string& strategy, std::int64_t lanes,
                   std::int64_t group = 0) {
  Options options = testing::small_options(Architecture::enoki);
  options.batch.lanes = lanes;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = group;
  return options;
}

/// A second of forward and two of backward for every unit; the rest is free.
StepModelOptions unit_times(const Options& options) {
  StepModelOptions model;
  const auto units = options.model.layers.size() + 2;
  model.kernels.forward.assign(units, 1.0);
  model.kernels.backward.assign(units, 2.0);
  model.link.bytes_per_second = 1e30;
  return model;
}

double group_total(const Options& options) {
  const ExchangeSizes sizes(options);
  double bytes = 0.0;
  for (std::size_t group = 0; group < sizes.plan().groups().size(); ++group) {
    bytes += sizes.group_bytes(group);
  }
  return bytes;
}

std::vector<Options> every_strategy() {
  std::vector<Options> all;
  for (const std::int64_t ranks : {1, 2, 3, 4, 5}) {
    for (const char* sync : {"every_lane", "last_lane"}) {
      for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
        all.push_back(options_of(ranks, strategy, 9));
        all.back().parallel.sync = sync;
      }
      if (ranks == 4) {
        all.push_back(options_of(ranks, "hybrid", 9, 2));
        all.back().parallel.sync = sync;
        all.push_back(options_of(ranks, "full", 9));
        all.back().parallel.reshard = std::string("2");
        all.back().parallel.sync = sync;
      }
    }
  }
  return all;
}

double sum_of(const std::vector<StagedOp::Range>& ranges, std::int64_t except) {
  double sum = 0.0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    sum += static_cast<std::int64_t>(i) == except ? 0.0 : static_cast<double>(ranges[i].size_bytes);
  }
  return sum;
}

}  // namespace

TEST_CASE("exchange sizes: every rank sends and gets what its engine stages",
          "[engine][simulation]") {
  std::vector<Options> cases = every_strategy();
  for (Options options : every_strategy()) {
    options.optimizer.name = "muon";  // Ranks without a row of some matrix.
    cases.push_back(options);
  }
  for (Options options : cases) {
    const ExchangeSizes sizes(options);
    for (const CollectiveOp& op : expand(sizes.plan(), kTrainStep)) {
      double sent = 0.0;
      double received = 0.0;
      for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
        options.rank = rank;
        INFO(op.text(sizes.plan()) << " of " << options.parallel.strategy << ", rank " << rank);
        const ExchangeSizes::Bytes bytes = sizes.bytes(op, rank);
        sent += bytes.sent;
        received += bytes.received;
        if (op.kind == CollectiveKind::loss_and_norm) {
          continue;  // is not staged
        }
        const bool smaller =
            op.kind == CollectiveKind::gather &&
            sizes.schedule().gathers()[static_cast<std::size_t>(op.part)].from_smaller_group;
        const RankLayout layout(sizes.plan(), options);
        CHECK(bytes.received == sum_of(layout.staged(op, smaller).receive, rank));
        if (op.kind == CollectiveKind::reduce) {
          CHECK(bytes.sent == sum_of(layout.staged(op, smaller).send, rank));
        }
      }
      CHECK(sent == received);
    }
  }
}

TEST_CASE("step model: one rank takes the time of its kernels", "[engine][simulation]") {
  const Options options = options_of(1, "none", 5);
  StepModelOptions model = unit_times(options);
  model.kernels.add_per_byte = 1e-3;
  model.kernels.norm_per_byte = 2e-3;
  model.kernels.update_per_byte = 3e-3;
  model.kernels.once_per_step = 0.5;
  const ModelledStep step = model_step(options, model);
  // 5 lanes make one sum with 4 additions.
  const double kernels = 5 * 4 * 3.0 + (4e-3 + 2e-3 + 3e-3) * group_total(options) + 0.5;
  CHECK(step.step_seconds == Approx(kernels));
  CHECK(step.busy_seconds == Approx(kernels));
  CHECK(step.sent_bytes == 0.0);
}

TEST_CASE("step model: over a wire that costs nothing ranks only wait for the longest share",
          "[engine][simulation]") {
  for (const Options& options : every_strategy()) {
    INFO(options.parallel.strategy << " on " << options.parallel.ranks << " ranks, sync "
                                   << options.parallel.sync);
    const std::int64_t ranks = options.parallel.ranks;
    const auto most = static_cast<double>((9 + ranks - 1) / ranks);
    const ModelledStep step = model_step(options, unit_times(options));
    CHECK(step.step_seconds >= Approx(4 * 3.0 * most));
    CHECK(step.busy_seconds == Approx(4 * 3.0 * 9.0 / static_cast<double>(ranks)));
    // With one sync nobody waits within a step, but for the weights of others.
    if (options.parallel.strategy == "none" && options.parallel.sync == "last_lane") {
      CHECK(step.step_seconds == Approx(4 * 3.0 * most));
    }
  }
}

TEST_CASE("step model: a slow wire sets the time of a step, and gating saves most of it",
          "[engine][simulation]") {
  Options options = options_of(2, "none", 8);
  StepModelOptions model = unit_times(options);
  model.link.bytes_per_second = group_total(options) / 1000.0;  // kernels: 48 s
  options.parallel.sync = "last_lane";
  const ModelledStep last = model_step(options, model);
  // Half of the model each way for the reduction, the same for the sums that are sent on.
  CHECK(last.sent_bytes == Approx(group_total(options)).epsilon(0.1));
  // All bytes, and at most all kernels that no byte hides behind.
  const double bytes_last = last.sent_bytes / model.link.bytes_per_second;
  CHECK(last.step_seconds > bytes_last);
  CHECK(last.step_seconds < bytes_last + 48.0);
  options.parallel.sync = "every_lane";
  const ModelledStep every = model_step(options, model);
  const double bytes_every = every.sent_bytes / model.link.bytes_per_second;
  CHECK(bytes_every > 2.2 * bytes_last);  // 4 reductions and one spread instead of one each
  CHECK(every.step_seconds > bytes_every);
  CHECK(every.step_seconds < bytes_every + 48.0);
}

TEST_CASE("step model: gathers hide behind kernels as long as they are shorter",
          "[engine][simulation]") {
  Options options = options_of(2, "full", 8);
  options.parallel.gather_credits = 2;  // few weights stay for a later visit
  StepModelOptions model = unit_times(options);
  const auto gathers = static_cast<double>(ExchangeSizes(options).schedule().gathers().size());
  REQUIRE(gathers > 16.0);
  model.link.latency_seconds = 0.2;  // twice a gather; a unit computes for a second or two
  const ModelledStep hidden = model_step(options, model);
  CHECK(hidden.exposed_seconds > 0.4);  // the first gather of a step, and what follows the last
  CHECK(hidden.exposed_seconds < 0.4 * 0.4 * gathers);
  model.link.latency_seconds = 5.0;
  CHECK(model_step(options, model).step_seconds > 10.0 * gathers);
}

TEST_CASE("step model: cores that ranks share, and bytes that take their time, are counted",
          "[engine][simulation]") {
  const Options options = options_of(2, "none", 8);
  StepModelOptions model = unit_times(options);
  model.slowdown = 2.0;
  CHECK(model_step(options, model).step_seconds == Approx(2 * 4 * 4 * 3.0));
  model.slowdown = 1.0;
  model.link.bytes_per_second = group_total(options);
  const double plain = model_step(options, model).step_seconds;
  model.link.processor_per_byte = 1.0 / group_total(options);
  CHECK(model_step(options, model).step_seconds > plain);
}

}  // namespace train::engine::step_model_test
