#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device/device.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {

/// Execution of the work on the streams of actors.
enum class StreamKind : std::uint8_t {
  threads,  ///< Each stream is a thread; in production.
  inline_,  ///< Inside enqueue(): tests on the deterministic scheduler.
};

/// Host stream `name`. A failure ends the process, by std::terminate, until on_failure() sets
/// another handler; likewise for the others below.
[[nodiscard]] std::unique_ptr<kernels::Stream> make_stream(StreamKind kind, const char* name,
                                                           int threads = 1);

/// Stream for kernels: a device's kernels run only on the device's stream.
[[nodiscard]] std::unique_ptr<kernels::Stream> make_stream(const kernels::Device& device,
                                                           StreamKind kind, const char* name,
                                                           int threads);

/// Stream for the disk on a thread with the smallest share of a core: disk work can wait, the
/// compute threads cannot. Long work on it goes through BackgroundIo.
[[nodiscard]] std::unique_ptr<kernels::Stream> make_disk_stream();

}  // namespace train::actors
