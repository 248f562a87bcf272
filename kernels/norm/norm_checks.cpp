#include "kernels/checks.hpp"
#include "kernels/norm/norm.hpp"

namespace train::kernels {
namespace {

void require_rotation(const char* kernel, const RowRotation& rotation, std::int64_t cols) {
  TRAIN_CHECK((rotation.cos == nullptr) == (rotation.sin == nullptr), "{}: half a rotation",
              kernel);
  TRAIN_CHECK(rotation.cos == nullptr || (cols % 2 == 0 && rotation.seq_len >= 1),
              "{}: rotation of cols={} at seq_len={}", kernel, cols, rotation.seq_len);
}

}  // namespace

void check_params(const NormForwardParams& params) {
  const std::int64_t rows = params.outer * params.inner;
  require_pointers("norm_forward", rows, params.x, params.weight, params.y, params.rstd);
  TRAIN_CHECK(params.inner >= 1 && params.cols >= 1, "norm_forward: inner={} cols={}", params.inner,
              params.cols);
  TRAIN_CHECK(rows == 0 || params.kind != NormKind::layer || params.mean != nullptr,
              "norm_forward: nowhere to put the means");
  require_rotation("norm_forward", params.rotation, params.cols);
  TRAIN_CHECK(params.residual.branch == nullptr ||
                  (params.residual.base != nullptr && params.residual.sum == params.x),
              "norm_forward: the residual's sum is not what is normalised");
}

void check_params(const NormBackwardParams& params) {
  const std::int64_t rows = params.outer * params.inner;
  require_pointers("norm_backward", rows, params.x, params.weight, params.rstd, params.dy,
                   params.dx);
  TRAIN_CHECK(params.inner >= 1 && params.cols >= 1, "norm_backward: inner={} cols={}",
              params.inner, params.cols);
  TRAIN_CHECK(rows == 0 || params.kind != NormKind::layer || params.mean != nullptr,
              "norm_backward: no means");
  TRAIN_CHECK(!params.accumulate_dx || params.dx != params.dy,
              "norm_backward: dx cannot be dy and be added to");
  require_rotation("norm_backward", params.rotation, params.cols);
  TRAIN_CHECK(params.rotation.cos == nullptr || params.dx == params.dy,
              "norm_backward: dy is rotated back in its place, which has to be dx");
}

}  // namespace train::kernels
