#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages/event_messages.hpp"
#include "actors/run/training_system.hpp"
#include "engine/unit_state.hpp"
#include "kernels/backend.hpp"
#include "tests/support/actor_world.hpp"
#include "tests/support/manual_stream.hpp"
#include "tests/support/plain_run.hpp"
#include "tests/support/temp_directory.hpp"

namespace train::test {

/// Checkpoints in memory, which fail when told to.
struct MemoryCheckpoints {
  std::map<std::int64_t, std::uint64_t> written;  ///< Step -> digest of the weights in it.
  std::vector<std::int64_t> recorded;
  std::set<std::int64_t> fail_write;
  std::set<std::int64_t> fail_record;

  Result<actors::WrittenCheckpoint> write(std::int64_t step,
                                          std::span<const engine::StateView> state) {
    if (fail_write.contains(step)) {
      return failure("disk full");
    }
    written[step] = engine::weights_digest(state);
    return actors::WrittenCheckpoint{.directory = std::to_string(step), .size_bytes = 1};
  }
  Status record(std::int64_t step) {
    if (fail_record.contains(step)) {
      return failure("index full");
    }
    recorded.push_back(step);
    return {};
  }
};

/// All actors of a run, its streams and its checkpoints, driven by the test.
class TrainingRun {
 public:
  explicit TrainingRun(const RunSetup& setup) : setup_(setup) {
    write_tokens(directory_.path(), setup);
    context_ = std::make_shared<actors::RankRuntime>(
        std::make_unique<engine::RankEngine>(kernels::cpu_backend(), engine_options(setup)),
        open_tokens(directory_.path()), setup.seed, actors::StreamKind::inline_, 1);
    if (setup.manual_streams) {
      const auto clock = std::make_shared<std::uint64_t>(0);
      for (auto* stream :
           {&context_->compute, &context_->copy, &context_->input, &context_->disk}) {
        auto manual = std::make_unique<ManualStream>(clock);
        manual_.push_back(manual.get());
        *stream = std::move(manual);
      }
    }
    world_.observe([this](std::string_view actor, const caf::type_erased_tuple& message) {
      if (actor == "conductor") {
        keep_event(message);
      }
    });
  }
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun() { actors::stop_training(actors_); }

  ActorWorld& world() { return world_; }
  actors::RankRuntime& runtime() { return *context_; }
  const actors::RankContext& context() { return context_; }
  const std::filesystem::path& directory() const { return directory_.path(); }
  // Of a run with manual streams.
  ManualStream& compute() { return *manual_.at(0); }
  ManualStream& copy() { return *manual_.at(1); }
  ManualStream& input() { return *manual_.at(2); }
  ManualStream& disk() { return *manual_.at(3); }

  /// Spawns and wires the actors; nothing has run on return.
  void start() {
    auto report = actors::RunReport::open({.directory = directory_.path(),
                                           .total_steps = setup_.steps,
                                           .tokens_per_step = context_->engine->tokens_per_step(),
                                           .tensorboard = false});
    REQUIRE(report.ok());
    waiter_ = std::make_unique<Recorder>(world_.system());
    actors_ = actors::start_training(
        world_.system(),
        {.context = context_,
         .report = std::move(report).value(),
         .report_stream = actors::StreamKind::inline_,
         .write = [this](std::int64_t step, auto state) { return checkpoints.write(step, state); },
         .record = [this](std::int64_t step) { return checkpoints.record(step); },
         .program = {.total_steps = setup_.steps,
                     .eval_interval = setup_.eval_interval,
                     .checkpoint_interval = setup_.checkpoint_interval}},
        waiter_->actor());
    for (const caf::actor& actor : actors_.all) {
      world_.keep(actor);
    }
  }

  /// One message of an actor or one piece of stream work, chosen by `random`. False: nothing to do.
  bool step(Random& random) {
    std::vector<ManualStream*> streams;
    for (ManualStream* stream : manual_) {
      if (may_run(*stream)) {
        streams.push_back(stream);
      }
    }
    const std::size_t choices = world_.runnable() + streams.size();
    if (choices == 0) {
      return false;
    }
    const std::size_t choice = random() % choices;
    if (choice < world_.runnable()) {
      world_.run_one(choice);
    } else {
      streams[choice - world_.runnable()]->run_next();
    }
    return true;
  }
  /// Until nothing is left to do but what is held back.
  void run(Random& random) {
    while (step(random)) {
    }
  }
  void run() {
    Random random(1);
    run(random);
  }

