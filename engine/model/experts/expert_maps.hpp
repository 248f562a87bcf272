#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/elements.hpp"
#include "engine/parameter.hpp"

namespace train::kernels {
struct ExpertMatmulParams;
enum class ExpertProduct : std::uint8_t;
}  // namespace train::kernels

namespace train::engine {

/// Places of a lane in the order of experts (kernels::ExpertSortParams).
struct ExpertRows {
  std::int64_t places = 0;
  const std::int32_t* offsets = nullptr;  ///< [experts + 1], device memory.
};

/// One linear map of every expert, y = x W_e^T (+ what an adapter adds): all experts' products at
/// once, each over its own places. An expert's matrix is a parameter; they lie at equal distances,
/// as their owner adds them. Keeps nothing: the caller owns x. x: [places, inputs].
class ExpertMaps {
 public:
  struct Options {
    std::int64_t inputs = 0, outputs = 0;
    InitKind init = InitKind::linear;
    double used_share = 1.0;  ///< Share of a matrix's elements that one token uses.
    bool bias = false;        ///< backward_bias() then follows backward_weight().
  };
  ExpertMaps(const BlockContext& context, const Options& options);

  /// Adds the matrix of the next expert, then its adapter. `module`: name of the map without the
  /// layer's prefix. REQUIRES: matrices of all experts come before the first adapter.
  void add(const BlockContext& context, const std::string& module);
  void add_adapter(const BlockContext& context, const std::string& module);
  /// Reserves the adapters' scratch for `places` at most; after the last of them.
  void reserve(std::int64_t places);

  void forward(const BlockCall& call, const ExpertRows& rows, ConstElements x, Elements y) const;
  /// dx (+)= dy W_e.
  void backward_input(const BlockCall& call, const ExpertRows& rows, ConstElements dy, Elements dx,
                      bool accumulate = false) const;
  /// dW_e = dy^T x over its places, overwritten: +0 without any. None of what is frozen.
  void backward_weight(const BlockCall& call, const ExpertRows& rows, ConstElements dy,
                       ConstElements x) const;
  /// db_e = sum of dy over its places, overwritten. REQUIRES: Options::bias.
  void backward_bias(const BlockCall& call, const ExpertRows& rows, ConstElements dy) const;
  /// y += the bias of each place's expert. REQUIRES: Options::bias.
  void add_bias(const BlockCall& call, const ExpertRows& rows, Elements y) const;

 private:
  /// Matrices [outputs, inputs] of all experts, a parameter each.
  struct Matrices {
    std::int64_t outputs = 0, inputs = 0;
    std::vector<ParameterPlace> places = {};

    void add(const BlockContext& context, Parameter parameter);
  };

  [[nodiscard]] bool adapts(const BlockCall& call) const {
    return !a_.places.empty() && call.lane.adapters;
  }
  [[nodiscard]] kernels::ExpertMatmulParams product(const Matrices& matrices,
                                                    const ExpertRows& rows) const;
  /// An output or input product.
  void multiply(const BlockCall& call, kernels::ExpertProduct kind, const Matrices& matrices,
                const ExpertRows& rows, ConstElements from, Elements to, bool accumulate) const;
  void output(const BlockCall& call, const Matrices& matrices, const ExpertRows& rows,
              ConstElements x, Elements y, bool accumulate) const;
  void input(const BlockCall& call, const Matrices& matrices, const ExpertRows& rows,
             ConstElements dy, Elements dx, bool accumulate) const;
  /// By runs of trained experts whose gradients lie at equal distances.
  void weight(const BlockCall& call, const Matrices& matrices, const ExpertRows& rows,
              ConstElements dy, ConstElements x) const;
  void scale(const BlockCall& call, const ExpertRows& rows, Elements values) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Options options_;
  std::int64_t rank_;
  float scale_;
  Matrices w_, a_, b_;
  std::vector<ParameterPlace> biases_;
  Workspace::Slot inner_ = 0, inner_gradient_ = 0;
};

}  // namespace train::engine
