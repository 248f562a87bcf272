// Which devices the kernels run on, and what a kernel keeps once it has been given it.
#include <catch2/catch.hpp>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/cuda_stream.hpp"
#include "tests/cuda_emulation/block.hpp"

namespace train::kernels {

TEST_CASE("cuda device: one that the kernels do not run on is refused in a line", "[emulation]") {
  CHECK(refusal_of({.major = 8, .minor = 0, .shared_bytes = 163 << 10}).empty());
  CHECK(refusal_of({.major = 9, .minor = 0, .shared_bytes = 227 << 10}).empty());
  CHECK_THAT(refusal_of({.major = 7, .minor = 5, .shared_bytes = 64 << 10}),
             Catch::Contains("compute capability 7.5"));
  CHECK_THAT(refusal_of({.major = 10, .minor = 0, .shared_bytes = 227 << 10}),
             Catch::Contains("compute capability 10.0"));
  CHECK(refusal_of({.major = 8, .minor = 9, .shared_bytes = 99 << 10}) ==
        "CUDA device 0 (compute capability 8.9) has 99 KiB of shared memory for a block; attention "
        "takes 162");
}

TEST_CASE("cuda device: what a kernel may have of shared memory never becomes less",
          "[emulation]") {
  const int kernel = 0;
  raise_shared_limit(&kernel, 100 << 10);
  raise_shared_limit(&kernel, 60 << 10);  // Of another stream, between the first one's two calls.
  CHECK_NOTHROW(cuda_emulation::check_shared(&kernel, 100 << 10));
  raise_shared_limit(&kernel, 120 << 10);
  CHECK_NOTHROW(cuda_emulation::check_shared(&kernel, 120 << 10));
  CHECK_THROWS(cuda_emulation::check_shared(&kernel, 121 << 10));
}

}  // namespace train::kernels
