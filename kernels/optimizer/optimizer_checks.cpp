#include "kernels/checks.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/average.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace train::kernels {
namespace {

void require_update(const char* kernel, const UpdateGuard* guard, std::int64_t step = 1) {
  TRAIN_CHECK(guard != nullptr, "{}: no guard", kernel);
  TRAIN_CHECK(step >= 1, "{}: steps count from 1, not {}", kernel, step);
}

}  // namespace

void check_params(const RowSquareSumsParams& params) {
  for (const RowSquareSumsParams::Tensor& tensor : params.tensors) {
    require_pointers("row_square_sums", tensor.rows * tensor.cols, tensor.x);
    require_pointers("row_square_sums", tensor.rows, tensor.row_sums);
  }
}

void check_params(const TreeSumParams& params) {
  for (const TreeSumParams::Sum& sum : params.sums) {
    require_pointers("tree_sum", sum.count, sum.values);
    TRAIN_CHECK(sum.out != nullptr, "tree_sum: nowhere to put the sum");
  }
}

void check_params(const ClipScaleParams& params) {
  require_pointers("clip_scale", 1, params.squared_norm, params.cross_entropy, params.z_squared,
                   params.guard);
}

void check_params(const AdamwParams& params) {
  for (const AdamwParams::Tensor& tensor : params.tensors) {
    require_pointers("adamw_update", tensor.count, tensor.p, tensor.g, tensor.m, tensor.v);
  }
  require_update("adamw_update", params.guard, params.step);
}

void check_params(const AdemamixParams& params) {
  for (const AdemamixParams::Tensor& tensor : params.tensors) {
    require_pointers("ademamix_update", tensor.count, tensor.p, tensor.g, tensor.fast, tensor.slow,
                     tensor.v);
  }
  require_update("ademamix_update", params.guard, params.step);
}

void check_params(const DanaParams& params) {
  for (const DanaParams::Tensor& tensor : params.tensors) {
    require_pointers("dana_update", tensor.rows * tensor.cols, tensor.p, tensor.g, tensor.m,
                     tensor.v);
  }
  require_update("dana_update", params.guard, params.step);
}

void check_params(const AverageParams& params) {
  for (const AverageParams::Tensor& tensor : params.tensors) {
    require_pointers("average_update", tensor.count, tensor.average, tensor.p);
  }
}

void check_params(const MuonMomentumParams& params) {
  require_pointers("muon_momentum", params.count, params.g, params.m, params.x);
  require_update("muon_momentum", params.guard);
}

void check_params(const MuonNormaliseParams& params) {
  require_pointers("muon_normalise", params.count, params.x);
  TRAIN_CHECK(params.squared_norm != nullptr, "muon_normalise: no norm");
}

void check_params(const BlendBf16Params& params) {
  require_pointers("blend_bf16", params.count, params.x, params.y, params.out);
}

void check_params(const MuonApplyParams& params) {
  require_pointers("muon_apply", params.count, params.p, params.x);
  require_update("muon_apply", params.guard);
}

}  // namespace train::kernels
