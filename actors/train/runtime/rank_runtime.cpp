#include "actors/train/runtime/rank_runtime.hpp"
#include "run/memory/memory_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/host_state.hpp"
#include "engine/optimizer/exact_sum.hpp"
#include "engine/rank/state/state_rows.hpp"

namespace train::actors {

CollectiveBook::CollectiveBook(const engine::ShardPlan& plan, const engine::PassList& passes) {
  for (const engine::PassPlan& pass : passes.all()) {
    by_pass_.push_back(engine::expand(plan, pass));
  }
  by_pass_.emplace_back();
}

const std::vector<engine::CollectiveOp>& CollectiveBook::of(const Command& command) const {
  return command.kind == engine::CommandKind::pass
             ? by_pass_.at(static_cast<std::size_t>(command.pass))
             : by_pass_.back();
}

const engine::CollectiveOp* CollectiveBook::find(const engine::PassPlan& pass,
                                                 engine::CollectiveKind kind, std::int32_t group,
                                                 std::int32_t part) const {
  const auto& ops = by_pass_.at(static_cast<std::size_t>(pass.index));
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const engine::CollectiveOp& op) {
    return op.kind == kind && op.group == group && op.part == part;
  });
  return found == ops.end() ? nullptr : &*found;
}

RankRuntime::RankRuntime(std::unique_ptr<engine::RankEngine> rank_engine,
                         std::shared_ptr<const data::LaneSource> lane_source, StreamKind streams,
                         int threads)
    : rank(static_cast<std::int32_t>(rank_engine->options().rank)),
      engine(std::move(rank_engine)),
      collectives(engine->plan(), engine->rank_plan().passes()),
      data(std::move(lane_source)),
      compute(make_stream(engine->device(), streams, "compute", threads)),
      copy(make_stream(streams, "copy", 1)),
      input(make_stream(streams, "input", 1)),
      disk(streams == StreamKind::threads ? make_disk_stream() : make_stream(streams, "disk", 1)),
      background_io(streams == StreamKind::threads ? BackgroundIo::Thread::own
                                                   : BackgroundIo::Thread::callers),
      reduce(engine->plan().ranks() > 1 ? make_stream(engine->device(), streams, "reduce", 1)
                                        : nullptr) {}

void RankRuntime::start_trace() {
  trace = std::make_unique<RankTrace>(kTraceCapacity);
  waits.record(kTraceCapacity);
  for (kernels::Stream* stream :
       {compute.get(), copy.get(), input.get(), disk.get(), reduce.get()}) {
    if (stream != nullptr) {
      stream->start_trace(kTraceCapacity);
    }
  }
}

engine::CommandName RankRuntime::name_of(const Command& command) const {
  switch (command.kind) {
    case engine::CommandKind::pass:
      return pass_of(command).name;
    case engine::CommandKind::snapshot:
      return engine::kSnapshotName;
    case engine::CommandKind::stop:
      break;
  }
  return engine::kStopName;
}

std::int64_t RankRuntime::step_index(const Command& command) const {
  if (command.kind == engine::CommandKind::stop) {
    return -1;
  }
  const bool of_step = command.kind == engine::CommandKind::pass && !pass_of(command).after_step();
  return command.step - (of_step ? 0 : 1);
}

void RankRuntime::trace_begin(const Command& command) const {
  if (!trace) {
    return;
  }
  const bool passes = command.kind == engine::CommandKind::pass;
  const auto others = static_cast<std::int32_t>(engine->rank_plan().passes().all().size());
  const CommandRecord record{.name = passes                                          ? command.pass
                                     : command.kind == engine::CommandKind::snapshot ? others
                                                                                     : others + 1,
                             .command = command.sequence,
                             .step = passes && pass_of(command).reduces() ? command.step : -1};
  compute->notify([to = trace.get(), record] {
    CommandRecord begun = record;
    begun.begin_ns = steady_now_ns();
    to->begin_command(begun);
  });
}

void RankRuntime::trace_end() const {
  if (trace) {
    compute->notify([to = trace.get()] { to->end_command(steady_now_ns()); });
  }
}

Status RankRuntime::read_lane(const engine::LaneWork& work) const {
  const engine::LaneSlot slot = engine->lanes().slot(work.slot);
  if (work.pass.rows == engine::LaneRows::texts) {
    texts.read(work.lane, slot);
    return {};
  }
  return data->read(work, slot);
}

std::string RankRuntime::describe(const kernels::Mark& mark) const {
  std::string text = mark.what;
  if (mark.unit >= 0 && static_cast<std::size_t>(mark.unit) < engine->unit_count()) {
    text = fmt::format("{} ({})", engine->unit_name(static_cast<std::size_t>(mark.unit)), text);
  }
  if (mark.step >= 0) {
    text += fmt::format(" of step {}", mark.step + 1);
  }
  if (mark.lane >= 0) {
    text += fmt::format(", lane {}", mark.lane);
  }
  return text;
}

std::string RankRuntime::describe(const CommandProgress& command) {
  const std::string name(command.name.report);
  return command.step < 0 ? name : fmt::format("{} {}", name, command.step + 1);
}

std::string RankRuntime::describe(const ChannelProgress& place) const {
  const engine::CollectiveOp& op = place.op;
  const std::string channel = engine::channel_name(op.channel);
  const std::string kind = engine::collective_name(op.kind);
  std::string of = kind;
  if (op.group >= 0) {
    const std::string& group = engine->plan().groups()[static_cast<std::size_t>(op.group)].name;
    of = kind == channel ? group : fmt::format("{} of {}", kind, group);
  }
  return fmt::format("{} #{} of {} ({})", channel, op.index, describe(place.command), of);
}

