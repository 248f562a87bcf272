#include "tests/step_model/rank_model.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::engine {
namespace {

constexpr int kLanesInFlight = 2;  // as the rank's actor allows

std::vector<std::int64_t> rounds_of(const LaneSchedule& lanes, std::int64_t rank) {
  std::vector<std::int64_t> rounds;
  for (std::int64_t round = 0; round < lanes.rounds(); ++round) {
    if (lanes.lane(rank, round)) {
      rounds.push_back(round);
    }
  }
  return rounds;
}

}  // namespace

RankModel::RankModel(ModelContext& context, std::int64_t rank)
    : context_(&context),
      rank_(rank),
      stream_(context.events, context.options->slowdown),
      stale_(plan().groups().size(), false),
      rounds_(rounds_of(plan().train_lanes(), rank)) {
  const auto steps = static_cast<std::size_t>(context.options->steps);
  for (std::size_t which = 0; which < kChannelCount; ++which) {
    channels_[which].requested.resize(context.ops[which].size() * steps, false);
  }
}

void RankModel::begin_step(std::int64_t step) {
  step_ = step;
  next_lane_ = 0;
  gradients_ready_ = gradients_broadcast_ = 0;
  combined_ = false;
  reservations_.emplace(plan(), schedule(), kTrainStep, rank_);
  stream_.enqueue(0.0, [this] {
    reservations_->finalize();
    proceed();
  });
  const LaneSchedule& lanes = plan().train_lanes();
  for (std::int64_t sync = 0; sync < lanes.syncs(); ++sync) {
    for (std::size_t group = 0;
         lanes.lanes_of(rank_, sync).count == 0 && group < plan().groups().size(); ++group) {
      reduce(static_cast<std::int64_t>(group), sync);
    }
  }
  launch_lane();
}

void RankModel::launch_lane() {
  if (chain_busy_ || next_lane_ == rounds_.size() || lanes_in_flight_ == kLanesInFlight) {
    return;
  }
  const std::int64_t round = rounds_[next_lane_++];
  ++lanes_in_flight_;
  chain_busy_ = true;
  visit_ = schedule().visit(round, false, 0);
  visits_end_ = visit_ + 2 * plan().unit_count();
  proceed();
}

/// Enqueues visits until one has to wait. What a visit sets free may let the next one go on.
void RankModel::proceed() {
  if (proceeding_) {
    again_ = true;
    return;
  }
  proceeding_ = true;
  do {
    again_ = false;
    start_gathers();
    while (chain_busy_ && may_run(visit_)) {
      run_visit(visit_);
    }
  } while (again_);
  proceeding_ = false;
}

bool RankModel::may_run(std::size_t index) {
  const Visit& visit = schedule().visits()[index];
  const std::size_t group = plan().group_of(visit.unit);
  if (const std::int32_t gather = schedule().gather_of(index); gather >= 0) {
    reservations_->want(gather);
    start_gathers();
    if (!reservations_->ready(gather)) {
      return false;
    }
  } else if (stale_[group]) {
    return false;
  }
  // Where the forward pass writes a gradient already, the unit is the last one: its backward pass
  // comes next.
  const bool writes = visit.backward || plan().units()[visit.unit].traits.gradient_in_forward;
  if (!writes) {
    return true;
  }
  const std::int32_t gradient_buffer =
      schedule().gradient_buffer_of(visit.backward ? index : index + 1);
  return reservations_->gradient_free(group, plan().train_lanes().sync_of(visit.round),
                                      gradient_buffer);
}

void RankModel::run_visit(std::size_t index) {
  const Visit& visit = schedule().visits()[index];
  stream_.enqueue(visit_seconds(visit));
  reservations_->visited(index);
  const std::size_t group = plan().group_of(visit.unit);
  const LaneSchedule& lanes = plan().train_lanes();
  ++visit_;
  if (visit.backward && plan().groups()[group].first_unit() == visit.unit) {
    const std::int64_t sync = lanes.sync_of(visit.round);
    if (visit.round == lanes.last_round_of(rank_, sync)) {
      reduce(static_cast<std::int64_t>(group), sync);
    }
  }
  if (visit_ == visits_end_) {
    stream_.enqueue(0.0, [this] {
      --lanes_in_flight_;
      launch_lane();
    });
    chain_busy_ = false;
    launch_lane();
  }
  start_gathers();
}

