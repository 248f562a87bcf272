#pragma once

#include <memory>
#include <vector>

#include "actors/train/runtime/rank_runtime.hpp"
#include "tests/support/devices/manual_stream.hpp"

namespace train::test {

/// Streams of a rank, driven by the test.
struct RankStreams {
  ManualStream* compute = nullptr;
  ManualStream* copy = nullptr;
  ManualStream* input = nullptr;
  ManualStream* disk = nullptr;
  ManualStream* reduce = nullptr;  ///< Null for a single rank.

  /// Replaces the rank's own streams; `clock` numbers the work of all ranks.
  static RankStreams install(actors::RankRuntime& runtime, const ManualStream::Clock& clock) {
    const auto replace = [&clock](std::unique_ptr<kernels::Stream>& stream) {
      auto manual = std::make_unique<ManualStream>(clock);
      ManualStream* const borrowed = manual.get();
      stream = std::move(manual);
      return borrowed;
    };
    return {.compute = replace(runtime.compute),
            .copy = replace(runtime.copy),
            .input = replace(runtime.input),
            .disk = replace(runtime.disk),
            .reduce = runtime.reduce ? replace(runtime.reduce) : nullptr};
  }

  /// Adds the streams whose oldest work may run. Work that waits for an event would block the only
  /// thread, so on some streams it only runs in the order of enqueuing: compute and reduce wait for
  /// each other anywhere, but only the update waits for the copies.
  void add_runnable(std::vector<ManualStream*>& runnable) const {
    const auto add = [&runnable](ManualStream* stream, bool may_run) {
      if (may_run && stream->pending() > 0 && !stream->held) {
        runnable.push_back(stream);
      }
    };
    const bool waits_for_copy = compute->next_is("optimizer update") && before(copy, compute);
    add(compute, !waits_for_copy && !(reduce != nullptr && before(reduce, compute)));
    add(copy, before(copy, compute));
    add(input, true);
    add(disk, true);
    if (reduce != nullptr) {
      add(reduce, before(reduce, compute));
    }
  }

 private:
  /// True if the oldest work of `stream` was enqueued before that of `other`.
  static bool before(const ManualStream* stream, const ManualStream* other) {
    return stream->pending() > 0 &&
           (other->pending() == 0 || other->next_ticket() > stream->next_ticket());
  }
};

}  // namespace train::test
