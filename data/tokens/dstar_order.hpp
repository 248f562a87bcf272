#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// Reading order of the DSTAR trainer's DataReader (one file) and MultiFileDataReader (several) at
/// one rank: a batch row begins at any token of a file, not at multiples of T.
///
/// A file of N tokens has n = (N - T - 1) / T - 1 sequences, n / B batches of B rows per epoch; the
/// last n % B sequences of an epoch's order are skipped. Epoch e of file f draws, from
/// NumpyGenerator(seed + e + 1000 f), a permutation of n and then one offset below T: row r of
/// batch j is order[j * B + r] * T + offset. One file is read epoch after epoch; several are read
/// in turn, epoch 0 of each, and then again from the first.
///
/// ST-10 (the reference's order): a row's place is a pure function of (seed, files, T, B, batch,
/// row), not of ranks or of earlier reads, so that resuming needs no state. Threading: thread-safe.
/// Memory: the last permutation, 4 bytes per sequence (8 from 2^32 on); a call for another one
/// computes it, in O(n).
class DstarOrder {
 public:
  struct File {
    std::filesystem::path path;  ///< For messages.
    std::uint64_t tokens = 0;
  };
  struct Options {
    std::uint64_t seed = 1337;
    std::uint64_t sequence_length = 0;  ///< T, at least 1 and below 2^32.
    std::uint64_t micro_batch = 0;      ///< B, at least 1.
  };
  struct Place {
    std::size_t file = 0;
    std::uint64_t token = 0;  ///< Position of the first token in the file.

    bool operator==(const Place&) const = default;
  };

  /// Errors (user): a file with fewer than B sequences, which the reference cannot read either.
  static Result<DstarOrder> make(const std::vector<File>& files, const Options& options);

  DstarOrder(DstarOrder&&) noexcept;
  DstarOrder& operator=(DstarOrder&&) noexcept;
  ~DstarOrder();

  /// `batch` counts from 0 over the whole run: step * lanes + lane. REQUIRES: row < B.
  [[nodiscard]] Place place(std::uint64_t batch, std::uint64_t row) const;
  /// Number of batches in one epoch over all files.
  [[nodiscard]] std::uint64_t batches() const;

 private:
  struct State;
  explicit DstarOrder(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace train::data