double RankModel::visit_seconds(const Visit& visit) const {
  if (!visit.backward) {
    return times().forward.at(visit.unit);
  }
  // A sync's lanes of one rank are added up in so many sums.
  const std::int64_t sync = plan().train_lanes().sync_of(visit.round);
  const auto lanes = static_cast<double>(plan().train_lanes().lanes_of(rank_, sync).count);
  const double adds = (lanes - static_cast<double>(context_->sizes->sums(rank_, sync))) / lanes;
  const double bytes =
      sizeof(float) * static_cast<double>(plan().units()[visit.unit].element_count);
  return times().backward.at(visit.unit) + adds * bytes * times().add_per_byte;
}

void RankModel::start_gathers() {
  for (const std::int32_t gather : reservations_->start_gathers()) {
    const Reservation& reservation = schedule().gathers()[static_cast<std::size_t>(gather)];
    request(CollectiveKind::gather, static_cast<std::int64_t>(reservation.group), gather);
  }
}

const CollectiveOp* RankModel::find(CollectiveKind kind, std::int64_t group,
                                    std::int64_t part) const {
  for (const auto& ops : context_->ops) {
    // A gather's reservation is its place in the channel: no search through hundreds.
    if (kind == CollectiveKind::gather && !ops.empty() && ops.front().kind == kind) {
      return &ops.at(static_cast<std::size_t>(part));
    }
    for (const CollectiveOp& op : ops) {
      if (op.kind == kind && op.group == group && op.part == part) {
        return &op;
      }
    }
  }
  return nullptr;
}

bool RankModel::request(CollectiveKind kind, std::int64_t group, std::int64_t part) {
  const CollectiveOp* op = find(kind, group, part);
  if (op == nullptr) {
    return false;
  }
  ChannelState& state = channel(op->channel);
  const auto& ops = context_->ops[static_cast<std::size_t>(op->channel)];
  state.requested[static_cast<std::size_t>(step_) * ops.size() + op->index] = true;
  while (state.due < state.requested.size() && state.requested[state.due]) {
    state.operations.push_back(
        {{static_cast<std::int64_t>(state.due / ops.size()), &ops[state.due % ops.size()]}});
    ++state.due;
  }
  start(op->channel);
  return true;
}

void RankModel::start(Channel which) {
  ChannelState& state = channel(which);
  // By index: packing may make more operations due.
  for (std::size_t i = 0; i < state.operations.size() && state.staged < kStagingSlots; ++i) {
    if (state.operations[i].progress == Progress::due) {
      ++state.staged;
      pack(state.operations[i]);
    }
  }
  move(which);
}

void RankModel::pack(Operation& operation) {
  const ModelledOp op = operation.op;
  if (op.op->kind == CollectiveKind::gather) {
    operation.progress = Progress::packed;  // what is sent lies there
    return;
  }
  operation.progress = Progress::packing;
  stream_.enqueue(pack_seconds(*op.op), [this, op] {
    for (Operation& one : channel(op.op->channel).operations) {
      if (one.op.op == op.op && one.op.step == op.step) {
        one.progress = Progress::packed;
      }
    }
    move(op.op->channel);
  });
  if (op.op->kind == CollectiveKind::reduce) {
    reservations_->packed(static_cast<std::size_t>(op.op->group), op.op->part);
    proceed();
  }
}

// A channel's exchanges run one after the other.
void RankModel::move(Channel which) {
  auto& operations = channel(which).operations;
  if (!operations.empty() && operations.front().progress == Progress::packed) {
    operations.front().progress = Progress::moving;
    context_->post(rank_, operations.front().op);
  }
}

void RankModel::moved(Channel which) {
  ChannelState& state = channel(which);
  TRAIN_CHECK(!state.operations.empty() && state.operations.front().progress == Progress::moving);
  const ModelledOp op = state.operations.front().op;
  state.operations.pop_front();
  stream_.enqueue(unpack_seconds(*op.op), [this, which] {
    --channel(which).staged;
    start(which);
  });
  finished(*op.op);
  move(which);
}

