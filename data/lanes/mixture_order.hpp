#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "configs/source_weights.hpp"

namespace train::data {

/// Training row of each position of a step, where several sources are read by weights.
///
/// A block is the rows of one step, R = lanes * micro_batch. A source of weight w among weights of
/// sum W has floor(R w / W) or one more of them; the rows that the floors leave go around evenly,
/// so that W blocks have exactly R w each. Within a block a keyed permutation places the sources,
/// and each source reads its own rows epoch by epoch, in an order of its own, whatever the stages
/// are.
///
/// ST-11 (mixtures): the row is a pure function of (options, step, lane, row), in O(sources +
/// stages * log W) without state. Threading: immutable.
class MixtureOrder {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::uint64_t lanes = 0;
    std::uint64_t micro_batch = 0;
    std::vector<std::uint64_t> rows = {};  ///< Training rows of each source; at least 1.
    std::vector<configs::SourceStage> stages = {};
  };
  struct Draw {
    std::size_t source = 0;
    std::uint64_t number = 0;  ///< Rows that the source has given before.
    std::uint64_t row = 0;

    bool operator==(const Draw&) const = default;
  };

  explicit MixtureOrder(const Options& options);

  /// `step` counts from 0. REQUIRES: lane < lanes, row < micro_batch.
  [[nodiscard]] Draw draw(std::uint64_t step, std::uint64_t lane, std::uint64_t row) const;
  /// Rows of a source that the first `steps` steps read.
  [[nodiscard]] std::uint64_t drawn(std::size_t source, std::uint64_t steps) const;
  /// Row that a source gives as its `number`-th, from 0.
  [[nodiscard]] std::uint64_t row_of(std::size_t source, std::uint64_t number) const;

  [[nodiscard]] std::uint64_t block_rows() const { return block_; }
  [[nodiscard]] std::span<const std::uint64_t> rows() const { return rows_; }

 private:
  struct Share {
    std::size_t source = 0;
    std::uint64_t whole = 0;  ///< Rows of every block, and of `parts` blocks `extra` more.
    std::uint64_t extra = 0;
    std::uint64_t first = 0;  ///< Sum of the extras before it, modulo `parts`.
  };
  struct Stage {
    std::uint64_t from_step = 0;
    std::uint64_t parts = 1;   ///< W.
    std::uint64_t stride = 1;  ///< Coprime to W, so that W blocks have each remainder once.
    std::vector<Share> shares;
  };

  [[nodiscard]] static std::uint64_t rows_in(const Stage& stage, const Share& share,
                                             std::uint64_t block);
  [[nodiscard]] static std::uint64_t rows_before(const Stage& stage, const Share& share,
                                                 std::uint64_t blocks);
  [[nodiscard]] const Stage& stage_of(std::uint64_t step) const;

  std::uint64_t seed_, lanes_, micro_batch_, block_;
  std::vector<std::uint64_t> rows_;
  std::vector<Stage> stages_;
};

}  // namespace train::data