const engine::LaneSchedule& RankRuntime::lanes(const engine::PassPlan& pass) const {
  return engine->plan().lanes_of(pass);
}

engine::CollectiveIdentity RankRuntime::identity(const engine::CollectiveOp& op,
                                                 std::uint64_t sequence) const {
  return {.generation = generation,
          .command = static_cast<std::int64_t>(sequence),
          .channel = op.channel,
          .index = op.index,
          .hash = op.hash};
}

std::vector<std::uint64_t> bits_of(const std::vector<double>& values) {
  std::vector<std::uint64_t> bits;
  bits.reserve(values.size());
  for (const double value : values) {
    bits.push_back(FloatBits(value).bits);
  }
  return bits;
}

StepFinished step_event(RankRuntime& rank, std::int64_t step, bool with_digest) {
  const engine::RankEngine& engine = *rank.engine;
  const engine::StepResult result = engine.step_result(step);
  StepFinished event{.step = step + 1,
                     .rank = static_cast<std::int32_t>(engine.options().rank),
                     .loss = FloatBits(result.loss),
                     .grad_norm = FloatBits(result.grad_norm),
                     .lr = FloatBits(result.lr),
                     .nonfinite = result.nonfinite,
                     .has_digest = with_digest,
                     .unit_grad_norms = {},
                     .optimizer_sums = engine::words_of(result.optimizer_sums),
                     .objective_metrics = {}};
  event.unit_grad_norms = bits_of(result.unit_grad_norms);
  event.objective_metrics = bits_of(result.metrics);
  if (with_digest) {
    const auto names = engine::tensor_names(engine.state().views());
    event.tensor_digests = engine.state().tensor_digests(names);
    event.weights_digest = engine::weights_digest(event.tensor_digests, names);
  }
  event.trained_ns = rank.clock.end_step();
  return event;
}

EvaluationFinished evaluation_event(RankRuntime& rank, std::int64_t step) {
  const engine::EvaluationResult result = rank.engine->totals().lanes().evaluation_result();
  EvaluationFinished event{.step = step,
                           .rank = rank.rank,
                           .cross_entropy = FloatBits(result.cross_entropy),
                           .accuracy = FloatBits(result.accuracy),
                           .elapsed_ns = rank.clock.set_apart(),
                           .objective_metrics = bits_of(result.metrics)};
  return event;
}

EvaluationFinished choices_event(RankRuntime& rank, std::int64_t step) {
  EvaluationFinished event{.step = step,
                           .rank = rank.rank,
                           .of_choices = true,
                           .cross_entropy = {},
                           .accuracy = {},
                           .elapsed_ns = rank.clock.set_apart()};
  const auto lanes = rank.lanes(engine::kScoring).lanes_of(rank.rank);
  if (lanes.empty()) {
    return event;
  }
  const auto documents = rank.data->facts().choices->documents_of(lanes.front(), lanes.back() + 1);
  const std::vector<double>& sums = rank.engine->scores().sums();
  TRAIN_CHECK(sums.size() == documents.count, "{} documents of {}", sums.size(), documents.count);
  event.first_document = static_cast<std::int64_t>(documents.first);
  event.log_likelihoods = bits_of(sums);
  return event;
}

TokensSampled tokens_event(RankRuntime& rank, std::int64_t step) {
  const auto lanes = rank.lanes(engine::kSampling).lanes_of(rank.rank);
  TokensSampled event{.step = step, .rank = rank.rank};
  event.elapsed_ns = rank.clock.set_apart();
  if (!lanes.empty()) {
    event.first_text = lanes.front();
    event.tokens = rank.engine->sampled().tokens();
    TRAIN_CHECK(event.tokens.size() == lanes.size(), "{} tokens of {} texts", event.tokens.size(),
                lanes.size());
  }
  return event;
}

NonfiniteFound nonfinite_event(const RankRuntime& rank, const Command& command) {
  const engine::NonfiniteOrigin origin = rank.engine->totals().nonfinite_counts().origin();
  NonfiniteFound event{.step = command.step + 1,
                       .rank = rank.rank,
                       .found = origin.found,
                       .text = "in no layer's output or gradient (only in their sums)"};
  if (origin.found) {
    const bool several = rank.engine->rank_plan().objective().several_passes();
    event.text =
        fmt::format("in {} ({}), lane {} of rank {}{}", rank.engine->unit_name(origin.unit),
                    origin.backward ? "backward" : "forward", origin.lane,
                    rank.engine->plan().train_lanes().rank_of(origin.lane),
                    several ? ", " + engine::pass_name(rank.pass_of(command).number) : "");
  }
  return event;
}

void save_memory_snapshot(const RankRuntime& rank, std::int64_t step, kernels::Event& copied) {
  const MemoryKeeping& memory = rank.memory;
  if (memory.snapshots == nullptr || memory.interval == 0 || step == 0 ||
      step % memory.interval != 0) {
    return;
  }
  // The non-finite flag belongs to the compute stream, and is read there in order.
  const auto nonfinite = std::make_shared<bool>(false);
  rank.compute->enqueue(
      [nonfinite, engine = rank.engine.get()] { *nonfinite = engine->totals().nonfinite(); });
  kernels::Event::record(*rank.compute).wait_on(*rank.copy);
  rank.copy->mark({.what = "copy to memory", .step = step - 1, .unit = -1, .lane = -1});
  rank.copy->enqueue(
      [nonfinite, step, number = rank.rank, snapshots = memory.snapshots, rows = memory.rows] {
        if (!*nonfinite) {
          run::write_to_memory(*rows, number, step, *snapshots);
        }
      });
  copied = kernels::Event::record(*rank.copy);
}

}  // namespace train::actors
