#include "tests/support/runs/world_step.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace train::engine {
namespace {

/// Runs one pass of all ranks, in program order.
class Loop {
 public:
  Loop(std::vector<std::unique_ptr<RankEngine>>& ranks, kernels::Stream& stream,
       const PassPlan& pass)
      : ranks_(&ranks),
        stream_(&stream),
        plan_(&ranks.front()->plan()),
        pass_(pass),
        ops_(expand(*plan_, pass)) {}

  /// Runs all lanes: forward, and in training backward and the reductions.
  void run_lanes(std::int64_t step, const WorldStep::FillLane& fill_lane);
  /// Lanes of texts have theirs from there.
  void texts(const TextLanes& texts) { texts_ = &texts; }
  /// Runs the collective of this kind on every rank, if the command has one.
  void exchange(CollectiveKind kind, std::int64_t group = -1, std::int64_t part = -1);

 private:
  void visit(std::size_t index, std::int64_t step);
  void read_round(std::int64_t round, std::int64_t step, const WorldStep::FillLane& fill_lane);
  [[nodiscard]] const LaneSchedule& lanes() const { return plan_->lanes_of(pass_); }
  [[nodiscard]] std::int32_t slot(std::int64_t round) const {
    return static_cast<std::int32_t>(round % ranks_->front()->options().lane_slots);
  }

  std::vector<std::unique_ptr<RankEngine>>* ranks_;
  kernels::Stream* stream_;
  const ShardPlan* plan_;
  PassPlan pass_;
  std::vector<CollectiveOp> ops_;
  const TextLanes* texts_ = nullptr;
};

void Loop::exchange(CollectiveKind kind, std::int64_t group, std::int64_t part) {
  const auto op = std::find_if(ops_.begin(), ops_.end(), [&](const CollectiveOp& each) {
    return each.kind == kind && each.group == group && each.part == part;
  });
  if (op == ops_.end()) {
    return;
  }
  std::vector<Transfer> transfers;
  for (const auto& rank : *ranks_) {
    rank->exchanges().pack(*stream_, *op);
    transfers.push_back(rank->exchanges().transfer(*op));
  }
  stream_->synchronize();
  for (std::size_t from = 0; from < transfers.size(); ++from) {
    for (std::size_t to = 0; to < transfers.size(); ++to) {
      const auto sent = transfers[from].send[to];
      const auto received = transfers[to].receive[from];
      TRAIN_CHECK(sent.size() == received.size(), "{}: rank {} sends {} bytes, rank {} expects {}",
                  op->text(*plan_), from, sent.size(), to, received.size());
      if (!sent.empty()) {
        std::memcpy(received.data(), sent.data(), sent.size());
      }
    }
  }
  for (const auto& rank : *ranks_) {
    rank->exchanges().unpack(*stream_, *op);
  }
}

void Loop::read_round(std::int64_t round, std::int64_t step, const WorldStep::FillLane& fill_lane) {
  // The slot's last lane may still be reading it.
  if (round >= ranks_->front()->options().lane_slots) {
    stream_->synchronize();
  }
  for (const auto& rank : *ranks_) {
    if (const auto lane = lanes().lane(rank->options().rank, round)) {
      fill_lane(step, *lane, rank->lanes().slot(slot(round)));
    }
  }
}

void Loop::visit(std::size_t index, std::int64_t step) {
  const BufferSchedule& schedule = ranks_->front()->schedule(pass_);
  const Visit& visit = schedule.visits()[index];
  const UnitBuffers place{.gather = schedule.gather_of(index),
                          .gradient_buffer = schedule.gradient_buffer_of(index)};
  const Reservation* reservation =
      place.gather < 0 ? nullptr : &schedule.gathers()[static_cast<std::size_t>(place.gather)];
  if (reservation != nullptr && reservation->first == index) {
    exchange(CollectiveKind::gather, static_cast<std::int64_t>(reservation->group), place.gather);
  }
  for (const auto& rank : *ranks_) {
    if (const auto lane = lanes().lane(rank->options().rank, visit.round)) {
      const LaneWork work{.pass = pass_,
                          .step = step,
                          .lane = *lane,
                          .slot = slot(visit.round),
                          .round = visit.round,
                          .text = texts_ != nullptr ? texts_->of(*lane) : LaneText()};
      if (visit.backward) {
        rank->lanes().backward(*stream_, visit.unit, work, place);
      } else {
        rank->lanes().forward(*stream_, visit.unit, work, place);
      }
    }
    if (reservation != nullptr && reservation->last == index) {
      rank->gathered().keep_for_backward(*stream_, pass_, place.gather);
    }
  }
  // A rank without a lane in this round still owns rows of the sums of the others.
  const std::size_t group = plan_->group_of(visit.unit);
  const std::int64_t sync = lanes().sync_of(visit.round);
  const bool ends_sync =
      visit.round + 1 == lanes().rounds() || lanes().sync_of(visit.round + 1) != sync;
  if (visit.backward && visit.unit == plan_->groups()[group].first_unit() && ends_sync) {
    exchange(CollectiveKind::reduce, static_cast<std::int64_t>(group), sync);
  }
}

void Loop::run_lanes(std::int64_t step, const WorldStep::FillLane& fill_lane) {
  const std::vector<Visit>& visits = ranks_->front()->schedule(pass_).visits();
  for (std::size_t index = 0; index < visits.size(); ++index) {
    if (index == 0 || visits[index].round != visits[index - 1].round) {
      read_round(visits[index].round, step, fill_lane);
    }
    visit(index, step);
  }
}

WorldStep::FillLane columns_of(const WorldStep::ReadLane& read_lane) {
  return [&read_lane](std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    read_lane(step, lane, slot.tokens.data(), slot.targets.data());
  };
}

bool same_result(const StepResult& a, const StepResult& b) {
  // Bitwise, so that a NaN equals itself.
  const auto same = [](double x, double y) { return std::memcmp(&x, &y, sizeof(x)) == 0; };
  return same(a.loss, b.loss) && same(a.cross_entropy, b.cross_entropy) &&
         same(a.grad_norm, b.grad_norm) && a.nonfinite == b.nonfinite &&
         std::equal(a.metrics.begin(), a.metrics.end(), b.metrics.begin(), b.metrics.end(), same) &&
         std::equal(a.unit_grad_norms.begin(), a.unit_grad_norms.end(), b.unit_grad_norms.begin(),
                    b.unit_grad_norms.end(), same);
}

}  // namespace

