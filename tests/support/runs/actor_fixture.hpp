#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/training_system.hpp"
#include "tests/support/checkpoints/memory_checkpoints.hpp"
#include "tests/support/devices/manual_stream.hpp"
#include "tests/support/devices/rank_streams.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/runs/actor_world.hpp"
#include "tests/support/runs/joined_ranks.hpp"
#include "tests/support/runs/plain_run.hpp"
#include "tests/support/runs/run_events.hpp"

namespace train::test {

/// All actors of a run with its streams and checkpoints, driven by the test.
class TrainingRun : public RunEvents {
 public:
  explicit TrainingRun(const RunSetup& setup) : setup_(setup) {
    write_tokens(directory_.path(), setup);
    contexts_ = make_ranks(setup, directory_.path(), actors::StreamKind::inline_, 1);
    if (setup.manual_streams) {
      use_manual_streams();
    } else {
      publish_ = kernels::make_inline_stream(1);
    }
    expect_ranks(contexts_.size());
    world_.observe([this](std::string_view actor, const caf::type_erased_tuple& message) {
      if (actor == "conductor") {
        keep(message);
      } else if (actor == "reporter" && message.match_elements<actors::CheckpointSkipped>()) {
        skipped.push_back(message.get_as<actors::CheckpointSkipped>(0).step);
      } else if (actor == "reporter" && message.match_elements<actors::TextsSampled>()) {
        texts.push_back(message.get_as<actors::TextsSampled>(0));
      }
    });
  }
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun() {
    for (const actors::RankContext& context : contexts_) {
      for (const auto& transport : context->transports) {
        if (transport) {
          transport->cancel("the test is over");
        }
      }
    }
    actors::stop_training(actors_);
  }

  ActorWorld& world() { return world_; }
  std::size_t ranks() const { return contexts_.size(); }
  actors::RankRuntime& runtime(std::size_t rank = 0) { return *contexts_.at(rank); }
  const actors::RankContext& context(std::size_t rank = 0) { return contexts_.at(rank); }
  const std::filesystem::path& directory() const { return directory_.path(); }
  // REQUIRES: manual streams.
  ManualStream& compute(std::size_t rank = 0) { return *manual_.at(4 * rank); }
  ManualStream& copy(std::size_t rank = 0) { return *manual_.at(4 * rank + 1); }
  ManualStream& input(std::size_t rank = 0) { return *manual_.at(4 * rank + 2); }
  ManualStream& disk(std::size_t rank = 0) { return *manual_.at(4 * rank + 3); }
  ManualStream& publish() { return *manual_.back(); }
  const std::shared_ptr<kernels::Stream>& publish_stream() { return publish_; }
  /// Four streams per rank, then the stream that publishes checkpoints.
  const std::vector<ManualStream*>& manual() { return manual_; }

  /// Digest of all weights.
  std::uint64_t digest() const {
    std::uint64_t sum = 0;
    for (const actors::RankContext& context : contexts_) {
      sum += context->engine->state().digest();
    }
    return sum;
  }

  /// Spawns and wires the actors; no work has run on return.
  void start() {
    auto report =
        run::RunReport::open({.directory = directory_.path(),
                              .total_steps = setup_.steps,
                              .tokens_per_step = runtime().engine->rank_plan().tokens_per_step(),
                              .data = runtime().data,
                              .tensorboard = false});
    REQUIRE(report.ok());
    waiter_ = std::make_unique<Recorder>(world_.system());
    std::vector<actors::RankParts> ranks;
    for (const actors::RankContext& context : contexts_) {
      ranks.push_back({.context = context,
                       .shards = checkpoints.shard_work(context->rank),
                       .reporting = {.digest_interval = setup_.digest_interval},
                       .actors = rank_actors});
    }
    actors_ =
        actors::start_training(world_.system(), ranks,
                               {.report = std::move(report).value(),
                                .report_stream = actors::StreamKind::inline_,
                                .disk = publish_,
                                .index = checkpoints.index_work(),
                                .program = {.total_steps = setup_.steps,
                                            .eval_interval = setup_.eval_interval,
                                            .choices_interval = setup_.choices_interval,
                                            .samples_interval = setup_.samples_interval,
                                            .sampling = sampling_of(setup_),
                                            .checkpoint_interval = setup_.checkpoint_interval},
                                .waits = waits,
                                .actors = run_actors},
                               waiter_->actor());
    for (const caf::actor& actor : actors_.all) {
      world_.keep(actor);
    }
  }

