#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "engine/model/blocks/block.hpp"

namespace train::engine::testing {

/// Layer kind for tests, as the shortest example of one (engine/README.md):
///   y_t = w * mean of x_{t - taps + 1} .. x_t, within the row's document only,
/// w learned, [embedding_dim]. Its decoding state is the last `taps` inputs of each text; it
/// reports the mean square of the means. For the CPU, in fp32.
struct MovingAverageSpec : BlockSpec {
  std::int64_t taps = 3;
  std::string weight = "mix";            ///< Without layer prefix and ".weight".
  std::vector<std::int64_t> shape = {};  ///< Shape of w: its elements in another shape.
  Initializer init = Initializer::constant(1.0);
  double lr_scale = 1.0;
  bool muon = false;
  bool exact = false;

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "moving average"; }
  [[nodiscard]] std::string_view title() const override { return "moving average"; }
  [[nodiscard]] std::string sizes() const override { return fmt::format("mean of {}", taps); }
  [[nodiscard]] std::vector<std::string> sums() const override { return {"mean_square"}; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} rows, one weight a column", sizes());
  }
};

/// REQUIRES: dtype fp32.
inline const float* floats_of(ConstElements elements) {
  TRAIN_CHECK(elements.dtype == kernels::DType::f32);
  return reinterpret_cast<const float*>(elements.data);
}
inline float* floats_of(Elements elements) {
  return const_cast<float*>(floats_of(ConstElements(elements)));
}

class MovingAverageBlock final : public Block {
 public:
  MovingAverageBlock(const BlockContext& context, const MovingAverageSpec& spec, std::int64_t cols)
      : workspace_(&context.workspace), taps_(spec.taps), cols_(cols), exact_(spec.exact) {
    weight_ = context.parameters.add({.name = context.prefix + spec.weight + ".weight",
                                      .shape = spec.shape.empty() ? std::vector{cols_} : spec.shape,
                                      .group = ParameterGroup::no_decay,
                                      .lr_scale = spec.lr_scale,
                                      .init = spec.init,
                                      .muon = spec.muon,
                                      .exact = spec.exact});
    means_ = workspace_->keep(context.prefix, "moving means", workspace_->rows() * cols_);
    dmeans_ = workspace_->scratch_backward(Phase::branch, "gradient of moving means",
                                           workspace_->rows() * cols_);
    sums_ = workspace_->add_sums(1);
    if (const std::int64_t texts = workspace_->cached_texts(); texts > 0) {
      last_ = workspace_->keep_for_texts(context.prefix + "last inputs", texts * taps_ * cols_);
    }
  }

  void forward_kept(const BlockCall& call, ConstElements x) override {
    call.stream.enqueue([this, lane = call.lane, x = floats_of(x), last = state(call.lane),
                         means = floats_of(workspace_->at(means_))] {
      for (std::int64_t row = 0; row < lane.rows(); ++row) {
        if (last != nullptr) {
          std::copy_n(x + row * cols_, cols_, last + place(lane, row, position(lane, row)));
        }
        const std::int64_t seen = seen_rows(lane, row);
        for (std::int64_t col = 0; col < cols_; ++col) {
          float sum = 0.0F;
          for (std::int64_t back = seen - 1; back >= 0; --back) {  // Oldest first.
            sum += lane.cache == CacheUse::extend
                       ? last[place(lane, row, position(lane, row) - back) + col]
                       : x[(row - back) * cols_ + col];
          }
          means[row * cols_ + col] = sum / static_cast<float>(seen);
        }
      }
      report(lane, means);
    });
  }

  void forward_output(const BlockCall& call, Elements branch) override {
    call.stream.enqueue([this, count = call.lane.rows() * cols_, out = floats_of(branch),
                         weight = weight(call.weights), means = floats_of(workspace_->at(means_))] {
      for (std::int64_t i = 0; i < count; ++i) {
        out[i] = weight[i % cols_] * means[i];
      }
    });
  }

  void backward(const BlockCall& call, ConstElements /*x*/, ConstElements dbranch,
                Elements dx) override {
    float* dweight = weight_.frozen ? nullptr : call.gradient + weight_.gradient;
    call.stream.enqueue([this, lane = call.lane, dweight, dy = floats_of(dbranch),
                         dx = floats_of(dx), weight = weight(call.weights),
                         means = floats_of(workspace_->at(means_)),
                         dmeans = floats_of(workspace_->at(dmeans_))] {
      const std::int64_t count = lane.rows() * cols_;
      if (dweight != nullptr) {
        std::fill_n(dweight, cols_, 0.0F);
        for (std::int64_t i = 0; i < count; ++i) {
          dweight[i % cols_] += dy[i] * means[i];
        }
      }
      std::fill_n(dx, count, 0.0F);
      for (std::int64_t row = 0; row < lane.rows(); ++row) {
        const std::int64_t seen = seen_rows(lane, row);
        for (std::int64_t col = 0; col < cols_; ++col) {
          float& dmean = dmeans[row * cols_ + col];
          dmean = weight[col] * dy[row * cols_ + col] / static_cast<float>(seen);
          for (std::int64_t back = 0; back < seen; ++back) {
            dx[(row - back) * cols_ + col] += dmean;
          }
        }
      }
    });
  }

 private:
  [[nodiscard]] static std::int64_t position(const Lane& lane, std::int64_t row) {
    return lane.positions == nullptr ? row % lane.seq_len : lane.positions[row];
  }
  [[nodiscard]] std::int64_t seen_rows(const Lane& lane, std::int64_t row) const {
    return std::min(position(lane, row) + 1, taps_);
  }
  /// Offset of an input in the decoding state, [texts, taps, cols], by its position in its text.
  [[nodiscard]] std::int64_t place(const Lane& lane, std::int64_t row,
                                   std::int64_t position) const {
    return (lane.texts[row] * taps_ + position % taps_) * cols_;
  }
  [[nodiscard]] float* state(const Lane& lane) const {
    return lane.cache == CacheUse::none ? nullptr : floats_of(workspace_->at(last_));
  }

  void report(const Lane& lane, const float* means) const {
    if (lane.block_sums == nullptr) {
      return;
    }
    double sum = 0.0;
    for (std::int64_t i = 0; i < lane.rows() * cols_; ++i) {
      sum += static_cast<double>(means[i]) * static_cast<double>(means[i]);
    }
    lane.block_sums[sums_] = sum;
    lane.block_sums[sums_ + 1] = static_cast<double>(lane.rows() * cols_);
  }

  Workspace* workspace_;
  [[nodiscard]] const float* weight(ConstElements flat) const {
    return exact_ ? exact_weights(flat, weight_.offset) : floats_of(flat + weight_.offset);
  }

  std::int64_t taps_, cols_;
  bool exact_;
  ParameterPlace weight_;
  Workspace::Slot means_ = 0, dmeans_ = 0, last_ = 0;
  std::size_t sums_ = 0;
};

inline std::unique_ptr<Block> MovingAverageSpec::make(const BlockContext& context,
                                                      const ModelSpec& model) const {
  return std::make_unique<MovingAverageBlock>(context, *this, model.embedding_dim);
}

}  // namespace train::engine::testing
