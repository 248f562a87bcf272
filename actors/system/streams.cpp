#include "actors/system/streams.hpp"

#include "actors/system/background_io.hpp"

namespace train::actors {

std::unique_ptr<kernels::Stream> make_stream(StreamKind kind, const char* name, int threads) {
  return kind == StreamKind::threads ? kernels::make_thread_stream(name, threads)
                                     : kernels::make_inline_stream(threads);
}

std::unique_ptr<kernels::Stream> make_stream(const kernels::Device& device, StreamKind kind,
                                             const char* name, int threads) {
  return device.is_host() ? make_stream(kind, name, threads) : device.make_stream(name, threads);
}

std::unique_ptr<kernels::Stream> make_disk_stream() {
  auto stream = kernels::make_thread_stream("disk", 1);
  stream->enqueue(take_smallest_share);
  return stream;
}

}  // namespace train::actors
