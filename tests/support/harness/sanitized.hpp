#pragma once

extern "C" {
// Weak: defined where the program is linked with the sanitizer.
void __asan_init() __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)
void __tsan_init() __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)
}

namespace train::test {

/// True in a program that the sanitizer of addresses or that of threads watches, though this file
/// be compiled without: they take all address space and keep freed memory, so sizes and counts are
/// meaningless under them.
[[nodiscard]] inline bool sanitized() { return __asan_init != nullptr || __tsan_init != nullptr; }

}  // namespace train::test
