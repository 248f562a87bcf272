// What ways to compute a product are compared by, on the emulated device.
#include "kernels/gemm/product_trial.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <set>
#include <utility>
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

TEST_CASE("product trial: a matrix is filled, and what lies between its rows is left alone",
          "[kernels][cuda][emulation]") {
  const auto stream = cuda_backend()->device->make_stream("trial", 1);
  const std::vector<float> before(5 * 40, -7.0F);
  const Buffer memory = on_device(before.size() * sizeof(float));
  cuda_backend()->device->copy(memory.data(), before.data(), memory.size_bytes());
  stream->submit([&] {
    cuda::fill_with_random(cuda_stream_of(*stream),
                           {.data = memory.data(), .rows = 5, .cols = 33, .stride = 40});
  });
  stream->synchronize();
  const auto values = read<float>(memory);
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i);
    const bool inside = i % 40 < 33;
    REQUIRE((std::abs(values[i]) >= 0.5F && std::abs(values[i]) < 1.0F) == inside);
    REQUIRE((values[i] == -7.0F) != inside);
  }
}

/// Words of a matrix of rows of 64 of which 60 are its own, and their fold.
struct Folded {
  static constexpr std::int64_t rows = 700, cols = 60, stride = 64;
  std::unique_ptr<Stream> stream = cuda_backend()->device->make_stream("trial", 1);

  template <class Word>
  [[nodiscard]] unsigned long long fold(const std::vector<Word>& words, DType dtype) const {
    const Buffer memory = on_device(words.size() * sizeof(Word));
    const Buffer sum = on_device(sizeof(unsigned long long));
    cuda_backend()->device->copy(memory.data(), words.data(), memory.size_bytes());
    stream->submit([&] {
      cuda::fold_bits(
          cuda_stream_of(*stream),
          {.data = memory.data(), .rows = rows, .cols = cols, .stride = stride, .dtype = dtype},
          sum.as<unsigned long long>());
    });
    stream->synchronize();
    return read<unsigned long long>(sum).front();
  }
};

TEMPLATE_TEST_CASE("product trial: a fold tells every bit and every place apart",
                   "[kernels][cuda][emulation][P1]", std::uint16_t, std::uint32_t) {
  const Folded of;
  const DType dtype = sizeof(TestType) == 2 ? DType::bf16 : DType::f32;
  std::vector<TestType> words(Folded::rows * Folded::stride);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<TestType>(i * 40503U + 11U);
  }
  const unsigned long long expected = of.fold(words, dtype);
  CHECK(of.fold(words, dtype) == expected);
  std::set<unsigned long long> seen = {expected};
  const auto differs = [&](const std::vector<TestType>& other) {
    CHECK(seen.insert(of.fold(other, dtype)).second);
  };
  const std::size_t last = (Folded::rows - 1) * Folded::stride + Folded::cols - 1;
  for (const std::size_t place : {std::size_t{0}, std::size_t{59}, std::size_t{64}, last}) {
    for (std::size_t bit = 0; bit < 8 * sizeof(TestType); ++bit) {
      std::vector<TestType> other = words;
      other[place] ^= static_cast<TestType>(TestType{1} << bit);
      differs(other);
    }
  }
  std::vector<TestType> swapped = words;  // The same values elsewhere.
  std::swap(swapped[3], swapped[4]);
  differs(swapped);
  std::vector<TestType> two = words;  // A difference that a plain sum would lose.
  two[10] += 1;
  two[11] -= 1;
  differs(two);
  std::vector<TestType> between = words;  // What is not of the matrix.
  between[60] ^= 1U;
  between[63] ^= 1U;
  CHECK(of.fold(between, dtype) == expected);
}

}  // namespace
}  // namespace train::kernels
