#pragma once

#include <csetjmp>
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
  static constexpr std::size_t stack_bytes = 64 << 10;

  enum class State : std::uint8_t { ready, at_warp, at_block, at_barrier, at_threads, done };
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
  std::jmp_buf turn_of;    // Where it goes on.
  bool has_begun = false;  // On its stack; turn_of is set.
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
