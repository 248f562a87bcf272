#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process/steady_time.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "kernels/device/trace.hpp"
#include "run/events/observed.hpp"

namespace train::actors {

/// Progress of a rank in a command.
struct CommandProgress {
  std::uint64_t sequence = 0;
  engine::CommandName name = engine::kStopName;
  std::int64_t step = -1;     ///< Its step, or the step before it; -1: none.
  std::int64_t since_ns = 0;  ///< Begin on the rank actor, steady clock.
};

struct ChannelProgress {
  run::ChannelPhase phase = run::ChannelPhase::unasked;
  engine::CollectiveOp op;
  CommandProgress command;
  std::vector<std::int32_t> from;  ///< Ranks whose bytes have arrived (moving).
  std::int64_t since_ns = 0;       ///< Begin of the phase, steady clock.
};

/// Progress of a rank in its commands and channels: recorded by its actors, sent to the head by the
/// watchdog. Threading: safe from any thread; nothing blocks for long.
class RankBoard {
 public:
  struct Snapshot {
    std::optional<CommandProgress> command;  ///< Newest begun command.
    std::int64_t finished = -1;              ///< Sequence of the newest executed one; -1: none.
    std::int64_t queued = 0;                 ///< Commands not yet begun by the rank actor.
    std::array<std::optional<ChannelProgress>, engine::kChannelCount> channels;
  };

  void begin_command(const CommandProgress& command, std::int64_t queued);
  void queue_commands(std::int64_t queued);
  void finish_command(std::uint64_t sequence);
  /// `place`: nullopt if the collectives of all begun commands are done.
  void place(engine::Channel channel, const std::optional<ChannelProgress>& place);

  [[nodiscard]] Snapshot look() const;

 private:
  mutable std::mutex mutex_;
  Snapshot state_;
};

/// Table of the actors' current waits: each parked actor writes its own line, the watchdog reads
/// all. Also counts the credits in use. Threading: add() before the actors run; begin/end by
/// the line's owner; waiting() and held() from any thread. Nothing here blocks.
class WaitTable {
 public:
  /// Credits of one kind: their limit and the number in use.
  struct Held {
    const char* what = "";
    std::int64_t in_use = 0;
    std::int64_t limit = 0;
  };

  /// Entry of one kind of credits. Copyable handle; the table outlives it.
  class Credits {
   public:
    void in_use(std::int64_t count) { state_->in_use.store(count, std::memory_order_relaxed); }

   private:
    friend class WaitTable;
    struct State {
      const char* what = "";
      std::int64_t limit = 0;
      std::atomic<std::int64_t> in_use{0};
    };
    explicit Credits(State* state) : state_(state) {}
    State* state_;
  };

  struct Wait {
    std::string who;
    const char* what = "";
    std::int64_t step = -1;
    std::int64_t since_ns = 0;  ///< Steady clock.
  };

  /// Finished wait. Steady clock, ns.
  struct Past {
    const char* what = "";
    std::int64_t step = -1;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
  };

  /// Finished waits of one actor, in order.
  struct History {
    std::string who;
    std::vector<Past> waits;
    std::uint64_t dropped = 0;  ///< Older waits dropped for lack of room.
  };

  /// Line of one actor. Copyable handle; the table outlives it.
  class Line {
   public:
    /// `what` is a string literal. A repeated begin with the same `what` keeps the first time.
    void begin(const char* what, std::int64_t step);
    void end();

   private:
    friend class WaitTable;
    struct Record {
      explicit Record(std::size_t capacity) : ring(capacity) {}
      std::mutex mutex;  // Protects against readers of the history.
      kernels::TraceRing<Past> ring;
    };
    struct State {
      std::string who;
      std::unique_ptr<Record> record;  // None: finished waits are not recorded.
      std::atomic<const char*> what{nullptr};
      std::atomic<std::int64_t> step{-1};
      std::atomic<std::int64_t> since_ns{0};
    };
    explicit Line(State* state) : state_(state) {}
    void keep() const;
    State* state_;
  };

  /// Lines added after this call record their newest `capacity` waits.
  void record(std::size_t capacity) { capacity_ = capacity; }
  [[nodiscard]] Line add(std::string who);
  /// `what` is a string literal.
  [[nodiscard]] Credits add_credits(const char* what, std::int64_t limit);
  [[nodiscard]] std::vector<Wait> waiting() const;
  [[nodiscard]] std::vector<Held> held() const;
  /// Histories of the recorded lines; a current wait ends at `now_ns`. From any thread.
  [[nodiscard]] std::vector<History> history(std::int64_t now_ns) const;

 private:
  std::size_t capacity_ = 0;
  std::deque<Line::State> lines_;  // A deque, as lines must never move.
  std::deque<Credits::State> credits_;
};

/// Limit on records per stream, per actor's waits, and of the collectives.
inline constexpr std::size_t kTraceCapacity = 200'000;

/// Collective of a rank. Steady clock, ns.
struct CollectiveRecord {
  engine::Channel channel = engine::Channel::control;
  engine::CollectiveKind kind = engine::CollectiveKind::loss_and_norm;
  std::uint64_t command = 0;  ///< Number of its command.
  std::uint32_t index = 0;    ///< Index in its channel within the command.
  std::int32_t group = -1;
  std::int32_t part = -1;
  std::int64_t requested_ns = 0;
  std::int64_t begin_ns = 0;     ///< Handed to the transport.
  std::int64_t end_ns = 0;       ///< End: its result is usable.
  std::uint64_t sent_bytes = 0;  ///< Bytes to other ranks.
};

/// Command, from its start on the compute stream to its completion there.
struct CommandRecord {
  std::int32_t name = 0;  ///< Index into RankProfile::command_names.
  std::uint64_t command = 0;
  std::int64_t step = -1;  ///< Training step, from 0; else -1.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// Records of a rank's commands and collectives in a profiled run; its streams and its wait table
/// record the rest. Threading: safe from any thread; nothing blocks for long.
class RankTrace {
 public:
  explicit RankTrace(std::size_t capacity) : commands_(capacity), collectives_(capacity) {}

  /// Records that the compute stream has reached a command, or has completed the one before.
  void begin_command(const CommandRecord& command);
  void end_command(std::int64_t now_ns);
  void add(const CollectiveRecord& collective);

  template <class Record>
  struct Kept {
    std::vector<Record> records;
    std::uint64_t dropped = 0;  ///< Older records dropped for lack of room.
  };
  /// Finished commands.
  [[nodiscard]] Kept<CommandRecord> commands() const;
  [[nodiscard]] Kept<CollectiveRecord> collectives() const;

 private:
  mutable std::mutex mutex_;
  CommandRecord open_;
  kernels::TraceRing<CommandRecord> commands_;
  kernels::TraceRing<CollectiveRecord> collectives_;
};

}  // namespace train::actors