WorldStep::WorldStep(const kernels::KernelTable& kernels, const Options& options) {
  for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
    Options of_rank = options;
    of_rank.rank = rank;
    ranks_.push_back(std::make_unique<RankEngine>(kernels, of_rank));
  }
}

StepResult WorldStep::run(kernels::Stream& stream, std::int64_t step, const ReadLane& read_lane) {
  return run(stream, step, columns_of(read_lane));
}

void WorldStep::finish_gradients(kernels::Stream& stream, const LaneWork& work) {
  for (const auto& rank : ranks_) {
    for (std::size_t group = rank->plan().groups().size(); group-- > 0;) {
      rank->gradients().finish(stream, group, work);
    }
  }
}

StepResult WorldStep::run_passes(kernels::Stream& stream, std::int64_t step,
                                 const std::vector<FillLane>& streams) {
  for (const PassPlan& pass : ranks_.front()->rank_plan().passes().step()) {
    if (pass.loss == LossUse::compared) {
      compute_reference(stream, pass, step, streams.at(pass.number));
    } else if (pass.reduces() && !pass.updates()) {
      keep_gradient(stream, pass, step, streams.at(pass.number));
    }
  }
  return run(stream, step, streams.back());
}

void WorldStep::keep_gradient(kernels::Stream& stream, const PassPlan& pass, std::int64_t step,
                              const FillLane& fill_lane) {
  Loop loop(ranks_, stream, pass);
  loop.run_lanes(step, fill_lane);
  finish_gradients(stream, {.pass = pass, .step = step});
  loop.exchange(CollectiveKind::loss_and_norm);
  for (const auto& rank : ranks_) {
    rank->totals().passes().combine(stream, pass, step);
  }
  stream.synchronize();  // No work reads the slots any more.
}

void WorldStep::add_block_sums(kernels::Stream& stream, const PassPlan& pass, std::int64_t step,
                               const FillLane& fill_lane) {
  Loop loop(ranks_, stream, pass);
  loop.run_lanes(step, fill_lane);
  loop.exchange(CollectiveKind::block_sums);
  for (const auto& rank : ranks_) {
    rank->totals().lanes().add_step_sums(stream);
  }
  stream.synchronize();  // No work reads the slots any more.
}