  /// Runs one message of an actor or one work item on a stream of any rank, selected by `random`.
  /// False: no work is left.
  bool step(Random& random) {
    std::vector<ManualStream*> streams;
    for (const RankStreams& rank : streams_) {
      rank.add_runnable(streams);
    }
    if (!manual_.empty() && publish().pending() > 0 && !publish().held) {
      streams.push_back(&publish());
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
  /// Runs until only held work is left.
  void run(Random& random) {
    while (step(random)) {
    }
  }
  void run() {
    Random random(1);
    run(random);
  }

  /// Returns the single RunFinished of a finished run.
  actors::RunFinished finished() {
    const auto all = waiter_->all<actors::RunFinished>();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  [[nodiscard]] bool over() const { return waiter_->count<actors::RunFinished>() > 0; }
  /// Stops the actors as at the end of a run.
  void stop() { actors::stop_training(actors_); }
  void request_stop() { caf::anon_send(actors_.conductor, actors::StopRequested{15}); }

  /// Returns the `index`-th actor of that name, in the order of spawning.
  caf::actor part(std::string_view name, std::size_t index = 0) {
    for (const caf::actor& actor : actors_.all) {
      if (name_of(actor) == name && index-- == 0) {
        return actor;
      }
    }
    FAIL("no actor " << name);
    return {};
  }
  /// Returns the `index`-th actor of that name among those of `rank`.
  caf::actor part_of(std::size_t rank, std::string_view name, std::size_t index = 0) {
    const auto of_all = static_cast<std::size_t>(
        std::count_if(actors_.all.begin(), actors_.all.end(),
                      [&](const caf::actor& actor) { return name_of(actor) == name; }));
    return part(name, rank * of_all / ranks() + index);
  }
  /// Lists every actor, by its name and its index among those of the name.
  std::vector<std::pair<std::string, std::size_t>> parts() const {
    std::vector<std::pair<std::string, std::size_t>> found;
    std::map<std::string, std::size_t> of_name;
    for (const caf::actor& actor : actors_.all) {
      const std::string name = name_of(actor);
      found.emplace_back(name, of_name[name]++);
    }
    return found;
  }

  MemoryCheckpoints checkpoints;
  std::shared_ptr<actors::WaitTable> waits =
      std::make_shared<actors::WaitTable>();  ///< Wait table of the head.
  /// Actors of the registries; actors added before start() are spawned, too.
  std::vector<actors::AddToRank> rank_actors = all_of(actors::registered_rank_actors());
  std::vector<actors::AddToRun> run_actors = all_of(actors::registered_run_actors());

 private:
  template <class Add>
  static std::vector<Add> all_of(std::span<const Add> registered) {
    return {registered.begin(), registered.end()};
  }
  static std::string name_of(const caf::actor& actor) {
    const auto* local =
        dynamic_cast<caf::local_actor*>(caf::actor_cast<caf::abstract_actor*>(actor));
    return local == nullptr ? "" : local->name();
  }
  void use_manual_streams() {
    const auto clock = std::make_shared<std::uint64_t>(0);
    for (const actors::RankContext& context : contexts_) {
      const RankStreams& rank = streams_.emplace_back(RankStreams::install(*context, clock));
      manual_.insert(manual_.end(), {rank.compute, rank.copy, rank.input, rank.disk});
    }
    auto manual = std::make_shared<ManualStream>(clock);
    manual_.push_back(manual.get());
    publish_ = std::move(manual);
  }

  RunSetup setup_;
  TempDirectory directory_;
  std::vector<ManualStream*> manual_;
  std::vector<RankStreams> streams_;  // By rank.
  std::shared_ptr<kernels::Stream> publish_;
  std::vector<actors::RankContext> contexts_;
  ActorWorld world_;
  std::unique_ptr<Recorder> waiter_;
  actors::TrainingActors actors_;
};

}  // namespace train::test
