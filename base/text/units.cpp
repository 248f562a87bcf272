#include "base/text/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace train {

std::string format_bytes(std::uint64_t size_bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(size_bytes);
  std::size_t unit = 0;
  // The limit is where the printed value would round up to the next unit.
  while (value >= (unit == 0 ? 1024.0 : 1023.95) && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", size_bytes)
                   : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_count(double count) {
  static constexpr std::array<const char*, 7> kPrefixes = {"", " k", " M", " G", " T", " P", " E"};
  std::size_t prefix = 0;
  while (std::abs(count) >= (prefix == 0 ? 999.5 : 999.995) && prefix + 1 < kPrefixes.size()) {
    count /= 1000.0;
    ++prefix;
  }
  return prefix == 0 ? fmt::format("{:.0f}", count)
                     : fmt::format("{:.2f}{}", count, kPrefixes[prefix]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) {
    return "-";
  }
  if (seconds < 59.95) {
    return fmt::format("{:.1f}s", seconds);
  }
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) {
    return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  }
  return fmt::format("{}h{:02}m", whole / 3600, (whole % 3600) / 60);
}

}  // namespace train
