#include "kernels/experts/experts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/checks.hpp"

namespace train::kernels {
namespace {

/// Checks the sizes of a layer of experts. Places are 32-bit numbers.
void require_experts(const char* kernel, std::int64_t rows, std::int64_t experts,
                     std::int64_t slots) {
  TRAIN_CHECK(rows >= 0 && experts >= 1 && slots >= 1 && slots <= experts,
              "{}: rows={} experts={} slots={}", kernel, rows, experts, slots);
  TRAIN_CHECK(rows * slots <= std::numeric_limits<std::int32_t>::max(), "{}: rows={} slots={}",
              kernel, rows, slots);
}

void require_scale(const char* kernel, float scale) {
  TRAIN_CHECK(scale > 0.0F && std::isfinite(scale), "{}: scale={}", kernel, scale);
}

/// Checks the sizes of experts' biases. `row_stride`: elements between the rows of two places.
template <class Params>
void require_expert_biases(const char* kernel, const Params& params, std::int64_t row_stride) {
  TRAIN_CHECK(params.experts >= 0 && params.places >= 0 && params.cols >= 0,
              "{}: experts={} places={} cols={}", kernel, params.experts, params.places,
              params.cols);
  require_pointers(kernel, params.experts, params.offsets);
  TRAIN_CHECK(params.places <= 1 || row_stride >= params.cols, "{}: rows of {} elements, cols={}",
              kernel, row_stride, params.cols);
  TRAIN_CHECK(params.experts <= 1 || params.stride >= params.cols, "{}: stride={} cols={}", kernel,
              params.stride, params.cols);
}

}  // namespace

void check_params(const RouterForwardParams& params) {
  require_experts("router_forward", params.rows, params.experts, params.slots);
  require_pointers("router_forward", params.rows, params.logits, params.chosen, params.weights);
  require_scale("router_forward", params.scale);
  TRAIN_CHECK(params.groups >= 1 && params.experts % params.groups == 0 &&
                  (params.groups == 1 || params.experts / params.groups >= 2),
              "router_forward: experts={} groups={}", params.experts, params.groups);
  TRAIN_CHECK(params.kept_groups >= 1 && params.kept_groups <= params.groups &&
                  params.slots <= params.experts / params.groups * params.kept_groups,
              "router_forward: experts={} groups={} kept_groups={} slots={}", params.experts,
              params.groups, params.kept_groups, params.slots);
}

void check_params(const RouterBackwardParams& params) {
  require_experts("router_backward", params.rows, params.experts, params.slots);
  require_pointers("router_backward", params.rows, params.logits, params.chosen, params.weights,
                   params.dweights, params.dlogits);
  require_scale("router_backward", params.scale);
}

void check_params(const RouterGroupsParams& params) {
  TRAIN_CHECK(params.sequences >= 0 && params.seq_len >= 0, "router_groups: sequences={} of {}",
              params.sequences, params.seq_len);
  require_pointers("router_groups", params.sequences * params.seq_len, params.groups);
}

void check_params(const RouterLoadsParams& params) {
  require_experts("router_loads", params.rows, params.experts, params.slots);
  require_pointers("router_loads", params.rows, params.logits, params.chosen);
  require_pointers("router_loads", params.group_count, params.counts, params.probabilities,
                   params.group_rows);
  TRAIN_CHECK(params.z_squares != nullptr, "router_loads: nowhere to put the squares");
}

void check_params(const BalanceParams& params) {
  require_experts("router_balance", 0, params.experts, params.slots);
  TRAIN_CHECK(
      params.term_count >= 0 && params.term_count <= static_cast<std::int64_t>(kMostBalanceTerms),
      "router_balance: {} terms", params.term_count);
  TRAIN_CHECK(params.layers >= 1, "router_balance: layers={}", params.layers);
  require_pointers("router_balance", params.group_count, params.group_rows);
  TRAIN_CHECK(params.group_count == 0 || params.counts != nullptr ||
                  (params.tally == nullptr && params.loads == nullptr),
              "router_balance: no counts");
  TRAIN_CHECK(params.bias_range == nullptr || (params.bias != nullptr && params.experts > 0),
              "router_balance: no bias");
  for (const BalanceTerm* term = params.terms; term != params.terms + params.term_count; ++term) {
    switch (term->kind) {
      case BalanceKind::hf:
        TRAIN_CHECK(term->scope == BalanceScope::lane, "router_balance: hf is of a lane");
        TRAIN_CHECK((params.layer_counts == nullptr) == (params.layer_probabilities == nullptr),
                    "router_balance: counts and probabilities of layers come together");
        TRAIN_CHECK(params.layers == 1 || params.layer_counts == nullptr ||
                        params.layer_stride >= params.experts,
                    "router_balance: layer_stride={} experts={}", params.layer_stride,
                    params.experts);
        break;
      case BalanceKind::switch_loss:
        require_pointers("router_balance", params.group_count, params.counts, params.probabilities);
        TRAIN_CHECK(term->scope != BalanceScope::previous_step || params.previous != nullptr,
                    "router_balance: no loads of the previous step");
        TRAIN_CHECK(term->scope != BalanceScope::step || params.whole != nullptr,
                    "router_balance: no loads of the whole step");
        break;
      case BalanceKind::z:
        require_pointers("router_balance", 1, params.z_squares);
        break;
    }
  }
}

void check_params(const ExpertSortParams& params) {
  require_experts("expert_sort", params.rows, params.experts, params.slots);
  require_pointers("expert_sort", 1, params.offsets);
  require_pointers("expert_sort", params.rows, params.chosen, params.row_of, params.slot_of,
                   params.places);
}

void check_params(const ExpertMatmulParams& params) {
  TRAIN_CHECK(params.experts >= 0 && params.n >= 0 && params.k >= 0,
              "expert_matmul: experts={} n={} k={}", params.experts, params.n, params.k);
  const bool gradient = params.product == ExpertProduct::weight;
  const std::int64_t width_a = params.product == ExpertProduct::output ? params.k : params.n;
  const std::int64_t width_c = params.product == ExpertProduct::output ? params.n : params.k;
  require_pointers("expert_matmul", params.experts, params.offsets);
  require_pointers("expert_matmul", params.places * params.n * params.k, params.a, params.b);
  require_pointers("expert_matmul",
                   (gradient ? params.experts * params.n : params.places) * width_c, params.c);
  TRAIN_CHECK(params.lda >= width_a && params.ldb >= params.k && params.ldc >= width_c,
              "expert_matmul: lda={} ldb={} ldc={} n={} k={}", params.lda, params.ldb, params.ldc,
              params.n, params.k);
  const std::int64_t row = gradient ? params.ldc : params.ldb;
  TRAIN_CHECK(
      params.experts <= 1 || params.n == 0 || params.stride >= (params.n - 1) * row + params.k,
      "expert_matmul: stride={} n={} k={}", params.stride, params.n, params.k);
  TRAIN_CHECK(!gradient || params.output_dtype == DType::f32,
              "expert_matmul: gradients of weights are f32");
}

void check_params(const ExpertBiasForwardParams& params) {
  require_expert_biases("expert_bias_forward", params, params.y_stride);
  require_pointers("expert_bias_forward", params.places * params.cols, params.y, params.bias);
}

void check_params(const ExpertBiasBackwardParams& params) {
  require_expert_biases("expert_bias_backward", params, params.dy_stride);
  require_pointers("expert_bias_backward", params.places * params.cols, params.dy);
  require_pointers("expert_bias_backward", params.experts * params.cols, params.dbias);
}

void check_params(const GatherRowsParams& params) {
  require_pointers("gather_rows", params.count * params.cols, params.x, params.index, params.y);
}

void check_params(const CombineRowsParams& params) {
  TRAIN_CHECK(params.slots >= 1, "combine_rows: slots={}", params.slots);
  require_pointers("combine_rows", params.rows * params.cols, params.parts, params.places,
                   params.y);
}

void check_params(const SlotWeightsBackwardParams& params) {
  TRAIN_CHECK(params.cols >= 0, "slot_weights_backward: cols={}", params.cols);
  require_pointers("slot_weights_backward", params.count, params.dh, params.h, params.slot_of,
                   params.weights, params.dweights);
}

void check_params(const ChoiceBiasParams& params) {
  require_pointers("choice_bias_update", params.experts, params.bias, params.counts);
}

}  // namespace train::kernels
