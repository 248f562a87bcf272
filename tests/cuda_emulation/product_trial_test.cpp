// What ways to compute a product are compared by, on the emulated device.
#include "kernels/gemm/product_trial.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"

namespace train::kernels {
namespace {

/// What is in the device's memory.
template <class T>
std::vector<T> read(const Buffer& buffer) {
  std::vector<T> values(buffer.size_bytes() / sizeof(T));
  cuda_backend()->device->copy(values.data(), buffer.data(), buffer.size_bytes());
  return values;
}

Buffer on_device(std::size_t size_bytes) {
  return {size_bytes, "trial", cuda_backend()->device->memory};
}

TEST_CASE("product trial: operands are values of either sign in [0.5, 1), hardly two the same",
          "[kernels][cuda][emulation]") {
  constexpr std::size_t count = 5000;
  const auto stream = cuda_backend()->device->make_stream("trial", 1);
  const Buffer full = on_device(count * sizeof(float));
  const Buffer half = on_device(count * sizeof(std::uint16_t));
  stream->submit([&] {
    cuda::fill_with_random(cuda_stream_of(*stream), full.data(), count, DType::f32);
    cuda::fill_with_random(cuda_stream_of(*stream), half.data(), count, DType::bf16);
  });
  stream->synchronize();
  const auto values = read<float>(full);
  const auto halves = read<std::uint16_t>(half);
  std::size_t negative = 0;
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE((std::abs(values[i]) >= 0.5F && std::abs(values[i]) < 1.0F));
    negative += values[i] < 0.0F ? 1 : 0;
    const float rounded = std::bit_cast<float>(std::uint32_t{halves[i]} << 16U);
    REQUIRE(rounded == Approx(values[i]).epsilon(0.005));
  }
  CHECK(negative > count / 3);
  CHECK(negative < count * 2 / 3);
  CHECK(std::set<float>(values.begin(), values.end()).size() > count * 99 / 100);
}

TEST_CASE("product trial: every word that differs is counted", "[kernels][cuda][emulation]") {
  constexpr std::size_t count = 3000;
  const auto stream = cuda_backend()->device->make_stream("trial", 1);
  std::vector<std::uint32_t> words(count, 7);
  const Buffer left = on_device(count * sizeof(std::uint32_t));
  const Buffer right = on_device(count * sizeof(std::uint32_t));
  const Buffer found = on_device(sizeof(std::uint32_t));
  cuda_backend()->device->copy(left.data(), words.data(), left.size_bytes());
  words.front() ^= 1U;
  words[1500] ^= 0x80000000U;
  words.back() ^= 0x10000U;
  cuda_backend()->device->copy(right.data(), words.data(), right.size_bytes());
  const auto differences = [&](const Buffer& other) {
    stream->submit([&] {
      cuda::count_differences(cuda_stream_of(*stream), left.data(), other.data(), count,
                              found.as<std::uint32_t>());
    });
    stream->synchronize();
    return read<std::uint32_t>(found).front();
  };
  CHECK(differences(left) == 0);
  CHECK(differences(right) == 3);
}

}  // namespace
}  // namespace train::kernels
