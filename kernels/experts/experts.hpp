#pragma once

#include <cstdint>

#include "kernels/dtype.hpp"
#include "kernels/experts/balance_terms.hpp"
#include "kernels/kinds.hpp"

// Kernels of layers of experts (Shazeer et al. 2017, https://arxiv.org/abs/1701.06538): a row is
// computed by `slots` of `experts`, slot j by its j-th choice. A place is a (row, slot) in the
// order of experts; all places of an expert are neighbours, rows rising (ExpertSortParams).
namespace train::kernels {

struct UpdateGuard;

/// Choice of each row: its `slots` largest choice scores, p = softmax(logits) or s =
/// sigmoid(logits) in single precision, plus `bias`; the largest first, ties to the lower expert.
/// With `groups` > 1 of experts / groups neighbours each, only the experts of the `kept_groups`
/// best groups have a chance: those with the largest sums of their two largest choice scores, ties
/// to the lower group (DeepSeek-AI 2024, https://arxiv.org/abs/2412.19437, as transformers 5
/// computes it). A pure function of the row. NaN counts as -Inf; a logit that is NaN or, for
/// softmax, +Inf makes all p of its row NaN, so that the first experts are chosen, with weights of
/// NaN.
struct RouterForwardParams {
  RouterKind kind = RouterKind::softmax;
  const float* logits = nullptr;   ///< [rows, experts].
  std::int32_t* chosen = nullptr;  ///< [rows, slots], each in [0, experts), no two alike in a row.
  float* weights = nullptr;        ///< [rows, slots], by RouterKind, times `scale`.
  std::int64_t rows = 0, experts = 0, slots = 0;
  const float* bias = nullptr;  ///< [experts]: for the choice alone; nullptr: 0.
  /// groups divides experts, with at least two a group where there are several; slots at most the
  /// experts of kept_groups.
  std::int64_t groups = 1, kept_groups = 1;
  float scale = 1.0F;
};

/// dlogits, overwritten: of the weights, with g_j the gradient at slot j, and of balancing.
///   softmax:             p_e ([e chosen as j] g_j - sum_j p_j g_j), every e
///   softmax_normalised:  w_j (g_j - sum_i w_i g_i) for chosen e, else 0
///   sigmoid:             scale g_j s_j (1 - s_j) for chosen e, else 0
///   sigmoid_normalised:  scale (s_j / Z) (1 - s_j) (g_j - sum_i g_i s_i / Z), Z = sum of the
///   chosen
///                        s + 1e-20, else 0: no factor overflows where all s are tiny
///   balancing, where group(row) >= 0: + p_e (factor[group, e] - sum_i p_i factor[group, i])
///                                     + z_factor 2 logsumexp(logits) p_e
/// The first two, too, are multiplied by `scale`. For a sigmoid's balancing p is s / sum of all s,
/// its gradient (1 - s_e) as a further factor, and the z term stays one of softmax(logits).
struct RouterBackwardParams {
  RouterKind kind = RouterKind::softmax;
  const float* logits = nullptr;
  const std::int32_t* chosen = nullptr;
  const float* weights = nullptr;
  const float* dweights = nullptr;  ///< [rows, slots].
  float* dlogits = nullptr;         ///< [rows, experts].
  std::int64_t rows = 0, experts = 0, slots = 0;
  const std::int32_t* groups = nullptr;  ///< [rows], RouterGroupsParams; nullptr: all of group 0.
  const float* factors = nullptr;        ///< [groups, experts]; nullptr: no balancing by loads.
  const float* z_factor = nullptr;       ///< One; nullptr: 0.
  float scale = 1.0F;  ///< As in the forward pass: `weights` are multiplied by it.
};

/// Stable counting sort by (expert, row).
struct ExpertSortParams {
  const std::int32_t* chosen = nullptr;  ///< [rows, slots].
  std::int32_t* offsets = nullptr;       ///< [experts + 1]: first place of each expert; rows slots.
  std::int32_t* row_of = nullptr;        ///< [rows slots], by place: its row.
  std::int32_t* slot_of = nullptr;       ///< [rows slots], by place: row slots + slot.
  std::int32_t* places = nullptr;        ///< [rows, slots]: place of each.
  std::int64_t rows = 0, experts = 0, slots = 0;
};

enum class ExpertProduct : std::uint8_t {
  output,  ///< c [places, n] = a [places, k] W_e^T.
  input,   ///< c [places, k] = a [places, n] W_e.
  weight,  ///< W_e gradient [n, k] = a^T b, over the places of e: a [places, n], b [places, k].
};

/// Products of the places of each expert with its matrix W_e [n, k]: an element has the bits of
/// `matmul` of that expert's places alone, so a row's do not depend on which others there are. An
/// expert without places gets a gradient of +0; with `accumulate` it keeps its own.
struct ExpertMatmulParams {
  ExpertProduct product = ExpertProduct::output;
  const void* a = nullptr;
  const void* b = nullptr;  ///< output, input: W_0, in rows of k; weight: see there.
  void* c = nullptr;        ///< weight: the gradient of W_0, in rows of k.
  /// [experts + 1]: of neighbouring experts, so that the first may be above 0.
  const std::int32_t* offsets = nullptr;
  std::int64_t experts = 0;
  std::int64_t places = 0;  ///< rows slots: the most that there are.
  std::int64_t n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< Elements between rows; those of W_e are k wide.
  std::int64_t stride = 0;                 ///< Elements between W_e and W_(e + 1).
  bool accumulate = false;
  DType dtype = DType::f32;         ///< Dtype of a and b.
  DType output_dtype = DType::f32;  ///< Dtype of c; f32 for `weight`.
};

/// y[place] += the bias of the place's expert, bias + e stride.
struct ExpertBiasForwardParams {
  void* y = nullptr;                      ///< [places, cols].
  const void* bias = nullptr;             ///< Bias of expert 0.
  const std::int32_t* offsets = nullptr;  ///< As in ExpertMatmulParams.
  std::int64_t experts = 0, places = 0, cols = 0;
  std::int64_t y_stride = 0;  ///< Elements between rows.
  std::int64_t stride = 0;    ///< Elements between the biases of two experts.
  DType dtype = DType::f32;
};
/// dbias_e = sum of dy over the places of e in their order, by blocks that their number fixes: +0
/// without any. Overwritten.
struct ExpertBiasBackwardParams {
  const void* dy = nullptr;  ///< [places, cols].
  float* dbias = nullptr;    ///< Gradient for expert 0.
  const std::int32_t* offsets = nullptr;
  std::int64_t experts = 0, places = 0, cols = 0;
  std::int64_t dy_stride = 0;
  std::int64_t stride = 0;
  DType dtype = DType::f32;
};

/// y[place] = x[index[place]].
struct GatherRowsParams {
  const void* x = nullptr;              ///< [any, cols].
  const std::int32_t* index = nullptr;  ///< [count], inside x.
  void* y = nullptr;                    ///< [count, cols].
  std::int64_t count = 0, cols = 0;
  DType dtype = DType::f32;
};

/// y[row] (+)= sum over slots, rising, of weights[row, slot] parts[places[row, slot]]: summed in
/// single precision, rounded once.
struct CombineRowsParams {
  const void* parts = nullptr;           ///< [rows slots, cols].
  const std::int32_t* places = nullptr;  ///< [rows, slots].
  const float* weights = nullptr;        ///< [rows, slots]; nullptr: 1.
  void* y = nullptr;                     ///< [rows, cols].
  std::int64_t rows = 0, slots = 0, cols = 0;
  bool accumulate = false;
  DType dtype = DType::f32;
};

/// From dh = dy W_out by place, not yet weighted: dweights[slot_of[place]] = <dh, h>, in an order
/// that `cols` alone fixes; then dh *= w and h *= w, w = weights[slot_of[place]]. With the weighted
/// h, dy^T h is the gradient of W_out.
struct SlotWeightsBackwardParams {
  void* dh = nullptr;  ///< [count, cols].
  void* h = nullptr;   ///< [count, cols].
  const std::int32_t* slot_of = nullptr;
  const float* weights = nullptr;  ///< By row slots + slot, as is dweights.
  float* dweights = nullptr;
  std::int64_t count = 0, cols = 0;
  DType dtype = DType::f32;
};

/// The groups of rows whose loads are balanced, for RouterLoadsParams: all rows of a lane, or each
/// document. Rows of documents without a target (padding is one) are in none: -1.
struct RouterGroupsParams {
  const std::int32_t* positions =
      nullptr;                            ///< [sequences, seq_len]; nullptr: each sequence is one.
  const std::int32_t* targets = nullptr;  ///< [sequences, seq_len]; nullptr: all have one.
  std::int32_t* groups = nullptr;         ///< [sequences seq_len].
  std::int64_t sequences = 0, seq_len = 0;
  bool by_document = false;  ///< A document's group is the row of its first token; else it is 0.
};

/// Loads of a layer: sums over the rows of each group, in the order of rows by blocks that their
/// number fixes. REQUIRES on CUDA: a group's rows are neighbours, unless group_count is 1.
struct RouterLoadsParams {
  RouterKind kind = RouterKind::softmax;
  const float* logits = nullptr;
  const std::int32_t* chosen = nullptr;
  const std::int32_t* groups = nullptr;  ///< [rows], below `group_count`; nullptr: all of group 0.
  std::int32_t* counts = nullptr;        ///< [group_count, experts]: choices; overwritten, as all.
  float* probabilities = nullptr;        ///< [group_count, experts]: sums of p, as in the backward
                                         ///< pass: softmax(logits), or s / sum of s.
  std::int32_t* group_rows = nullptr;    ///< [group_count].
  double* z_squares = nullptr;           ///< One: sum of logsumexp(logits)^2 over all groups.
  std::int64_t rows = 0, experts = 0, slots = 0;
  std::int64_t group_count = 0;  ///< 1, or `rows` by documents: groups without rows get zeros.
};

/// bias_e += rate sign(sum of counts - experts count_e), sign(0) = 0, in single precision (Wang et
/// al. 2024, https://arxiv.org/abs/2408.15664). No-op if guard->nonfinite is set.
struct ChoiceBiasParams {
  float* bias = nullptr;          ///< [experts].
  const float* counts = nullptr;  ///< [experts]: whole numbers below 2^24.
  std::int64_t experts = 0;
  float rate = 0.0F;
  const UpdateGuard* guard = nullptr;
};

/// Values of balancing losses, and the factors by which the router's backward pass adds their
/// gradients:
///   hf           E sum_e (sum_l c_le / (L n)) (mean over l of P_le), over L layers at once
///   switch_loss  E sum_e (c_e / (k n)) P_e of this layer; a model's value is the mean over layers
///   z            mean over rows of logsumexp(logits)^2; likewise
/// (so that factors of the last two are divided by `layers`)
/// with c and n of the scope: lane; sequence: each document's own, and their values' mean by rows;
/// previous_step: `previous`, over all lanes of the step before; step: `whole`, over all lanes of
/// this step; where either is all zeros, c_e / (k n) is 1 / E. Nothing flows through c.
struct BalanceParams {
  BalanceTerm terms[kMostBalanceTerms] = {};
  std::int64_t term_count = 0;
  /// The layer's own, as RouterLoadsParams wrote them. hf reads counts and probabilities of all
  /// `layers`, `layer_stride` elements apart from `layer_counts` and `layer_probabilities` on, each
  /// of one group; without layer_counts a term of hf is left out.
  const std::int32_t* counts = nullptr;
  const float* probabilities = nullptr;
  const std::int32_t* group_rows = nullptr;
  const double* z_squares = nullptr;
  const std::int32_t* layer_counts = nullptr;
  const float* layer_probabilities = nullptr;
  const float* previous = nullptr;  ///< [experts]; nullptr: no term needs it.
  const double* whole = nullptr;    ///< [experts], whole numbers; likewise.
  std::int64_t experts = 0, slots = 0, group_count = 0;
  std::int64_t layers = 1;  ///< Layers of experts in the model.
  std::int64_t layer_stride = 0;
  float scale = 1.0F;  ///< 1 / lanes of the step.
  /// Outputs, each nullptr where it is not wanted. values: [term_count] pairs of value and count
  /// (1; both 0 without rows).
  double* values = nullptr;
  float* factors = nullptr;   ///< [group_count, experts]: scale times the terms' own.
  float* z_factor = nullptr;  ///< One.
  /// [experts]: choices in all groups, as a sum over lanes takes them, exact below 2^24.
  float* tally = nullptr;
  /// [experts] pairs of the choices and of their mean over experts, k n / E: their quotient is a
  /// load relative to the uniform one.
  double* loads = nullptr;
  /// [experts]: what corrects the choice (RouterForwardParams::bias), and two pairs of a value and
  /// 1, its smallest and its largest element.
  const float* bias = nullptr;
  double* bias_range = nullptr;
};

}  // namespace train::kernels
