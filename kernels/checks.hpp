#pragma once

#include <cstdint>

#include "base/check.hpp"

namespace train::kernels {

/// Checks that a kernel with work to do has all of its pointers.
template <class... Pointers>
void require_pointers(const char* kernel, std::int64_t count, const Pointers*... pointers) {
  TRAIN_CHECK(count >= 0, "{}: negative size {}", kernel, count);
  TRAIN_CHECK(count == 0 || (... && (pointers != nullptr)), "{}: null pointer", kernel);
}

}  // namespace train::kernels
