#include "tests/step_model/step_model.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "base/check.hpp"
#include "tests/step_model/rank_model.hpp"

namespace train::engine {
namespace {

/// What every rank sends and gets in one op, and who its peers are: by rank.
struct OpTraffic {
  std::vector<std::int64_t> first_peer, peers;
  std::vector<ExchangeSizes::Bytes> bytes;
};

/// All ranks and the wires between them.
class WorldModel {
 public:
  WorldModel(const RankOptions& run, const StepModelOptions& options);
  ModelledStep play();

 private:
  using Key = std::tuple<std::int64_t, Channel, std::uint32_t, std::int64_t>;
  struct Wire {
    double sending_until = 0.0, receiving_until = 0.0;
  };

  const OpTraffic& traffic_of(const CollectiveOp& op);
  void post(std::int64_t rank, const ModelledOp& op);
  void exchange(const std::vector<std::int64_t>& ranks, const CollectiveOp& op);
  void deliver(std::int64_t rank, const CollectiveOp& op, double end);
  [[nodiscard]] double sent_per_rank();

  ExchangeSizes sizes_;
  StepModelOptions options_;
  ModelContext context_;
  std::vector<std::unique_ptr<RankModel>> ranks_;
  std::vector<Wire> wires_;
  std::map<Key, std::vector<std::int64_t>> waiting_;  // ranks that are ready, of each exchange
  std::map<std::tuple<Channel, std::uint32_t>, OpTraffic> traffic_;
};

WorldModel::WorldModel(const RankOptions& run, const StepModelOptions& options)
    : sizes_(run), options_(options), wires_(static_cast<std::size_t>(sizes_.plan().ranks())) {
  context_.sizes = &sizes_;
  context_.options = &options_;
  for (const CollectiveOp& op : expand(sizes_.plan(), kTrainStep)) {
    context_.ops[static_cast<std::size_t>(op.channel)].push_back(op);
  }
  context_.post = [this](std::int64_t rank, const ModelledOp& op) { post(rank, op); };
  for (std::int64_t rank = 0; rank < sizes_.plan().ranks(); ++rank) {
    ranks_.push_back(std::make_unique<RankModel>(context_, rank));
  }
}

const OpTraffic& WorldModel::traffic_of(const CollectiveOp& op) {
  const auto [found, added] = traffic_.try_emplace({op.channel, op.index});
  OpTraffic& traffic = found->second;
  for (std::int64_t rank = 0; added && rank < sizes_.plan().ranks(); ++rank) {
    const std::vector<std::int64_t> peers = sizes_.peers(op, rank);
    traffic.first_peer.push_back(peers.front());
    traffic.peers.push_back(static_cast<std::int64_t>(peers.size()));
    traffic.bytes.push_back(sizes_.bytes(op, rank));
  }
  return traffic;
}

void WorldModel::post(std::int64_t rank, const ModelledOp& op) {
  const OpTraffic& traffic = traffic_of(*op.op);
  const auto at = static_cast<std::size_t>(rank);
  const Key key{op.step, op.op->channel, op.op->index, traffic.first_peer[at]};
  std::vector<std::int64_t>& ready = waiting_[key];
  ready.push_back(rank);
  if (static_cast<std::int64_t>(ready.size()) == traffic.peers[at]) {
    const std::vector<std::int64_t> ranks = std::move(ready);
    waiting_.erase(key);
    exchange(ranks, *op.op);
  }
}

/// All are ready: headers, then bytes, on each rank's link after those that it carries already.
void WorldModel::exchange(const std::vector<std::int64_t>& ranks, const CollectiveOp& op) {
  const OpTraffic& traffic = traffic_of(op);
  const LinkModel& link = options_.link;
  const double headers = context_.events.now() + link.latency_seconds;
  const double messages = link.message_seconds * static_cast<double>(ranks.size() - 1);
  double all_sent = 0.0;
  for (const std::int64_t rank : ranks) {
    const auto at = static_cast<std::size_t>(rank);
    const ExchangeSizes::Bytes& bytes = traffic.bytes[at];
    Wire& wire = wires_[at];
    wire.sending_until =
        std::max(headers, wire.sending_until) + messages + bytes.sent / link.bytes_per_second;
    wire.receiving_until =
        std::max(headers, wire.receiving_until) + bytes.received / link.bytes_per_second;
    all_sent = std::max(all_sent, wire.sending_until);
  }
  for (const std::int64_t rank : ranks) {
    const double received = wires_[static_cast<std::size_t>(rank)].receiving_until;
    deliver(rank, op, std::max(received, all_sent) + link.latency_seconds);
  }
}

void WorldModel::deliver(std::int64_t rank, const CollectiveOp& op, double end) {
  const auto at = static_cast<std::size_t>(rank);
  const ExchangeSizes::Bytes& bytes = traffic_of(op).bytes[at];
  const double begin = context_.events.now();
  const double stolen = options_.link.processor_per_byte * (bytes.sent + bytes.received);
  const double busy = ranks_[at]->stream().busy_seconds();
  context_.events.after(end - begin, [this, at, busy, stolen, end, begin, which = op.channel] {
    // Only what computes meanwhile loses time to the bytes.
    const double computed = ranks_[at]->stream().busy_seconds() - busy;
    ranks_[at]->stream().steal(end > begin ? stolen * computed / (end - begin) : 0.0);
    ranks_[at]->moved(which);
  });
}

double WorldModel::sent_per_rank() {
  double sent = 0.0;
  for (const auto& ops : context_.ops) {
    for (const CollectiveOp& op : ops) {
      for (const ExchangeSizes::Bytes& bytes : traffic_of(op).bytes) {
        sent += bytes.sent;
      }
    }
  }
  return sent / static_cast<double>(ranks_.size());
}

ModelledStep WorldModel::play() {
  for (const auto& rank : ranks_) {
    rank->begin_step(0);
  }
  while (context_.events.run_one()) {
  }
  ModelledStep mean;
  const auto last = static_cast<std::size_t>(options_.steps - 1);
  const auto counted = static_cast<double>(last - 1);
  for (const auto& rank : ranks_) {
    const auto& ends = rank->ends();
    TRAIN_CHECK(ends.size() == last + 1, "a modelled rank stopped after {} steps", ends.size());
    mean.step_seconds += (ends[last].time - ends[1].time) / counted;
    mean.busy_seconds += (ends[last].busy_seconds - ends[1].busy_seconds) / counted;
  }
  const auto ranks = static_cast<double>(ranks_.size());
  mean.step_seconds /= ranks;
  mean.busy_seconds /= ranks;
  mean.exposed_seconds = mean.step_seconds - mean.busy_seconds;
  mean.sent_bytes = sent_per_rank();
  return mean;
}

}  // namespace

ModelledStep model_step(const RankOptions& run, const StepModelOptions& options) {
  TRAIN_CHECK(options.steps >= 3, "{} steps", options.steps);
  return WorldModel(run, options).play();
}

}  // namespace train::engine
