#include "engine/collective/collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

namespace {

std::string text(const PairClaim& claim) {
  return fmt::format("rank {} is at {} hash {:016x}, sends {} bytes and expects {}", claim.rank,
                     to_string(claim.identity), claim.identity.hash, claim.sent_bytes,
                     claim.received_bytes);
}

}  // namespace

std::size_t Transfer::sent_bytes(int rank) const {
  std::size_t bytes = 0;
  for (std::size_t peer = 0; peer < send.size(); ++peer) {
    bytes += peer == static_cast<std::size_t>(rank) ? 0 : send[peer].size();
  }
  return bytes;
}

void check_transfer(const Transfer& transfer, int rank, int world_size) {
  const auto ranks = static_cast<std::size_t>(world_size);
  TRAIN_CHECK(transfer.send.size() == ranks && transfer.receive.size() == ranks,
              "{} and {} ranges in a world of {}", transfer.send.size(), transfer.receive.size(),
              ranks);
  const auto own = static_cast<std::size_t>(rank);
  TRAIN_CHECK(transfer.send[own].size() == transfer.receive[own].size(), "{} own bytes into {}",
              transfer.send[own].size(), transfer.receive[own].size());
}

void copy_own(const Transfer& transfer, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  const std::span<const std::byte> from = transfer.send[own];
  const std::span<std::byte> to = transfer.receive[own];
  if (!from.empty() && from.data() != to.data()) {
    std::memmove(to.data(), from.data(), from.size());
  }
}

std::vector<int> peers_of(const Transfer& transfer, int rank) {
  std::vector<int> peers;
  for (std::size_t peer = 0; peer < transfer.send.size(); ++peer) {
    const bool empty = transfer.send[peer].empty() && transfer.receive[peer].empty();
    if (peer != static_cast<std::size_t>(rank) && !empty) {
      peers.push_back(static_cast<int>(peer));
    }
  }
  return peers;
}

bool agree(const PairClaim& own, const PairClaim& peer) {
  const CollectiveIdentity& a = own.identity;
  const CollectiveIdentity& b = peer.identity;
  return a.generation == b.generation && a.command == b.command && a.channel == b.channel &&
         a.index == b.index && a.hash == b.hash && own.sent_bytes == peer.received_bytes &&
         own.received_bytes == peer.sent_bytes;
}

Error disagreement(const PairClaim& own, const PairClaim& peer) {
  return failure(fmt::format("collectives differ: {}; {}", text(own), text(peer)));
}

namespace {

/// Meeting point of the ranks. Each rank has a queue of exchanges; the first of a queue is matched
/// with the firsts of its peers. Finished exchanges go to one list, which one caller at a time
/// processes without a lock: so every rank's `done` calls come in order, and a `done` that starts
/// another exchange does not nest.
class Hub {
 public:
  explicit Hub(int world_size) : ranks_(static_cast<std::size_t>(world_size)) {}

  [[nodiscard]] int world_size() const { return static_cast<int>(ranks_.size()); }

  void exchange(int rank, const CollectiveIdentity& identity, Transfer transfer,
                Collectives::Done done) {
    check_transfer(transfer, rank, world_size());
    std::unique_lock lock(mutex_);
    std::vector<int> peers = peers_of(transfer, rank);
    at(rank).queue.push_back(
        {rank, identity, std::move(transfer), std::move(peers), std::move(done)});
    finalize();
    deliver(lock);
  }

  void cancel(int rank, const std::string& reason) {
    std::unique_lock lock(mutex_);
    fail(rank, "cancelled: " + reason);
    finalize();
    deliver(lock);
  }

  /// Fails what `rank` still has and returns when all its `done` have been called.
  void leave(int rank) {
    std::unique_lock lock(mutex_);
    fail(rank, fmt::format("rank {} has closed its transport", rank));
    finalize();
    deliver(lock);
    // A `done` that destroys its own object is a defect, but one that destroys another rank's is
    // met by not waiting for oneself.
    if (deliverer_ != std::this_thread::get_id()) {
      delivered_.wait(lock, [&] { return at(rank).undelivered == 0; });
    }
  }

 private:
  struct Request {
    int rank = 0;
    CollectiveIdentity identity;
    Transfer transfer;
    std::vector<int> peers;
    Collectives::Done done;
  };

  struct Rank {
    std::deque<Request> queue;
    std::optional<std::string> failed;  ///< For good.
    std::size_t undelivered = 0;        ///< Settled, `done` not called yet.
  };

  /// Exchanges that move their bytes together, or fail.
  struct Settled {
    std::vector<Request> requests;
    Status status;
  };

