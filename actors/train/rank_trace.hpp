#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/collective/collective_schedule.hpp"
#include "kernels/device/trace.hpp"

namespace train::actors {

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
  engine::CommandKind kind = engine::CommandKind::stop;
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
