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

#include "base/steady_time.hpp"
#include "engine/collective/collective_schedule.hpp"
#include "kernels/device/trace.hpp"

namespace train::actors {

/// A command as a rank follows it.
struct CommandProgress {
  std::uint64_t sequence = 0;
  engine::CommandName name = engine::kStopName;
  std::int64_t step = -1;     ///< Index of the step it is of, or comes after; -1: of none.
  std::int64_t since_ns = 0;  ///< Steady clock: when the rank actor began it.
};

/// How far a rank is with the oldest collective of a channel that is not over.
enum class ChannelPhase : std::uint8_t {
  unasked,  ///< Nobody on this rank has asked for it.
  slot,     ///< Asked for; it waits for its staging slot.
  packing,  ///< A stream gets ready what it sends.
  moving,   ///< The bytes are on their way.
};

struct ChannelProgress {
  ChannelPhase phase = ChannelPhase::unasked;
  engine::CollectiveOp op;
  CommandProgress command;
  std::vector<std::int32_t> from;  ///< Ranks it has bytes from (moving).
  std::int64_t since_ns = 0;       ///< Steady clock: of the phase.
};

/// How far a rank has got with its commands and in its channels: what its actors note down, and
/// the watchdog tells the head. Threading: safe from any thread; nothing blocks for long.
class RankBoard {
 public:
  struct Snapshot {
    std::optional<CommandProgress> command;  ///< The newest that was begun.
    std::int64_t finished = -1;              ///< Sequence of the newest that has run; -1: none.
    std::int64_t queued = 0;                 ///< Commands that the rank actor has not begun.
    std::array<std::optional<ChannelProgress>, engine::kChannelCount> channels;
  };

  void begin_command(const CommandProgress& command, std::int64_t queued);
  void queue_commands(std::int64_t queued);
  void finish_command(std::uint64_t sequence);
  /// `place`: none when all begun commands have had theirs.
  void place(engine::Channel channel, const std::optional<ChannelProgress>& place);

  [[nodiscard]] Snapshot look() const;

 private:
  mutable std::mutex mutex_;
  Snapshot state_;
};

/// Who waits for what, and since when: every parked actor writes its own line, the watchdog reads
/// all. And how many of which credits are held. Threading: add() before the actors run; begin/end
/// by the line's owner; waiting() and held() from any thread. Nothing here blocks.
class WaitBoard {
 public:
  /// Credits of one kind: how many there are, and how many are held.
  struct Held {
    const char* what = "";
    std::int64_t in_use = 0;
    std::int64_t limit = 0;
  };

  /// One kind's entry. Copyable handle; the board outlives it.
  class Credits {
   public:
    void in_use(std::int64_t count) { state_->in_use.store(count, std::memory_order_relaxed); }

   private:
    friend class WaitBoard;
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

  /// A wait that is over. Steady clock, ns.
  struct Past {
    const char* what = "";
    std::int64_t step = -1;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
  };

  /// The waits of one actor; they follow one another.
  struct History {
    std::string who;
    std::vector<Past> waits;
    std::uint64_t dropped = 0;  ///< Older ones that there was no room for.
  };

  /// One actor's line. Copyable handle; the board outlives it.
  class Line {
   public:
    /// `what` is a string literal. Beginning again while waiting keeps the older time for the same
    /// `what`.
    void begin(const char* what, std::int64_t step);
    void end();

   private:
    friend class WaitBoard;
    struct Record {
      explicit Record(std::size_t capacity) : ring(capacity) {}
      std::mutex mutex;  // the owner writes, whoever wants the history reads
      kernels::TraceRing<Past> ring;
    };
    struct State {
      std::string who;
      std::unique_ptr<Record> record;  // none: what is over is forgotten
      std::atomic<const char*> what{nullptr};
      std::atomic<std::int64_t> step{-1};
      std::atomic<std::int64_t> since_ns{0};
    };
    explicit Line(State* state) : state_(state) {}
    void keep() const;
    State* state_;
  };

  /// Lines added from here on keep their newest `capacity` waits.
  void record(std::size_t capacity) { capacity_ = capacity; }
  [[nodiscard]] Line add(std::string who);
  /// `what` is a string literal.
  [[nodiscard]] Credits add_credits(const char* what, std::int64_t limit);
  [[nodiscard]] std::vector<Wait> waiting() const;
  [[nodiscard]] std::vector<Held> held() const;
  /// Of the recorded lines; a wait under way ends at `now_ns`. From any thread.
  [[nodiscard]] std::vector<History> history(std::int64_t now_ns) const;

 private:
  std::size_t capacity_ = 0;
  std::deque<Line::State> lines_;  // a deque: lines never move
  std::deque<Credits::State> credits_;
};

/// Records kept of each stream, of each actor's waits, and of the collectives.
inline constexpr std::size_t kTraceCapacity = 200'000;

/// One collective of a rank. Steady clock, ns.
struct CollectiveRecord {
  engine::Channel channel = engine::Channel::control;
  engine::CollectiveKind kind = engine::CollectiveKind::loss_and_norm;
  std::uint64_t command = 0;  ///< Number of its command.
  std::uint32_t index = 0;    ///< In its channel, within the command.
  std::int32_t group = -1;
  std::int32_t part = -1;
  std::int64_t requested_ns = 0;
  std::int64_t begin_ns = 0;     ///< Handed to the transport.
  std::int64_t end_ns = 0;       ///< What it brought may be used.
  std::uint64_t sent_bytes = 0;  ///< To other ranks.
};

/// One command, from when the compute stream came to it until it had run all of it.
struct CommandRecord {
  std::int32_t name = 0;  ///< Index into RankProfile::command_names.
  std::uint64_t command = 0;
  std::int64_t step = -1;  ///< Of a training step, from 0; else -1.
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// What a rank keeps of its commands and collectives while a run is profiled; its streams and its
/// wait board keep the rest. Threading: safe from any thread; nothing blocks for long.
class RankTrace {
 public:
  explicit RankTrace(std::size_t capacity) : commands_(capacity), collectives_(capacity) {}

  /// The compute stream has come to a command, or has run all of the one before.
  void begin_command(const CommandRecord& command);
  void end_command(std::int64_t now_ns);
  void add(const CollectiveRecord& collective);

  template <class Record>
  struct Kept {
    std::vector<Record> records;
    std::uint64_t dropped = 0;  ///< Older ones that there was no room for.
  };
  /// Those that are over.
  [[nodiscard]] Kept<CommandRecord> commands() const;
  [[nodiscard]] Kept<CollectiveRecord> collectives() const;

 private:
  mutable std::mutex mutex_;
  CommandRecord open_;
  kernels::TraceRing<CommandRecord> commands_;
  kernels::TraceRing<CollectiveRecord> collectives_;
};

}  // namespace train::actors
