#include "kernels/activation/activation.hpp"

#include <cmath>

#include "kernels/activation/bias.hpp"
#include "kernels/activation/clamp.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/checks.hpp"

namespace train::kernels {
namespace {

template <class Params>
void require_activation(const char* kernel, const Params& params) {
  if (params.kind != ActivationKind::clamped_swiglu) {
    return;
  }
  TRAIN_CHECK(params.rows * params.cols == 0 || params.up != nullptr,
              "{}: clamped_swiglu has an up", kernel);
  TRAIN_CHECK(params.limit > 0.0F && std::isfinite(params.alpha), "{}: alpha={} limit={}", kernel,
              params.alpha, params.limit);
}

}  // namespace

void check_params(const GeluForwardParams& params) {
  require_pointers("gelu_forward", params.count, params.x, params.y);
}

void check_params(const GeluBackwardParams& params) {
  require_pointers("gelu_backward", params.count, params.x, params.dy, params.dx);
}

void check_params(const SwigluForwardParams& params) {
  require_pointers("swiglu_forward", params.count, params.gate, params.up, params.y);
}

void check_params(const SwigluBackwardParams& params) {
  require_pointers("swiglu_backward", params.count, params.gate, params.up, params.dy, params.dgate,
                   params.dup);
}

void check_params(const SigmoidGateForwardParams& params) {
  TRAIN_CHECK(params.heads >= 1 && params.head_dim >= 0, "sigmoid_gate_forward: heads={} of {}",
              params.heads, params.head_dim);
  require_pointers("sigmoid_gate_forward", params.tokens, params.x, params.gate, params.y);
}

void check_params(const SigmoidGateBackwardParams& params) {
  TRAIN_CHECK(params.heads >= 1 && params.head_dim >= 0, "sigmoid_gate_backward: heads={} of {}",
              params.heads, params.head_dim);
  require_pointers("sigmoid_gate_backward", params.tokens, params.x, params.gate, params.dy,
                   params.dx, params.dgate);
}

void check_params(const ActivationForwardParams& params) {
  require_activation("activation_forward", params);
  require_pointers("activation_forward", params.rows * params.cols, params.x, params.y);
  TRAIN_CHECK(params.x_stride >= params.cols && params.y_stride >= params.cols,
              "activation_forward: cols={} x_stride={} y_stride={}", params.cols, params.x_stride,
              params.y_stride);
}

void check_params(const ActivationBackwardParams& params) {
  require_activation("activation_backward", params);
  require_pointers("activation_backward", params.rows * params.cols, params.x, params.dy, params.dx,
                   params.y);
  TRAIN_CHECK((params.up == nullptr) == (params.dup == nullptr),
              "activation_backward: up and dup come together");
  TRAIN_CHECK(params.x_stride >= params.cols && params.dy_stride >= params.cols &&
                  params.dx_stride >= params.cols,
              "activation_backward: cols={} x_stride={} dy_stride={} dx_stride={}", params.cols,
              params.x_stride, params.dy_stride, params.dx_stride);
}

void check_params(const ClampForwardParams& params) {
  require_pointers("clamp_forward", params.rows * params.cols, params.x, params.y);
  TRAIN_CHECK(
      params.bound > 0.0F && params.x_stride >= params.cols && params.y_stride >= params.cols,
      "clamp_forward: bound={} cols={} x_stride={} y_stride={}", params.bound, params.cols,
      params.x_stride, params.y_stride);
}

void check_params(const ClampBackwardParams& params) {
  require_pointers("clamp_backward", params.rows * params.cols, params.x, params.dy, params.dx);
  TRAIN_CHECK(
      params.bound > 0.0F && params.x_stride >= params.cols && params.dy_stride >= params.cols,
      "clamp_backward: bound={} cols={} x_stride={} dy_stride={}", params.bound, params.cols,
      params.x_stride, params.dy_stride);
}

void check_params(const BiasAddParams& params) {
  require_pointers("bias_add", params.rows * params.cols, params.y, params.bias);
  TRAIN_CHECK(params.period >= 1 && params.stride >= params.cols,
              "bias_add: period={} stride={} cols={}", params.period, params.stride, params.cols);
}

void check_params(const BiasGradientParams& params) {
  require_pointers("bias_gradient", params.rows * params.cols, params.dy);
  require_pointers("bias_gradient", params.cols, params.dbias);
  TRAIN_CHECK(params.period >= 1 && params.stride >= params.cols,
              "bias_gradient: period={} stride={} cols={}", params.period, params.stride,
              params.cols);
}

void check_params(const ResidualAddParams& params) {
  require_pointers("residual_add", params.count, params.x, params.branch, params.out);
}

void check_params(const TreeAddParams& params) {
  require_pointers("tree_add", params.count, params.left, params.right, params.out);
}

void check_params(const ScaleParams& params) {
  require_pointers("scale", params.count, params.x, params.y);
}

void check_params(const MaskSignParams& params) {
  require_pointers("mask_sign", params.count, params.g, params.other);
}

void check_params(const FillParams& params) { require_pointers("fill", params.count, params.out); }

void check_params(const CopyParams& params) {
  require_pointers("copy", params.size_bytes, params.in, params.out);
}

void check_params(const CountNonfiniteParams& params) {
  require_pointers("count_nonfinite", params.count, params.x);
  TRAIN_CHECK(params.nonfinite != nullptr, "count_nonfinite: nowhere to put the count");
}

void check_params(const CountNonzeroParams& params) {
  require_pointers("count_nonzero", params.count, params.x);
  TRAIN_CHECK(params.nonzero != nullptr, "count_nonzero: nowhere to put the count");
}

void check_params(const PackBf16Params& params) {
  require_pointers("pack_bf16", params.count, params.in, params.out);
}

void check_params(const UnpackBf16Params& params) {
  require_pointers("unpack_bf16", params.count, params.in, params.out);
}

}  // namespace train::kernels
