#include "actors/system/streams.hpp"

#include <exception>

#include "actors/system/background_io.hpp"

namespace train::actors {
namespace {

/// Ends the process, by std::terminate, with the cause of a failure that nobody else takes: the
/// actor that waits for the work would wait for ever.
void end_with(const kernels::StreamFailure& failure) noexcept {
  std::rethrow_exception(failure.error);
}

std::unique_ptr<kernels::Stream> make_thread_stream(const char* name, int threads) {
  auto stream = kernels::make_thread_stream(name, threads);
  stream->on_failure(end_with);
  return stream;
}

}  // namespace

std::unique_ptr<kernels::Stream> make_stream(StreamKind kind, const char* name, int threads) {
  return kind == StreamKind::threads ? make_thread_stream(name, threads)
                                     : kernels::make_inline_stream(threads);
}

std::unique_ptr<kernels::Stream> make_stream(const kernels::Device& device, StreamKind kind,
                                             const char* name, int threads) {
  return device.is_host() ? make_stream(kind, name, threads) : device.make_stream(name, threads);
}

std::unique_ptr<kernels::Stream> make_disk_stream() {
  auto stream = make_thread_stream("disk", 1);
  stream->enqueue(take_smallest_share);
  return stream;
}

}  // namespace train::actors
