#include "kernels/checks.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"
#include "kernels/head/row_distance.hpp"

namespace train::kernels {
namespace {

void require_logit_shape(const char* kernel, float scale, float softcap) {
  TRAIN_CHECK(scale > 0.0F && softcap >= 0.0F, "{}: logit_scale={} softcap={}", kernel, scale,
              softcap);
}

template <class Params>
void require_log_probs(const char* kernel, const Params& params) {
  const LogProbResults& results = params.results;
  require_logit_shape(kernel, params.logit_scale, params.softcap);
  TRAIN_CHECK(params.targets != nullptr || results.log_probs == nullptr || params.rows == 0,
              "{}: log_probs of no targets", kernel);
  TRAIN_CHECK(results.top_k >= 1 || (results.top_lse == nullptr && results.top_mean == nullptr),
              "{}: top_k={}", kernel, results.top_k);
}

}  // namespace

void check_params(const HeadLossParams& params) {
  TRAIN_CHECK(params.vocab >= 1 && params.cols >= 1 && params.chunk_rows >= 1,
              "head_loss: vocab={} cols={} chunk_rows={}", params.vocab, params.cols,
              params.chunk_rows);
  require_pointers("head_loss", params.rows, params.x, params.weight, params.targets, params.logits,
                   params.row_terms);
  TRAIN_CHECK(params.sums != nullptr, "head_loss: nowhere to put the sums");
  TRAIN_CHECK(params.dx != nullptr || params.dweight == nullptr,
              "head_loss: dweight comes with dx alone");
  require_logit_shape("head_loss", params.logit_scale, params.softcap);
  TRAIN_CHECK(params.label_smoothing >= 0.0F && params.label_smoothing <= 1.0F,
              "head_loss: label_smoothing={}", params.label_smoothing);
  if (params.row_loss == RowLoss::cross_entropy) {
    return;
  }
  TRAIN_CHECK(params.label_smoothing == 0.0F && params.z_scale == 0.0F,
              "head_loss: label smoothing and z-loss come with cross-entropy alone");
  if (params.row_loss == RowLoss::divergence) {
    require_pointers("head_loss", params.rows, params.reference_x, params.reference_logits);
  } else {
    TRAIN_CHECK(params.top_k >= 1, "head_loss: top_k={}", params.top_k);
  }
}

void check_params(const TokenLogProbsParams& params) {
  TRAIN_CHECK(params.vocab >= 1 && params.cols >= 1 && params.chunk_rows >= 1,
              "token_log_probs: vocab={} cols={} chunk_rows={}", params.vocab, params.cols,
              params.chunk_rows);
  require_pointers("token_log_probs", params.rows, params.x, params.weight, params.logits);
  require_log_probs("token_log_probs", params);
}

void check_params(const RowDistanceParams& params) {
  require_pointers("row_distance", params.rows * params.cols, params.x, params.reference);
  require_pointers("row_distance", params.rows, params.targets, params.row_terms);
  TRAIN_CHECK(params.sums != nullptr, "row_distance: nowhere to put the sums");
}

void check_params(const LogitsLogProbsParams& params) {
  TRAIN_CHECK(params.vocab >= 1, "logits_log_probs: vocab={}", params.vocab);
  require_pointers("logits_log_probs", params.rows, params.logits);
  require_log_probs("logits_log_probs", params);
}

}  // namespace train::kernels
