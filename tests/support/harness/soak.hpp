#pragma once

#include <cstdint>
#include <cstdlib>

namespace train::test {

/// Factor on the repetitions of a randomized case: greater than 1 under `./dev test soak`.
inline std::uint64_t soak_factor() {
  const char* const text = std::getenv("ACTORTRAIN_SOAK");
  const long factor = text == nullptr ? 1 : std::atol(text);
  return factor < 1 ? 1 : static_cast<std::uint64_t>(factor);
}

}  // namespace train::test
