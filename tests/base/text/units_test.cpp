#include "base/text/units.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

namespace train {
namespace {

TEST_CASE("units: bytes take the binary prefix below 1024", "[base][units]") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.0 KiB");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes((1U << 20) - 1) == "1.0 MiB");
  CHECK(format_bytes(std::uint64_t{3} << 30) == "3.0 GiB");
  // The largest prefix takes what is left.
  CHECK(format_bytes(std::numeric_limits<std::uint64_t>::max()) == "16777216.0 TiB");
}

TEST_CASE("units: counts take the decimal prefix", "[base][units]") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(970) == "970");
  CHECK(format_count(1000) == "1.00 k");
  CHECK(format_count(999.7) == "1.00 k");
  CHECK(format_count(999999) == "1.00 M");
  CHECK(format_count(12345678) == "12.35 M");
  CHECK(format_count(-2500) == "-2.50 k");
}

TEST_CASE("units: durations use two units at most", "[base][units]") {
  CHECK(format_duration(4.2) == "4.2s");
  CHECK(format_duration(59.94) == "59.9s");
  CHECK(format_duration(60) == "1m00s");
  CHECK(format_duration(59.99) == "1m00s");
  CHECK(format_duration(192) == "3m12s");
  CHECK(format_duration(3600) == "1h00m");
  CHECK(format_duration(3720) == "1h02m");
  CHECK(format_duration(-1) == "-");
  CHECK(format_duration(std::nan("")) == "-");
}

}  // namespace
}  // namespace train
