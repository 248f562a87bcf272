#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/cuda_emulation/block.hpp"

namespace cuda_emulation {

/// A thread of the emulated device: its stack, where it goes on, and what it has begun and not
/// waited for. Owned by its block.
struct Thread {
  // No power of two: the ends of all stacks would take the same few places of the caches.
  static constexpr std::size_t stack_bytes = (64 << 10) + 13 * 64;

  enum class State : std::uint8_t { ready, at_warp, at_block, at_barrier, at_threads, done };
  std::unique_ptr<std::byte[]> stack;
  void* goes_on = nullptr;  // In its stack; null: at its beginning.
  State state = State::done;
  std::uint32_t barrier = 0;  ///< That it waits at, and for which phase to be over;
  unsigned parity = 0;
  unsigned id = 0;  ///< or with which threads.
  Index index;
  struct Copy {
    std::uint32_t to = 0;
    const void* from = nullptr;
  };
  std::vector<Copy> begun;
  std::deque<std::vector<Copy>> committed;
  std::vector<std::uint32_t> unpublished;  // Chunks that its copies have brought.
  struct Product {
    float* sums = nullptr;
    std::function<void()> run;
  };
  using Products = std::vector<Product>;
  std::map<float*, std::vector<float>> sums_before;  // Of products, the first of which has not run.
  Products products;
  std::deque<Products> product_groups;
  unsigned products_begun = 0;
};

}  // namespace cuda_emulation
