#pragma once

#include <cstdint>
#include <string>

namespace train {

/// "1.5 GiB", "640 B": for people, never for parsing.
[[nodiscard]] std::string format_bytes(std::uint64_t size_bytes);
/// "12.3 M", "970": counts with a decimal prefix.
[[nodiscard]] std::string format_count(double count);
/// "1h02m", "3m12s", "4.2s".
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace train