  [[nodiscard]] Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] const Request* first(int rank) {
    return at(rank).queue.empty() ? nullptr : &at(rank).queue.front();
  }

  static PairClaim claim(const Request& request, int peer) {
    const auto other = static_cast<std::size_t>(peer);
    return {request.rank, request.identity, request.transfer.send[other].size(),
            request.transfer.receive[other].size()};
  }

  static bool has_peer(const Request& request, int rank) {
    return std::binary_search(request.peers.begin(), request.peers.end(), rank);
  }

  void fail(int rank, const std::string& reason) {
    if (!at(rank).failed) {
      at(rank).failed = reason;
    }
  }

  /// Takes the first exchanges of `members` out of their queues.
  void take(const std::vector<int>& members, const Status& status) {
    Settled finalized{{}, status};
    for (const int rank : members) {
      finalized.requests.push_back(std::move(at(rank).queue.front()));
      at(rank).queue.pop_front();
      ++at(rank).undelivered;
    }
    finalized_.push_back(std::move(finalized));
  }

  /// Settles whatever can be, until nothing more can.
  void finalize() {
    for (bool changed = true; changed;) {
      changed = false;
      for (int rank = 0; rank < world_size(); ++rank) {
        while (first(rank) != nullptr && finalize_first(rank)) {
          changed = true;
        }
      }
    }
  }

  bool finalize_first(int rank) {
    if (at(rank).failed) {
      const std::string who = to_string(first(rank)->identity);
      take({rank}, failure(fmt::format("{}: {}", who, *at(rank).failed)));
      return true;
    }
    for (const int peer : first(rank)->peers) {
      if (at(peer).failed) {
        fail(rank, fmt::format("rank {} takes part no more: {}", peer, *at(peer).failed));
        return true;
      }
    }
    return complete_around(rank);
  }

  /// Settles the first exchange of `rank` with all that hang together with it, if they are there
  /// and agree. Two that differ fail for good.
  bool complete_around(int rank) {
    std::vector<int> members = {rank};
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Request* own = first(members[i]);
      for (const int peer : own->peers) {
        const Request* other = first(peer);
        if (other == nullptr || !has_peer(*other, own->rank)) {
          return false;
        }
        const PairClaim mine = claim(*own, peer);
        const PairClaim theirs = claim(*other, own->rank);
        if (!agree(mine, theirs)) {
          const std::string text = disagreement(mine, theirs).message;
          fail(own->rank, text);
          fail(peer, text);
          return true;
        }
        if (std::find(members.begin(), members.end(), peer) == members.end()) {
          members.push_back(peer);
        }
      }
    }
    take(members, {});
    return true;
  }

  static void move_bytes(const std::vector<Request>& requests) {
    for (const Request& to : requests) {
      copy_own(to.transfer, to.rank);
      for (const Request& from : requests) {
        const auto sent = from.transfer.send[static_cast<std::size_t>(to.rank)];
        const auto place = to.transfer.receive[static_cast<std::size_t>(from.rank)];
        if (from.rank != to.rank) {
          std::copy(sent.begin(), sent.end(), place.begin());
        }
      }
    }
  }

  /// Works off the list, unless another thread already does. Returns with the lock held.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (deliverer_ != std::thread::id()) {
      return;
    }
    deliverer_ = std::this_thread::get_id();
    while (!finalized_.empty()) {
      const Settled finalized = std::move(finalized_.front());
      finalized_.pop_front();
      lock.unlock();
      if (finalized.status.ok()) {
        move_bytes(finalized.requests);
      }
      for (const Request& request : finalized.requests) {
        request.done(finalized.status);
      }
      lock.lock();
      for (const Request& request : finalized.requests) {
        --at(request.rank).undelivered;
      }
      delivered_.notify_all();
    }
    deliverer_ = {};
  }

  std::mutex mutex_;
  std::condition_variable delivered_;
  std::vector<Rank> ranks_;
  std::deque<Settled> finalized_;
  std::thread::id deliverer_;
};

class InProcess final : public Collectives {
 public:
  InProcess(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~InProcess() override { hub_->leave(rank_); }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return hub_->world_size(); }

  void exchange(const CollectiveIdentity& identity, Transfer transfer, Done done) override {
    hub_->exchange(rank_, identity, std::move(transfer), std::move(done));
  }

  void cancel(const std::string& reason) override { hub_->cancel(rank_, reason); }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Collectives>> make_inproc(int world_size) {
  TRAIN_CHECK(world_size >= 1, "a world of {}", world_size);
  const auto hub = std::make_shared<Hub>(world_size);
  std::vector<std::unique_ptr<Collectives>> ranks;
  ranks.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<InProcess>(hub, rank));
  }
  return ranks;
}

}  // namespace train::engine
