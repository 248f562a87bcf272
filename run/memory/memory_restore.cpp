#include "run/memory/memory_restore.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <map>
#include <span>
#include <utility>

#include "base/check.hpp"
#include "checkpoint/memory/row_sources.hpp"
#include "engine/host_state.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "run/plan/node_position.hpp"
#include "storage/files/digest.hpp"

namespace train::run {
namespace {

using checkpoint::RowPiece;
using engine::StateView;

constexpr std::uint64_t kRoundBytes = std::uint64_t{1} << 20;  // Bytes between two ranks per round.
constexpr std::int64_t kBeforeCommands = -1;                   // Belongs to no command.

/// Transfer between two ranks: pieces of memory as one row of bytes.
template <class Byte>
class ByteRow {
 public:
  void append(std::span<Byte> piece) {
    pieces_.push_back(piece);
    left_ += piece.size();
  }
  [[nodiscard]] std::uint64_t left() const { return left_; }
  /// Calls `use` with the next `size` bytes, piece by piece.
  template <class Use>
  void advance(std::uint64_t size, Use use) {
    left_ -= size;
    while (size > 0) {
      std::span<Byte>& piece = pieces_[at_];
      const std::uint64_t part = std::min<std::uint64_t>(size, piece.size());
      use(piece.first(part));
      piece = piece.subspan(part);
      size -= part;
      at_ += piece.empty() ? 1 : 0;
    }
  }

 private:
  std::vector<std::span<Byte>> pieces_;
  std::size_t at_ = 0;
  std::uint64_t left_ = 0;
};

/// Ranks 0 .. `ranks` - 1 by node.
std::vector<engine::RankSpan> spans_of(std::int64_t ranks, std::int64_t nodes) {
  std::vector<engine::RankSpan> spans;
  for (NodePosition position{.nodes = nodes}; position.node < nodes; ++position.node) {
    const auto [first, end] = position.ranks(ranks);
    spans.push_back({.first = first, .end = end});
  }
  return spans;
}

std::int64_t node_of(const std::vector<engine::RankSpan>& spans, std::int64_t rank) {
  const auto after = std::find_if(spans.begin(), spans.end(),
                                  [rank](const engine::RankSpan& span) { return rank < span.end; });
  return after - spans.begin();
}

bool has_rows(const StateView& view) { return view.rows > 0; }

/// Restore on one rank.
class MemoryRestore {
 public:
  MemoryRestore(const MemoryStart& start, engine::RankEngine& engine)
      : start_(start),
        engine_(engine),
        source_(fmt::format("the snapshot in memory of step {}", start.origin.step)),
        now_(spans_of(engine.plan().ranks(), engine.options().parallel.nodes)),
        before_(spans_of(start.origin.ranks, nodes_before())),
        state_(engine.device(), engine.state().views()),
        outgoing_(static_cast<std::size_t>(engine.plan().ranks())),
        incoming_(outgoing_.size()) {
    std::copy_if(state_.views().begin(), state_.views().end(), std::back_inserter(wanted_),
                 has_rows);
  }

  Status run(engine::Collectives* transport, std::uint32_t generation) {
    TRAIN_RETURN_IF_ERROR(add_sources());
    TRAIN_RETURN_IF_ERROR(plan_pieces());
    if (longest_ > 0) {
      if (transport == nullptr) {
        return failure(source_ + " is not all on this node");
      }
      TRAIN_RETURN_IF_ERROR(exchange(*transport, generation));
    }
    state_.store();
    engine_.state().finalize_restored();
    return {};
  }

 private:
  [[nodiscard]] std::int64_t nodes_before() const {
    return static_cast<std::int64_t>(start_.origin.holders.size());
  }

  Status add_sources() {
    if (before_.empty()) {
      return failure(source_ + " is nowhere");
    }
    engine::RankOptions options = engine_.options();
    options.parallel.ranks = start_.origin.ranks;
    options.parallel.nodes = nodes_before();
    const auto plan = engine::plan_of(options);
    if (!plan) {
      return failure(source_ + " was made with another plan");
    }
    plan_digest_ = plan->digest();
    for (std::size_t node = 0; node < before_.size(); ++node) {
      const std::int64_t holder = start_.origin.holders[node];
      if (holder < 0 || holder >= static_cast<std::int64_t>(now_.size())) {
        return failure(fmt::format("{} is on node {}, which does not exist", source_, holder));
      }
      for (std::int64_t rank = before_[node].first; rank < before_[node].end; ++rank) {
        sources_.add(rank, static_cast<std::int64_t>(node), holder,
                     engine::node_rows(*plan, engine_.optimizer(), rank, before_[node]));
      }
    }
    return {};
  }

  Status plan_pieces() {
    for (std::int64_t rank = 0; rank < engine_.plan().ranks(); ++rank) {
      const auto kept = engine::kept_rows(engine_.plan(), engine_.optimizer(), rank);
      if (rank == engine_.options().rank) {
        const bool same =
            std::equal(kept.begin(), kept.end(), wanted_.begin(), wanted_.end(),
                       [](const StateView& a, const StateView& b) {
                         return a.name == b.name && a.first_row == b.first_row && a.rows == b.rows;
                       });
        TRAIN_CHECK(same, "rank {} keeps other rows than planned", rank);
      }
      const auto pieces = sources_.find(kept, node_of(now_, rank));
      if (!pieces) {
        return failure(fmt::format("{}: {}", source_, pieces.error().message));
      }
      std::vector<std::uint64_t> sent(outgoing_.size());
      for (const RowPiece& piece : *pieces) {
        TRAIN_RETURN_IF_ERROR(take(rank, piece));
        if (holder_of(piece.rank) != node_of(now_, rank)) {
          std::uint64_t& bytes = sent[static_cast<std::size_t>(sender_of(piece.rank))];
          longest_ = std::max(longest_, bytes += piece.size_bytes);
        }
      }
    }
    return {};
  }

