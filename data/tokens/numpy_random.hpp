#pragma once

#include <cstdint>
#include <vector>

namespace train::data {

/// Numbers of NumPy's `default_rng(seed)`, bit for bit: a PCG64 generator seeded by a SeedSequence.
///
/// O'Neill, PCG: a family of simple fast space-efficient statistically good algorithms for random
/// number generation (2014; XSL-RR 128/64), and the same author's seed sequence (2015). Tested
/// against NumPy's own output. Threading: not thread-safe.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint64_t seed);

  std::uint64_t next64();
  /// Returns the low half of a 64-bit draw, then its high half, which is kept for the next call
  /// even across 64-bit draws.
  std::uint32_t next32();
  /// Uniform on [0, max], by masked rejection; uses 32-bit draws if they suffice.
  std::uint64_t interval(std::uint64_t max);
  /// Generator.integers(size): uniform on [0, size), for 1 <= size <= 2^32. Lemire 2019.
  std::uint64_t integers(std::uint64_t size);
  /// Generator.permutation(size), as Index (32 or 64 bits, which size must fit). O(size).
  template <class Index>
  std::vector<Index> permutation(std::uint64_t size);

 private:
  struct Wide {  ///< 128 bits.
    std::uint64_t high = 0;
    std::uint64_t low = 0;
  };
  void advance();

  Wide state_;
  Wide increment_;
  std::uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace train::data
