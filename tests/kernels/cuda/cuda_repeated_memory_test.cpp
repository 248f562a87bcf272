// Memory that looks longer than it is, on a device.
#include "kernels/device/repeated_memory.hpp"
#include "kernels/gemm/matmul.hpp"

#include <vector>

#include "kernels/device/device_gate.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_repeated_memory_test {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

std::size_t used_bytes() { return cuda_backend()->device->memory_use().used_bytes; }

TEST_CASE("repeated memory: a piece comes again and again, and takes the room of one",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  constexpr std::size_t piece_bytes = 6 * mebibyte;
  constexpr std::size_t size_bytes = 2000 * mebibyte + 3;
  const std::size_t before = used_bytes();
  {
    const DeviceGate::Call call;
    const auto memory = RepeatedMemory::make(size_bytes, piece_bytes);
    REQUIRE(memory != nullptr);
    REQUIRE(memory->piece_bytes() >= piece_bytes);
    CHECK(memory->piece_bytes() < 2 * piece_bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory->data()) % 256 == 0);
    CHECK(used_bytes() < before + 100 * mebibyte);
    const std::vector<std::uint32_t> written = {3, 1, 4, 1, 5, 9, 2, 6};
    const std::size_t bytes = written.size() * sizeof(written[0]);
    auto* const begin = static_cast<std::byte*>(memory->data());
    cuda_backend()->device->copy(begin, written.data(), bytes);
    for (std::size_t at = 0; at + bytes <= size_bytes; at += memory->piece_bytes()) {
      std::vector<std::uint32_t> read(written.size());
      cuda_backend()->device->copy(read.data(), begin + at, bytes);
      REQUIRE(read == written);
    }
  }
  CHECK(used_bytes() < before + 10 * mebibyte);
}

TEST_CASE("repeated memory: what is no longer than a piece is plain memory",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  const DeviceGate::Call call;
  const auto memory = RepeatedMemory::make(1000, mebibyte);
  REQUIRE(memory != nullptr);
  CHECK(memory->piece_bytes() == 1000);
}

TEST_CASE("repeated memory: a trial of large products leaves nothing on the device",
          "[kernels][cuda][matmul][.gpu]") {
  if (no_device()) {
    return;
  }
  // Operands of 128 MiB and a result of 256, which the trial of a sum has once more.
  constexpr std::int64_t n = 8192;
  const auto memory = [](std::size_t size_of_one) {
    return Buffer(at(n * n) * size_of_one, "test", MemoryKind::device);
  };
  const Buffer a = memory(sizeof(std::uint16_t));
  const Buffer b = memory(sizeof(std::uint16_t));
  const Buffer c = memory(sizeof(float));
  const auto stream = make_cuda_stream("cuda");
  const auto product = [&](bool accumulate) {
    cuda_backend()->matmul(*stream, {.a = a.data(),
                                     .b = b.data(),
                                     .c = c.data(),
                                     .m = n,
                                     .n = n,
                                     .k = n,
                                     .lda = n,
                                     .ldb = n,
                                     .ldc = n,
                                     .accumulate = accumulate,
                                     .dtype = DType::bf16});
    stream->synchronize();
  };
  const auto is_zero = [&] {  // As operands are: what a trial left there is not added to.
    std::vector<float> first(1000, 1.0F);
    cuda_backend()->device->copy(first.data(), c.data(), first.size() * sizeof(float));
    return first == std::vector<float>(first.size(), 0.0F);
  };
  product(false);
  CHECK(is_zero());
  const std::size_t before = used_bytes();  // The library's code stays, and is there by now.
  product(true);
  CHECK(used_bytes() < before + 64 * mebibyte);
  CHECK(is_zero());
}

}  // namespace
}  // namespace train::kernels::testing::cuda_repeated_memory_test