  /// Takes a piece from the memory of `rank`'s own node, or receives it from a rank of another
  /// node.
  Status take(std::int64_t rank, const RowPiece& piece) {
    const std::int64_t me = engine_.options().rank;
    const bool remote = holder_of(piece.rank) != node_of(now_, rank);
    const std::int64_t sender = remote ? sender_of(piece.rank) : rank;
    const auto position = [&] {
      return std::span(wanted_[piece.view].data + piece.to, piece.size_bytes);
    };
    if (remote && rank == me) {
      incoming_[static_cast<std::size_t>(sender)].append(position());
    } else if (sender == me) {
      const auto bytes = TRAIN_TRY(bytes_of(piece));
      if (remote) {
        outgoing_[static_cast<std::size_t>(rank)].append(bytes);
      } else {
        std::memcpy(position().data(), bytes.data(), bytes.size());
      }
    }
    return {};
  }

  [[nodiscard]] std::int64_t holder_of(std::int64_t rank) const {
    return start_.origin.holders[static_cast<std::size_t>(node_of(before_, rank))];
  }

  /// Sender of the rows that `rank` has written: the ranks of a node share the sending.
  [[nodiscard]] std::int64_t sender_of(std::int64_t rank) const {
    const engine::RankSpan& span = now_[static_cast<std::size_t>(holder_of(rank))];
    return span.first + rank % (span.end - span.first);
  }

  [[nodiscard]] Result<std::span<const std::byte>> bytes_of(const RowPiece& piece) {
    bool damaged = false;
    for (const SharedSnapshots& snapshots : start_.here) {
      if (!snapshots->has(piece.rank) || snapshots->layout().plan_digest != plan_digest_) {
        continue;
      }
      const std::span<const std::byte> bytes = snapshots->bytes_of(piece.rank, start_.origin.step);
      if (piece.from + piece.size_bytes > bytes.size()) {
        continue;
      }
      if (whole(*snapshots, piece.rank)) {
        return bytes.subspan(piece.from, piece.size_bytes);
      }
      damaged = true;
    }
    return failure(fmt::format("{} has {} rows of rank {} here", source_,
                               damaged ? "damaged" : "no", piece.rank));
  }

  /// Verifies the digest of a snapshot once for all pieces of it.
  [[nodiscard]] bool whole(const checkpoint::MemorySnapshots& snapshots, std::int64_t rank) {
    const auto [known, first] = whole_.try_emplace({&snapshots, rank}, false);
    if (first) {
      known->second = snapshots.whole(rank, start_.origin.step);
    }
    return known->second;
  }

  Status exchange(engine::Collectives& transport, std::uint32_t generation) {
    const std::array<std::uint64_t, 3> words = {plan_digest_, engine_.plan().digest(),
                                                static_cast<std::uint64_t>(start_.origin.step)};
    engine::CollectiveIdentity identity{
        .generation = generation,
        .command = kBeforeCommands,
        .channel = engine::Channel::gather,
        .index = 0,
        .hash = storage::short_digest(std::as_bytes(std::span(words)))};
    for (std::uint64_t done = 0; done < longest_; done += kRoundBytes) {
      TRAIN_RETURN_IF_ERROR(exchange_round(transport, identity));
      ++identity.index;
    }
    return {};
  }

  Status exchange_round(engine::Collectives& transport, engine::CollectiveIdentity identity) {
    const std::size_t ranks = outgoing_.size();
    std::vector<std::vector<std::byte>> sent(ranks);
    std::vector<std::vector<std::byte>> received(ranks);
    engine::Transfer transfer;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      outgoing_[rank].advance(std::min(outgoing_[rank].left(), kRoundBytes), [&](auto piece) {
        sent[rank].insert(sent[rank].end(), piece.begin(), piece.end());
      });
      received[rank].resize(std::min(incoming_[rank].left(), kRoundBytes));
      transfer.send.emplace_back(sent[rank]);
      transfer.receive.emplace_back(received[rank]);
    }
    std::promise<Status> done;
    transport.exchange(identity, std::move(transfer),
                       [&done](Status status) { done.set_value(std::move(status)); });
    TRAIN_RETURN_IF_ERROR(done.get_future().get());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::byte* from = received[rank].data();
      incoming_[rank].advance(received[rank].size(), [&from](std::span<std::byte> piece) {
        std::memcpy(piece.data(), from, piece.size());
        from += piece.size();
      });
    }
    return {};
  }

  const MemoryStart& start_;
  engine::RankEngine& engine_;
  std::string source_;
  std::vector<engine::RankSpan> now_;     // By node.
  std::vector<engine::RankSpan> before_;  // Spans of the writing ranks, by node.
  engine::HostState state_;
  std::vector<StateView> wanted_;
  checkpoint::RowSources sources_;
  std::map<std::pair<const void*, std::int64_t>, bool> whole_;  // Keyed by memory and rank.
  std::uint64_t plan_digest_ = 0;                   // Digest of the writing ranks' plan.
  std::uint64_t longest_ = 0;                       // Maximum size of a transfer between two ranks.
  std::vector<ByteRow<const std::byte>> outgoing_;  // By receiving rank.
  std::vector<ByteRow<std::byte>> incoming_;
};

}  // namespace

Status restore_from_memory(const MemoryStart& start, engine::RankEngine& engine,
                           engine::Collectives* transport, std::uint32_t generation) {
  return MemoryRestore(start, engine).run(transport, generation);
}

}  // namespace train::run