StepResult WorldStep::run(kernels::Stream& stream, std::int64_t step, const FillLane& fill_lane) {
  const std::vector<PassPlan>& passes = ranks_.front()->rank_plan().passes().step();
  for (const PassPlan& before : passes) {
    if (before.loss == LossUse::block_sums) {
      add_block_sums(stream, before, step, fill_lane);
    }
  }
  const PassPlan& pass = passes.back();
  Loop loop(ranks_, stream, pass);
  loop.run_lanes(step, fill_lane);

  finish_gradients(stream, {.pass = pass, .step = step});
  const auto groups = static_cast<std::int64_t>(ranks_.front()->plan().groups().size());
  for (std::int64_t group = groups; group-- > 0;) {
    loop.exchange(CollectiveKind::broadcast, group);
  }
  loop.exchange(CollectiveKind::loss_and_norm);
  for (const auto& rank : ranks_) {
    rank->totals().combine(stream, step);
    for (const ParameterGroup group : {ParameterGroup::decay, ParameterGroup::no_decay}) {
      rank->updates().update(stream, group, step, /*copied=*/{});
    }
    rank->state().finalize(stream);
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    loop.exchange(CollectiveKind::all_gather, group);
  }
  stream.synchronize();
  StepResult result = ranks_.front()->step_result(step);
  for (const auto& rank : ranks_) {
    const StepResult other = rank->step_result(step);
    TRAIN_CHECK(same_result(result, other), "rank {} has another result", rank->options().rank);
    if (rank != ranks_.front()) {
      add_each(result.optimizer_sums, other.optimizer_sums);
    }
  }
  return result;
}

EvaluationResult WorldStep::evaluate(kernels::Stream& stream, const ReadLane& read_lane) {
  return evaluate(stream, columns_of(read_lane));
}

EvaluationResult WorldStep::evaluate(kernels::Stream& stream, const FillLane& fill_lane) {
  Loop loop(ranks_, stream, ranks_.front()->rank_plan().passes().evaluation());
  loop.run_lanes(/*step=*/0, fill_lane);
  loop.exchange(CollectiveKind::eval_sums);
  stream.synchronize();
  return ranks_.front()->totals().lanes().evaluation_result();
}

void WorldStep::score(kernels::Stream& stream, const FillLane& fill_lane) {
  Loop loop(ranks_, stream, ranks_.front()->rank_plan().passes().scoring());
  loop.run_lanes(/*step=*/0, fill_lane);
  stream.synchronize();
}

std::vector<std::int32_t> WorldStep::sample(kernels::Stream& stream, const TextTokens& texts) {
  TextLanes lanes;
  lanes.take(texts);
  const PassPlan& pass = ranks_.front()->rank_plan().passes().sampling();
  Loop loop(ranks_, stream, pass);
  loop.texts(lanes);
  loop.run_lanes(/*step=*/0, [&lanes](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
    lanes.read(lane, slot);
  });
  stream.synchronize();
  std::vector<std::int32_t> tokens;
  for (const auto& rank : ranks_) {
    if (!rank->plan().lanes_of(pass).lanes_of(rank->options().rank).empty()) {
      const auto& own = rank->sampled().tokens();
      tokens.insert(tokens.end(), own.begin(), own.end());
    }
  }
  return tokens;
}

void WorldStep::compute_reference(kernels::Stream& stream, std::int64_t index,
                                  const FillLane& fill_lane) {
  compute_reference(stream, ranks_.front()->rank_plan().passes().reference(), index, fill_lane);
}

void WorldStep::compute_reference(kernels::Stream& stream, const PassPlan& pass, std::int64_t step,
                                  const FillLane& fill_lane) {
  Loop loop(ranks_, stream, pass);
  loop.run_lanes(step, fill_lane);
  loop.exchange(CollectiveKind::reference);
  for (const auto& rank : ranks_) {
    rank->reference().take(stream);
  }
  stream.synchronize();
}

NonfiniteOrigin WorldStep::find_nonfinite(kernels::Stream& stream, std::int64_t step,
                                          const ReadLane& read_lane) {
  return find_nonfinite(stream, step, columns_of(read_lane));
}

NonfiniteOrigin WorldStep::find_nonfinite(kernels::Stream& stream, std::int64_t step,
                                          const FillLane& fill_lane, std::size_t number) {
  const std::vector<PassPlan>& search = ranks_.front()->rank_plan().passes().search();
  const auto pass = std::find_if(search.begin(), search.end(), [&](const PassPlan& each) {
    return each.searches() && each.number == number;
  });
  Loop loop(ranks_, stream, *pass);
  loop.run_lanes(step, fill_lane);
  loop.exchange(CollectiveKind::nonfinite);
  stream.synchronize();
  return ranks_.front()->totals().nonfinite_counts().origin();
}

std::uint64_t WorldStep::digest() const {
  std::uint64_t sum = 0;
  for (const auto& rank : ranks_) {
    sum += rank->state().digest();
  }
  return sum;
}

}  // namespace train::engine
