#include "tests/sim/network.hpp"

#include <utility>

namespace train::sim {

void Connection::exchange(const engine::CollectiveIdentity& identity, engine::Transfer transfer,
                          Done done) {
  if (!closed_) {
    asked_.push_back({identity, std::move(transfer), std::move(done)});
  }
}

void Connection::begin_oldest() {
  Asked asked = std::move(asked_.front());
  asked_.pop_front();
  inner_->exchange(asked.identity, std::move(asked.transfer),
                   [this, done = std::move(asked.done)](const Status& status) {
                     if (!closed_) {
                       arrived_.push_back({done, status});
                     }
                   });
}

void Connection::move_on() {
  if (!arrived_.empty()) {
    const Arrived arrived = std::move(arrived_.front());
    arrived_.pop_front();
    arrived.done(arrived.status);
    return;
  }
  if (wrong_order && asked_.size() > 1) {
    wrong_order = false;
    std::swap(asked_[0], asked_[1]);
  }
  begin_oldest();
}

void Connection::close() {
  closed_ = true;
  asked_.clear();
  arrived_.clear();
}

void SimNetwork::join(const std::vector<actors::RankContext>& ranks) {
  if (ranks.size() < 2) {
    return;
  }
  connections_.resize(ranks.size() * engine::kChannelCount);
  for (std::size_t channel = 0; channel < engine::kChannelCount; ++channel) {
    auto transports = engine::make_inproc(static_cast<int>(ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      auto connection = std::make_unique<Connection>(std::move(transports[rank]));
      connections_[rank * engine::kChannelCount + channel] = connection.get();
      ranks[rank]->transports[channel] = std::move(connection);
    }
  }
}

void SimNetwork::stall(std::size_t rank, bool stalled) {
  for (std::size_t channel = 0; channel < engine::kChannelCount && !connections_.empty();
       ++channel) {
    connections_[rank * engine::kChannelCount + channel]->stalled = stalled;
  }
}

void SimNetwork::cut(std::size_t rank, const std::string& reason) {
  stall(rank, false);  // what it asks for fails instead of waiting
  for (std::size_t channel = 0; channel < engine::kChannelCount && !connections_.empty();
       ++channel) {
    connections_[rank * engine::kChannelCount + channel]->cancel(reason);
  }
}

}  // namespace train::sim
