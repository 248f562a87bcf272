#include "checkpoint/models/merged_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "base/process/core_shares.hpp"
#include "checkpoint/models/ordered_sums.hpp"

namespace train::checkpoint {
namespace {

/// Elements of each model in a piece: few enough that those of all models stay in a core's cache
/// between reading and summing, which takes a quarter of the time that memory would.
constexpr std::int64_t kPieceElements = std::int64_t{1} << 15;

}  // namespace

/// Rows of a parameter, and where their sums go.
struct MergedWeights::Piece {
  const engine::Parameter& parameter;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::span<float> out;

  /// The rows [begin, end) of the parameter, which are some of these.
  [[nodiscard]] Piece part(std::int64_t begin, std::int64_t end) const {
    const auto size_of = [this](std::int64_t count) {
      return static_cast<std::size_t>(count * parameter.cols());
    };
    return {parameter, begin, end - begin,
            out.subspan(size_of(begin - first_row), size_of(end - begin))};
  }
};

Status MergedWeights::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                                std::int64_t rows, std::span<float> out) const {
  TRAIN_CHECK(!models_.empty());
  const std::vector<Piece> pieces = pieces_of({parameter, first_row, rows, out});
  if (!whole_) {
    // Each core reads a piece of every model and adds them up, then takes the next piece.
    return try_on_cores(pieces.size(), [&](std::size_t i) -> Status {
      const std::size_t size = pieces[i].out.size();
      const auto values = std::make_unique_for_overwrite<float[]>(models_.size() * size);
      for (std::size_t m = 0; m < models_.size(); ++m) {
        TRAIN_RETURN_IF_ERROR(models_[m].weights->read_rows(
            parameter, pieces[i].first_row, pieces[i].rows, {values.get() + m * size, size}));
      }
      return add_up(pieces[i], values.get(), size);
    });
  }
  const std::size_t size = out.size();
  const auto values = std::make_unique_for_overwrite<float[]>(models_.size() * size);
  TRAIN_RETURN_IF_ERROR(try_on_cores(models_.size(), [&](std::size_t m) {
    return models_[m].weights->read_rows(parameter, first_row, rows,
                                         {values.get() + m * size, size});
  }));
  return try_on_cores(pieces.size(), [&](std::size_t i) {
    return add_up(pieces[i], values.get() + (pieces[i].out.data() - out.data()), size);
  });
}

std::vector<MergedWeights::Piece> MergedWeights::pieces_of(const Piece& all) const {
  const std::int64_t step = std::max<std::int64_t>(1, kPieceElements / all.parameter.cols());
  const std::int64_t last = all.first_row + all.rows;
  std::vector<Piece> pieces;
  for (std::int64_t row = all.first_row; row < last; row += pieces.back().rows) {
    const std::int64_t end = models_.front().weights->piece_end(all.parameter, row, step);
    pieces.push_back(all.part(row, std::min(end, last)));
  }
  return pieces;
}

Status MergedWeights::add_up(const Piece& piece, const float* values, std::size_t apart) const {
  std::vector<WeightedValues> columns;
  for (std::size_t m = 0; m < models_.size(); ++m) {
    columns.push_back({values + m * apart, models_[m].share});
  }
  ordered_sums(columns, piece.out);
  const bool finite = std::ranges::all_of(piece.out, [](float sum) { return std::isfinite(sum); });
  return finite ? Status()
                : user_error(fmt::format("the merged {} is not finite", piece.parameter.name));
}

}  // namespace train::checkpoint
