#include "kernels/device/buffer.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/device/stream.hpp"

namespace train::kernels::buffer_test {
namespace {

TEST_CASE("buffer: memory is aligned, zero and movable", "[kernels][buffer]") {
  for (const std::size_t size : {1UL, 63UL, 64UL, 100'001UL}) {
    Buffer buffer(size, "weights");
    REQUIRE(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    REQUIRE(std::all_of(buffer.data(), buffer.data() + size,
                        [](std::byte byte) { return byte == std::byte{0}; }));
    buffer.as<std::uint8_t>()[size - 1] = 7;
    const std::byte* before = buffer.data();
    const Buffer moved = std::move(buffer);
    REQUIRE(moved.data() == before);
    REQUIRE(moved.size_bytes() == size);
    REQUIRE(moved.name() == "weights");
    REQUIRE(moved.as<std::uint8_t>()[size - 1] == 7);
  }
}

TEST_CASE("buffer: an empty one has no memory", "[kernels][buffer]") {
  REQUIRE(Buffer().data() == nullptr);
  REQUIRE(Buffer(0, "nothing").data() == nullptr);
}

TEST_CASE("buffer: no memory is an error that names buffer and size", "[kernels][buffer]") {
  const auto whole = [] { const Buffer buffer(std::numeric_limits<std::size_t>::max(), "logits"); };
  REQUIRE_THROWS_AS(whole(), DeviceError);
  REQUIRE_THROWS_WITH(whole(),
                      Catch::Contains("'logits'") && Catch::Contains("18446744073709551615 bytes"));
}

}  // namespace
}  // namespace train::kernels::buffer_test
