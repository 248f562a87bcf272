#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/experts/expert_maps.hpp"
#include "engine/model/spec.hpp"
#include "kernels/experts/balance_terms.hpp"
#include "kernels/kinds.hpp"

namespace train::kernels {
struct BalanceParams;
}

namespace train::engine {

/// Gated MLP that computes every row besides its experts.
struct SharedExpert {
  std::int64_t hidden = 0;  ///< Width; 0: no shared expert.
  bool gated = false;       ///< y += sigmoid(<gate, x>) MLP(x), else y += MLP(x).
  std::string gate = {};
  std::string in = {}, up = {}, out = {};
};

/// Mixture of gated MLPs (Shazeer et al. 2017, https://arxiv.org/abs/1701.06538):
///   y = sum over the chosen e of w_e out_e(act(in_e x) * up_e x), in the order of the choice,
/// the weights those of a router (kernels::RouterKind), no row ever dropped. Each expert's
/// matrices are parameters of their own.
struct ExpertsSpec final : BlockSpec {
  std::int64_t experts = 0;
  std::int64_t slots = 0;   ///< Experts of a row.
  std::int64_t hidden = 0;  ///< Width of an expert.
  kernels::ActivationKind activation = kernels::ActivationKind::silu;
  kernels::RouterKind router = kernels::RouterKind::softmax;
  std::string gate = {};    ///< The router's matrix, [experts, embedding_dim].
  std::string expert = {};  ///< Prefix of an expert's maps; "{}": its number.
  std::string in = {}, up = {}, out = {};
  /// Where a file has a tensor for all experts of a layer (Dialect::stacked): their module, and the
  /// router.
  std::string stacked = "mlp.experts", stacked_gate = "mlp.gate";
  /// Group-limited choice and the factor of the weights (kernels::RouterForwardParams).
  std::int64_t groups = 1, kept_groups = 1;
  float scale = 1.0F;
  /// [experts], added to the scores for the choice alone; empty: none. A step moves it towards
  /// even loads by `choice_bias_rate` (Parameter::tally_rate); 0: it stays.
  std::string choice_bias = {};
  double choice_bias_rate = 0.0;
  /// Files have one tensor for the first two matrices of all experts, [experts, embedding_dim, 2
  /// hidden] with their columns in turns, and one for the third (GPT-OSS).
  bool fused = false;
  bool gate_bias = false;              ///< Adds a bias to the router's logits.
  bool expert_bias = false;            ///< Adds a bias to all three maps of an expert.
  float alpha = 1.702F, limit = 7.0F;  ///< Constants of ActivationKind::clamped_swiglu.
  SharedExpert shared = {};
  std::vector<kernels::BalanceTerm> balance = {};  ///< At most kMostBalanceTerms.
  /// Its place among the layers of experts, and their number.
  std::int64_t index = 0, layers = 1;

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "mlp"; }
  [[nodiscard]] std::string_view title() const override { return "experts"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  /// For each balancing loss its value, "balance/<kind>_<scope>"; for each expert its load,
  /// relative to the mean, "expert_load/<index>/<expert>"; of the bias that corrects the choice,
  /// as the step reads it, "expert_bias_min/<index>" and "expert_bias_max/<index>".
  [[nodiscard]] std::vector<std::string> sums() const override;
  [[nodiscard]] bool reads_step_sums() const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;

  /// "model.layers.0." before it, ".weight" behind it: the map `name` of expert `number`.
  [[nodiscard]] std::string map_name(std::int64_t number, const std::string& name) const;
};

/// Names of a balancing loss and its rows: "switch", "previous_step".
[[nodiscard]] std::string_view name_of(kernels::BalanceKind kind);
[[nodiscard]] std::string_view name_of(kernels::BalanceScope scope);
/// The value of the loss if all experts have equal loads and probabilities.
[[nodiscard]] double uniform_value(const kernels::BalanceTerm& term, std::int64_t experts,
                                   std::int64_t slots);

/// The experts of a layer, ExpertsSpec's form. Keeps the choice of each row, which is made once a
/// lane whatever is computed again, and what the activations are applied to.
class ExpertsBlock final : public Block {
 public:
  ExpertsBlock(const BlockContext& context, const ExpertsSpec& spec, const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  /// Buffers by slot: a place is a row's of an expert, rows times slots of them.
  struct Slots {
    Workspace::Slot logits = 0, chosen = 0, weights = 0, offsets = 0, row_of = 0, slot_of = 0;
    Workspace::Slot places = 0, hidden = 0, up_hidden = 0, activated = 0, dactivated = 0,
                    gathered = 0, parts = 0;
    Workspace::Slot bias_dweights = 0, dweights = 0, dlogits = 0, dlogits_rounded = 0;
    Workspace::Slot groups = 0, counts = 0, probabilities = 0, group_rows = 0, z_squares = 0;
    Workspace::Slot layer_counts = 0, layer_probabilities = 0, factors = 0, z_factor = 0;
  };
  /// The shared expert, its gate's logits and weights, and its output before the gate.
  struct Shared {
    MlpBlock mlp;
    std::optional<LinearBlock> gate;
    Workspace::Slot logits = 0, weights = 0, output = 0, first = 0, places = 0, gradient = 0;
    Workspace::Slot dlogits = 0, dlogits_rounded = 0;
  };

  void reserve(const BlockContext& context);
  void reserve_balance(Workspace& workspace);
  void reserve_shared(const BlockContext& context, const ModelSpec& model);
  [[nodiscard]] bool has(kernels::BalanceKind kind) const;
  [[nodiscard]] bool has(kernels::BalanceScope scope) const;
  [[nodiscard]] std::int64_t groups(const BlockCall& call) const;

  void route(const BlockCall& call, ConstElements x) const;
  /// Loads of the lane, into scratch and, for a loss of all layers, to this layer's place.
  void count_loads(const BlockCall& call) const;
  /// Params that all calls of router_balance share.
  [[nodiscard]] kernels::BalanceParams balance(const BlockCall& call) const;
  void report_loads(const BlockCall& call) const;
  void gather(const BlockCall& call, ConstElements x) const;
  void activate(const BlockCall& call) const;
  void activate_backward(const BlockCall& call) const;
  void out_bias_backward(const BlockCall& call) const;
  /// Gradient of a parameter that is there and trained; else nullptr.
  [[nodiscard]] static float* trained(const BlockCall& call,
                                      const std::optional<ParameterPlace>& place);
  void router_backward(const BlockCall& call, ConstElements x, Elements dx) const;
  void shared_gate_forward(const BlockCall& call, ConstElements x) const;
  void shared_forward(const BlockCall& call, Elements branch);
  /// A gradient in the activations' type: itself, or rounded into the slot.
  [[nodiscard]] ConstElements rounded(const BlockCall& call, const float* gradient,
                                      std::int64_t count, Workspace::Slot slot) const;
  /// dW of a small map, and dx += its input's gradient.
  static void map_backward(const BlockCall& call, const LinearBlock& map, ConstElements dy,
                           ConstElements x, Elements dx);
  void shared_backward(const BlockCall& call, ConstElements x, ConstElements dbranch, Elements dx);
  [[nodiscard]] ExpertRows rows_of(const BlockCall& call) const;
  [[nodiscard]] std::int64_t places(const BlockCall& call) const {
    return call.lane.rows() * spec_.slots;
  }

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  ExpertsSpec spec_;
  std::int64_t embedding_dim_;
  LinearBlock gate_;
  std::optional<ParameterPlace> gate_bias_, choice_bias_, previous_load_;
  ExpertMaps in_, up_, out_;
  std::optional<Shared> shared_;
  Slots at_;
  std::size_t first_sum_ = 0;
};

}  // namespace train::engine
