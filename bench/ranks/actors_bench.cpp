// Cost of the actors: the quickstart model trained by the actors against the same steps in a plain
// loop, messages per training step, and the time of one message hop while the run computes. Usage:
// actors_bench [rounds].
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/messages/event_messages.hpp"
#include "actors/training_system.hpp"
#include "bench/data/synthetic_tokens.hpp"
#include "configs/load_config.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/plan/run_plan.hpp"
#include "tests/support/runs/world_step.hpp"

namespace {

using namespace train;
using bench::write_tokens;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 16;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(q * last + 0.5)];
}

struct Workplace {
  fs::path directory = fs::temp_directory_path() / fmt::format("actors_bench_{}", getpid());
  configs::RunConfig config;

  explicit Workplace(std::int64_t steps) {
    fs::create_directories(directory / "run");
    write_tokens(directory / "train.bin", 400'000);
    write_tokens(directory / "val.bin", 20'000);
    const std::vector<std::string> overrides = {
        fmt::format("data.dir=\"{}\"", directory.string()), fmt::format("run.steps={}", steps),
        "schedule.warmup_steps=1", "eval.interval_steps=0", "model.vocab_size=320"};
    config =
        configs::load_config(ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml", overrides).value();
  }
  ~Workplace() { fs::remove_all(directory); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
};

actors::RankContext make_context(const configs::RunConfig& config, actors::StreamKind streams) {
  run::RunPlan plan = run::plan_run(config).value();
  auto engine = engine::make_rank_engine("cpu", plan.engine).value();
  return std::make_shared<actors::RankRuntime>(std::move(engine), plan.data, streams,
                                               run::resolve_threads(config.runtime.threads));
}

actors::TrainingActors start(caf::actor_system& system, const Workplace& place,
                             const actors::RankContext& context, actors::StreamKind streams,
                             const std::shared_ptr<actors::WaitTable>& waits,
                             const caf::actor& waiter) {
  fs::remove(place.directory / "run" / "metrics.jsonl");
  auto report =
      run::RunReport::open({.directory = place.directory / "run",
                            .total_steps = place.config.run.steps,
                            .tokens_per_step = context->engine->rank_plan().tokens_per_step(),
                            .tensorboard = false})
          .value();
  const actors::RankParts rank{
      .context = context,
      .shards = {.write = [](std::int64_t, std::span<const engine::StateView>)
                     -> Result<std::string> { return std::string(); }}};
  actors::HeadParts head;
  head.report = std::move(report);
  head.report_stream = streams;
  head.disk = std::shared_ptr<kernels::Stream>(context, context->disk.get());
  head.index = {.set_state = [](std::int64_t, checkpoint::CheckpointState) { return Status(); },
                .seal = {},
                .publish = [](std::int64_t, const std::vector<actors::ShardWritten>&)
                    -> Result<run::WrittenCheckpoint> { return run::WrittenCheckpoint{}; },
                .record = [](std::int64_t) { return Status(); },
                .discard = [](std::int64_t, bool) { return Status(); },
                .make_room = [](std::int64_t) { return std::int64_t{0}; },
                .journal = [](std::span<const checkpoint::StepRecord>) { return Status(); },
                .evaluated = [](std::int64_t, double) { return Status(); },
                .event = [](std::string_view, std::string_view) { return Status(); }};
  head.program = {.total_steps = place.config.run.steps};
  head.waits = waits;
  return actors::start_training(system, {rank}, head, waiter);
}

struct Hops {
  std::vector<double> between_actors;  ///< Half a round trip.
  std::vector<double> from_thread;     ///< From another thread's send to the handler.
};

std::int64_t now_ns() { return Clock::now().time_since_epoch().count(); }

/// Probe beside the run: once a millisecond a thread wakes an actor, which asks another one.
Hops measure_hops(caf::actor_system& system, const std::atomic<bool>& stop) {
  Hops hops;
  const auto echo = system.spawn([](caf::event_based_actor*) -> caf::behavior {
    return {[](std::int64_t sent_ns) { return sent_ns; }};
  });
  const auto probe = system.spawn([&hops, echo](caf::event_based_actor* self) -> caf::behavior {
    return {[&hops, echo, self](std::int64_t sent_ns) {
      const std::int64_t begin_ns = now_ns();
      hops.from_thread.push_back(static_cast<double>(begin_ns - sent_ns) * 1e-9);
      self->request(echo, caf::infinite, std::int64_t{0}).then([&hops, begin_ns](std::int64_t) {
        hops.between_actors.push_back(static_cast<double>(now_ns() - begin_ns) * 0.5e-9);
      });
    }};
  });
  while (!stop) {
    caf::anon_send(probe, now_ns());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  caf::anon_send_exit(probe, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(echo, caf::exit_reason::user_shutdown);
  system.await_all_actors_done();  // From here on `hops` is no longer written.
  return hops;
}

void print_hops(const char* what, const std::vector<double>& hops) {
  fmt::print("{:<46} {:>10.1f}   (median {:.1f}, max {:.1f}; {} hops; target <= 50)\n", what,
             quantile(hops, 0.99) * 1e6, quantile(hops, 0.5) * 1e6, quantile(hops, 1.0) * 1e6,
             hops.size());
}

struct ActorRun {
  double seconds = 0.0;
  std::uint64_t digest = 0;
  Hops hops;
};

ActorRun run_actors(const Workplace& place, bool with_hops) {
  const auto context = make_context(place.config, actors::StreamKind::threads);
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{1});
  caf::actor_system system(config);
  const auto waits = std::make_shared<actors::WaitTable>();
  ActorRun result;
  std::atomic<bool> stop{false};
  std::thread prober;
  {
    caf::scoped_actor self(system);
    const auto begin = Clock::now();
    auto training = start(system, place, context, actors::StreamKind::threads, waits,
                          caf::actor_cast<caf::actor>(self));
    if (with_hops) {
      prober = std::thread([&] { result.hops = measure_hops(system, stop); });
    }
    self->receive([&](const actors::RunFinished& finished) {
      TRAIN_CHECK(finished.exit_code == 0, "{}", finished.text);
    });
    result.seconds = seconds_since(begin);
    stop = true;
    actors::stop_training(training);
  }
  if (prober.joinable()) {
    prober.join();
  }
  system.await_all_actors_done();
  result.digest = context->engine->state().digest();
  return result;
}

ActorRun run_plain_loop(const Workplace& place) {
  const auto context = make_context(place.config, actors::StreamKind::threads);
  const auto plan = run::plan_run(place.config).value();
  engine::WorldStep loop(engine::kernels_of("cpu", "fp32"), plan.engine);
  const auto& options = plan.engine;
  const auto count = static_cast<std::size_t>(options.batch.micro_batch * options.seq_len);
  const auto read = [&](std::int64_t step, std::int64_t lane, std::int32_t* tokens,
                        std::int32_t* targets) {
    const engine::LaneSlot slot{.tokens = std::span(tokens, count),
                                .targets = std::span(targets, count),
                                .positions = {},
                                .weights = {}};
    TRAIN_CHECK(context->data->read({.step = step, .lane = lane}, slot).ok());
  };
  const auto begin = Clock::now();
  for (std::int64_t step = 0; step < place.config.run.steps; ++step) {
    (void)loop.run(*context->compute, step, read);
  }
  return {.seconds = seconds_since(begin), .digest = loop.digest(), .hops = {}};
}

/// Messages handled by all actors per training step, counted on the deterministic scheduler.
double messages_per_step(std::int64_t steps) {
  const auto handled = [](std::int64_t count) {
    const Workplace place(count);
    const auto context = make_context(place.config, actors::StreamKind::inline_);
    caf::actor_system_config config;
    config.set("scheduler.policy", caf::atom("testing"));
    config.set("scheduler.max-threads", std::size_t{1});
    caf::actor_system system(config);
    auto& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
    caf::scoped_actor waiter(system);
    const auto waits = std::make_shared<actors::WaitTable>();
    auto training = start(system, place, context, actors::StreamKind::inline_, waits,
                          caf::actor_cast<caf::actor>(waiter));
    std::size_t messages = 0;
    while (waiter->mailbox().empty() && scheduler.try_run_once()) {
      ++messages;
    }
    actors::stop_training(training);
    scheduler.run();
    return messages;
  };
  // The difference between two run lengths excludes start and end.
  return static_cast<double>(handled(steps + 2) - handled(2)) / static_cast<double>(steps);
}

}  // namespace

int main(int argc, char* argv[]) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const Workplace place(kSteps);
  const int threads = run::resolve_threads(0);
  fmt::print("quickstart model, {} steps a run, {} threads, {} rounds, alternating\n\n", kSteps,
             threads, rounds);
  std::vector<double> ratios;
  std::vector<double> plain_ms;
  std::vector<double> actor_ms;
  bool same_bits = true;
  for (int round = 0; round < rounds; ++round) {
    const bool actors_first = round % 2 == 1;
    ActorRun actor = actors_first ? run_actors(place, false) : ActorRun{};
    const ActorRun plain = run_plain_loop(place);
    if (!actors_first) {
      actor = run_actors(place, false);
    }
    same_bits = same_bits && plain.digest == actor.digest;
    plain_ms.push_back(plain.seconds * 1e3 / kSteps);
    actor_ms.push_back(actor.seconds * 1e3 / kSteps);
    ratios.push_back(actor.seconds / plain.seconds);
  }
  const auto hops = run_actors(place, true).hops;
  fmt::print("{:<46} {:>10.2f}   (min {:.2f}, max {:.2f})\n", "plain loop, ms a step",
             quantile(plain_ms, 0.5), quantile(plain_ms, 0.0), quantile(plain_ms, 1.0));
  fmt::print("{:<46} {:>10.2f}   (min {:.2f}, max {:.2f})\n", "actors, ms a step",
             quantile(actor_ms, 0.5), quantile(actor_ms, 0.0), quantile(actor_ms, 1.0));
  fmt::print("{:<46} {:>10.4f}   (min {:.4f}, max {:.4f}; target <= 1.01)\n",
             "actors / plain loop, median of paired ratios", quantile(ratios, 0.5),
             quantile(ratios, 0.0), quantile(ratios, 1.0));
  fmt::print("{:<46} {:>10}\n", "weights after the run", same_bits ? "same bits" : "DIFFERENT");
  fmt::print("{:<46} {:>10.1f}\n", "messages per training step", messages_per_step(4));
  print_hops("one hop between actors beside the run, us, p99", hops.between_actors);
  print_hops("one hop from a thread to an actor, us, p99", hops.from_thread);
  return same_bits ? 0 : 1;
}