  /// The one RunFinished of a run that is over.
  actors::RunFinished finished() {
    const auto all = waiter_->all<actors::RunFinished>();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  [[nodiscard]] bool over() const { return waiter_->count<actors::RunFinished>() > 0; }
  void request_stop() { caf::anon_send(actors_.conductor, actors::StopRequested{15}); }

  /// The `index`-th actor of that name, in the order of spawning.
  caf::actor part(std::string_view name, std::size_t index = 0) {
    for (const caf::actor& actor : actors_.all) {
      const auto* local =
          dynamic_cast<caf::local_actor*>(caf::actor_cast<caf::abstract_actor*>(actor));
      if (local != nullptr && local->name() == name && index-- == 0) {
        return actor;
      }
    }
    FAIL("no actor " << name);
    return {};
  }

  MemoryCheckpoints checkpoints;
  // What reached the conductor.
  std::vector<actors::StepFinished> steps;
  std::vector<actors::EvaluationFinished> evaluations;
  std::vector<std::int64_t> saved, skipped, save_failed;

 private:
  // Work that waits for an event would block the one thread there is. On these two streams it only
  // runs in the order of enqueuing; all other work of the compute stream may overtake the copies.
  bool may_run(const ManualStream& stream) const {
    if (stream.pending() == 0 || stream.held) {
      return false;
    }
    const ManualStream& compute = *manual_[0];
    const ManualStream& copy = *manual_[1];
    if (&stream == &copy) {
      return compute.pending() == 0 || compute.next_ticket() > copy.next_ticket();
    }
    const bool may_wait = &stream == &compute && compute.next_is("optimizer update");
    return !may_wait || copy.pending() == 0 || copy.next_ticket() > compute.next_ticket();
  }

  void keep_event(const caf::type_erased_tuple& message) {
    if (message.match_elements<actors::StepFinished>()) {
      steps.push_back(message.get_as<actors::StepFinished>(0));
    } else if (message.match_elements<actors::EvaluationFinished>()) {
      evaluations.push_back(message.get_as<actors::EvaluationFinished>(0));
    } else if (message.match_elements<actors::CheckpointWritten>()) {
      saved.push_back(message.get_as<actors::CheckpointWritten>(0).step);
    } else if (message.match_elements<actors::CheckpointSkipped>()) {
      skipped.push_back(message.get_as<actors::CheckpointSkipped>(0).step);
    } else if (message.match_elements<actors::CheckpointFailed>()) {
      save_failed.push_back(message.get_as<actors::CheckpointFailed>(0).step);
    }
  }

  RunSetup setup_;
  TempDirectory directory_;
  std::vector<ManualStream*> manual_;
  actors::RankContext context_;
  ActorWorld world_;
  std::unique_ptr<Recorder> waiter_;
  actors::TrainingActors actors_;
};

/// Steps, evaluations, weights and checkpoints are the plain loop's, bit for bit.
inline void require_same(const TrainingRun& run, const PlainRun& plain) {
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const actors::StepFinished& step = run.steps[i];
    REQUIRE(step.step == static_cast<std::int64_t>(i) + 1);
    REQUIRE(step.loss.bits == actors::FloatBits(plain.steps.at(i).loss).bits);
    REQUIRE(step.grad_norm.bits == actors::FloatBits(plain.steps.at(i).grad_norm).bits);
    REQUIRE(step.lr.bits == actors::FloatBits(plain.steps.at(i).lr).bits);
    REQUIRE_FALSE(step.poisoned);
    REQUIRE((!step.has_digest || step.weights_digest == plain.digests.at(i + 1)));
  }
  for (const actors::EvaluationFinished& evaluation : run.evaluations) {
    const engine::EvaluationResult& expected = plain.evaluations.at(evaluation.step);
    REQUIRE(evaluation.cross_entropy.bits == actors::FloatBits(expected.cross_entropy).bits);
    REQUIRE(evaluation.accuracy.bits == actors::FloatBits(expected.accuracy).bits);
  }
  for (const auto& [step, digest] : run.checkpoints.written) {
    REQUIRE(digest == plain.digests.at(static_cast<std::size_t>(step)));
  }
}

}  // namespace train::test