double RankModel::pack_seconds(const CollectiveOp& op) const {
  const auto group = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
  const ExchangeSizes& sizes = *context_->sizes;
  switch (op.kind) {
    case CollectiveKind::reduce:
      return times().copy_per_byte * sizes.group_bytes(group) *
             static_cast<double>(sizes.sums(rank_, op.part));
    case CollectiveKind::all_gather:
      return times().copy_per_byte * sizes.reduced_bytes(group, rank_);
    default:
      return 0.0;  // what is sent lies there
  }
}

double RankModel::unpack_seconds(const CollectiveOp& op) const {
  const auto group = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
  const ExchangeSizes& sizes = *context_->sizes;
  switch (op.kind) {
    case CollectiveKind::gather:
    case CollectiveKind::all_gather:
      return times().copy_per_byte * sizes.group_bytes(group);
    case CollectiveKind::reduce:
      return times().add_per_byte * sizes.reduced_bytes(group, rank_) *
             static_cast<double>(sizes.all_sums(op.part));
    case CollectiveKind::broadcast:
      return times().copy_per_byte * sizes.updated_bytes(group, rank_);
    default:
      return 0.0;
  }
}

void RankModel::finished(const CollectiveOp& op) {
  const auto group = static_cast<std::size_t>(op.group < 0 ? 0 : op.group);
  switch (op.kind) {
    case CollectiveKind::gather:
      reservations_->gathered(op.part);
      proceed();
      return update_if_ready();
    case CollectiveKind::all_gather:
      stale_[group] = false;
      return proceed();
    case CollectiveKind::reduce:
      return op.part + 1 == plan().train_lanes().syncs() ? reduced(group) : void();
    case CollectiveKind::broadcast:
      return gradient_broadcast();
    case CollectiveKind::loss_and_norm:
      return combine();
    case CollectiveKind::eval_sums:
    case CollectiveKind::nonfinite:
    case CollectiveKind::reference:
    case CollectiveKind::block_sums:
      break;
  }
}

void RankModel::reduce(std::int64_t group, std::int64_t sync) {
  const bool alone = !request(CollectiveKind::reduce, group, sync);
  if (alone && sync + 1 == plan().train_lanes().syncs()) {
    reduced(static_cast<std::size_t>(group));
  }
}

void RankModel::reduced(std::size_t group) {
  stream_.enqueue(times().norm_per_byte * context_->sizes->reduced_bytes(group, rank_));
  if (++gradients_ready_ == plan().groups().size() && !request(CollectiveKind::loss_and_norm)) {
    combine();
  }
  if (!request(CollectiveKind::broadcast, static_cast<std::int64_t>(group))) {
    gradient_broadcast();
  }
}

void RankModel::combine() {
  stream_.enqueue(times().once_per_step);
  combined_ = true;
  update_if_ready();
}

void RankModel::gradient_broadcast() {
  ++gradients_broadcast_;
  update_if_ready();
}

void RankModel::update_if_ready() {
  if (!combined_ || gradients_broadcast_ != plan().groups().size() ||
      !reservations_->all_gathered()) {
    return;
  }
  combined_ = false;  // once
  double bytes = 0.0;
  for (std::size_t group = 0; group < plan().groups().size(); ++group) {
    bytes += context_->sizes->updated_bytes(group, rank_);
  }
  stream_.enqueue(times().update_per_byte * bytes);
  for (std::size_t group = 0; group < plan().groups().size(); ++group) {
    stale_[group] = plan().ranks() > 1 && plan().all_gathered(group);
  }
  for (std::size_t group = 0; group < plan().groups().size(); ++group) {
    if (stale_[group]) {
      request(CollectiveKind::all_gather, static_cast<std::int64_t>(group));
    }
  }
  stream_.enqueue(0.0, [this] {
    ends_.push_back({context_->events.now(), stream_.busy_seconds()});
  });
  if (step_ + 1 < context_->options->steps) {
    begin_step(step_ + 1);
  }
}

}  // namespace train::engine
