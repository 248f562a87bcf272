#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "actors/train/runtime/rank_runtime.hpp"
#include "engine/collective/collective.hpp"

namespace train::sim {

/// One rank's end of one channel: the in-process transport, but nothing starts or arrives before
/// the simulation says so. Threading: one thread.
class Connection final : public engine::Collectives {
 public:
  explicit Connection(std::unique_ptr<engine::Collectives> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int world_size() const override { return inner_->world_size(); }
  void exchange(const engine::CollectiveIdentity& identity, engine::Transfer transfer,
                Done done) override;
  void cancel(const std::string& reason) override { inner_->cancel(reason); }

  /// Whether an exchange may begin or end here.
  [[nodiscard]] bool ready() const { return !arrived_.empty() || (!asked_.empty() && !stalled); }
  /// Ends the oldest exchange whose bytes are there, or begins the oldest that was asked for.
  void move_on();
  /// Nobody is told of anything any more: those who would be told are gone.
  void close();

  bool stalled = false;      ///< Nothing leaves this rank.
  bool wrong_order = false;  ///< Begins the second of two first, once (Bug).

 private:
  struct Asked {
    engine::CollectiveIdentity identity;
    engine::Transfer transfer;
    Done done;
  };
  struct Arrived {
    Done done;
    Status status;
  };

  void begin_oldest();

  std::deque<Asked> asked_;
  std::deque<Arrived> arrived_;
  bool closed_ = false;
  std::unique_ptr<engine::Collectives> inner_;  ///< Last: it says how all that is under way ends.
};

/// What joins the ranks of one generation.
class SimNetwork {
 public:
  /// Gives every rank its transports. One rank alone needs none.
  void join(const std::vector<actors::RankContext>& ranks);

  /// By rank, then by channel; owned by the ranks.
  [[nodiscard]] const std::vector<Connection*>& connections() const { return connections_; }
  void stall(std::size_t rank, bool stalled);
  /// The rank's exchanges fail, and so do all that others have with it.
  void cut(std::size_t rank, const std::string& reason);

 private:
  std::vector<Connection*> connections_;
};

}  // namespace train::sim
