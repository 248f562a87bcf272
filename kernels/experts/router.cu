#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.cuh"
#include "kernels/instructions.cuh"

// Choices and weights of a layer of experts. A warp has a row: its reads of [rows, experts] and the
// rounds of the choice, one per slot, limit it; both are small beside the experts' products.
namespace train::kernels::cuda {
namespace {

/// Added to the sum of the chosen sigmoids (DeepSeek-AI 2024).
constexpr float kLeastSum = 1e-20F;

/// Floats of shared memory of a row: its choice scores, then those of groups.
__host__ __device__ std::int64_t forward_floats(const RouterForwardParams& p) {
  return p.experts + (p.groups > 1 ? p.groups : 0);
}

/// Candidate of a choice: the larger key is chosen, and of equal ones the lower expert.
struct Candidate {
  float key;
  int expert;

  [[nodiscard]] __device__ bool before(const Candidate& other) const {
    return key > other.key || (key == other.key && expert < other.expert);
  }
};

/// First candidate among the lane's own columns that are not taken. Taken ones have a NaN as key.
__device__ Candidate first_of_lane(const float* keys, int experts, int lane) {
  Candidate first{-INFINITY, experts};
  for (int e = lane; e < experts; e += kWarpSize) {
    const Candidate other{keys[e], e};
    first = other.before(first) ? other : first;
  }
  return first;
}

__device__ Candidate first_of_warp(Candidate mine) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Candidate other{__shfl_xor_sync(kAllLanes, mine.key, offset),
                          __shfl_xor_sync(kAllLanes, mine.expert, offset)};
    mine = other.before(mine) ? other : mine;
  }
  return mine;
}

/// Chooses `slots` of `experts` in the order of their keys, which are overwritten with NaN, and
/// writes them, if wanted. REQUIRES: a key is NaN only where its expert has no chance, and column e
/// was written by lane e % 32.
__device__ void choose(float* keys, const RouterPlace& at, int experts, int slots,
                       std::int32_t* chosen) {
  Candidate mine = first_of_lane(keys, experts, at.lane);
  for (int slot = 0; slot < slots; ++slot) {
    const Candidate best = first_of_warp(mine);
    if (best.expert % kWarpSize == at.lane) {
      if (chosen != nullptr) {
        chosen[slot] = best.expert;
      }
      keys[best.expert] = NAN;
      mine = first_of_lane(keys, experts, at.lane);
    }
    __syncwarp();
  }
}

/// Overwrites the choice scores of all but the best groups with NaN. `scores`: room for the groups.
__device__ void leave_groups_out(const RouterForwardParams& p, const RouterPlace& at, float* keys,
                                 float* scores) {
  const int experts = static_cast<int>(p.experts);
  const int groups = static_cast<int>(p.groups);
  const int size = experts / groups;
  __syncwarp();
  for (int group = at.lane; group < groups; group += kWarpSize) {
    float largest = -INFINITY;
    float second = -INFINITY;
    for (int i = 0; i < size; ++i) {
      // Lanes begin at different experts, that is in different banks of the memory.
      const float key = keys[group * size + (i + group) % size];
      second = fmaxf(second, fminf(largest, key));
      largest = fmaxf(largest, key);
    }
    const float sum = largest + second;
    scores[group] = isnan(sum) ? -INFINITY : sum;
  }
  choose(scores, at, groups, static_cast<int>(p.kept_groups), nullptr);
  for (int e = at.lane; e < experts; e += kWarpSize) {
    keys[e] = isnan(scores[e / size]) ? keys[e] : NAN;
  }
}

/// Weights of the chosen experts. `row`: sum of a softmax's exponentials.
__device__ void weigh(const RouterForwardParams& p, const RouterPlace& at, const RouterSum& row) {
  const float* logits = p.logits + at.row * p.experts;
  const std::int32_t* chosen = p.chosen + at.row * p.slots;
  float* weights = p.weights + at.row * p.slots;
  const int slots = static_cast<int>(p.slots);
  const bool normalised =
      p.kind == RouterKind::softmax_normalised || p.kind == RouterKind::sigmoid_normalised;
  const auto weight = [&](int slot) {
    const float logit = logits[chosen[slot]];
    switch (p.kind) {
      case RouterKind::sigmoid:
        return router_sigmoid(logit);
      case RouterKind::sigmoid_normalised:
        return router_score(logit);
      default:
        return row.probability(router_exp(logit - row.largest));
    }
  };
  float total = 0.0F;  // In order of slots, by every lane.
  for (int slot = 0; slot < slots && normalised; ++slot) {
    total += weight(slot);
  }
  const float divisor = p.kind == RouterKind::softmax_normalised   ? total
                        : p.kind == RouterKind::sigmoid_normalised ? total + kLeastSum
                                                                   : 1.0F;
  for (int slot = at.lane; slot < slots; slot += kWarpSize) {
    weights[slot] = weight(slot) / divisor * p.scale;
  }
}

__global__ void __launch_bounds__(kMostRouterWarps* kWarpSize)
    router_forward_kernel(RouterForwardParams p) {
  const RouterPlace at;
  const int experts = static_cast<int>(p.experts);
  if (at.row >= p.rows) {
    return;
  }
  const float* logits = p.logits + at.row * p.experts;
  float* keys = dynamic_shared<float>() + at.warp * forward_floats(p);
  const bool sigmoid = is_sigmoid(p.kind);
  const RouterSum row = sigmoid ? RouterSum{} : sum_of_row(logits, experts, at.lane, keys);
  for (int e = at.lane; e < experts; e += kWarpSize) {
    float key = sigmoid ? router_score(logits[e]) : row.probability(keys[e]);
    key += p.bias == nullptr ? 0.0F : p.bias[e];
    keys[e] = isnan(key) ? -INFINITY : key;
  }
  if (p.groups > 1) {
    leave_groups_out(p, at, keys, keys + experts);
  }
  choose(keys, at, experts, static_cast<int>(p.slots), p.chosen + at.row * p.slots);
  __syncwarp();
  weigh(p, at, row);
}

/// Adds p_e (factor_e - sum of p factor + z) to dlogits of the lane's own columns, for sigmoids
/// times 1 - s_e; p_e = row.probability(e[..]).
template <bool sigmoid>
__device__ void add_balance(const RouterBackwardParams& p, const RouterPlace& at,
                            const RouterSum& row, const float* e, const float* factors, double z) {
  const int experts = static_cast<int>(p.experts);
  const float* logits = p.logits + at.row * p.experts;
  float* dlogits = p.dlogits + at.row * p.experts;
  double mean = 0.0;
  for (int i = at.lane; i < experts && factors != nullptr; i += kWarpSize) {
    mean += static_cast<double>(row.probability(e[i])) * static_cast<double>(factors[i]);
  }
  mean = warp_sum(mean);
  for (int i = at.lane; i < experts; i += kWarpSize) {
    const double factor = factors == nullptr ? 0.0 : static_cast<double>(factors[i]);
    const float of_expert = row.probability(e[i]) * static_cast<float>(factor - mean + z);
    dlogits[i] += sigmoid ? of_expert * router_score(-logits[i]) : of_expert;
  }
}

/// Adds balancing's part to a row's dlogits. `e`: shared memory of the row; with a softmax it holds
/// exp(logit - largest), and `row` their sum.
__device__ void add_balancing(const RouterBackwardParams& p, const RouterPlace& at, RouterSum row,
                              float* e) {
  const int group = p.groups == nullptr ? 0 : p.groups[at.row];
  if (group < 0 || (p.factors == nullptr && p.z_factor == nullptr)) {
    return;
  }
  const int experts = static_cast<int>(p.experts);
  const float* logits = p.logits + at.row * p.experts;
  const float* factors = p.factors == nullptr ? nullptr : p.factors + group * p.experts;
  const bool sigmoid = is_sigmoid(p.kind);
  if (sigmoid && factors != nullptr) {
    add_balance<true>(p, at, sum_of_sigmoids(logits, experts, at.lane, e), e, factors, 0.0);
    factors = nullptr;
    if (p.z_factor == nullptr) {
      return;
    }
    __syncwarp();
  }
  if (sigmoid) {
    row = sum_of_row(logits, experts, at.lane, e);
  }
  const double z =
      p.z_factor == nullptr ? 0.0 : 2.0 * static_cast<double>(*p.z_factor) * row.log_sum_exp();
  add_balance<false>(p, at, row, e, factors, z);
}

__global__ void __launch_bounds__(kMostRouterWarps* kWarpSize)
    router_backward_kernel(RouterBackwardParams p) {
  const RouterPlace at;
  const int experts = static_cast<int>(p.experts);
  const int slots = static_cast<int>(p.slots);
  if (at.row >= p.rows) {
    return;
  }
  const float* logits = p.logits + at.row * p.experts;
  const std::int32_t* chosen = p.chosen + at.row * p.slots;
  const float* weights = p.weights + at.row * p.slots;
  const float* dweights = p.dweights + at.row * p.slots;
  float* dlogits = p.dlogits + at.row * p.experts;
  float* e = dynamic_shared<float>() + at.warp * experts;
  const RouterSum row = is_sigmoid(p.kind) ? RouterSum{} : sum_of_row(logits, experts, at.lane, e);
  float mean = 0.0F;  // Sum of the unscaled w_j g_j in order of slots, by every lane.
  for (int slot = 0; slot < slots; ++slot) {
    mean += weights[slot] / p.scale * dweights[slot];
  }
  for (int i = at.lane; i < experts; i += kWarpSize) {
    const bool flows = p.kind == RouterKind::softmax && mean != 0.0F;
    dlogits[i] = flows ? -(row.probability(e[i]) * mean) * p.scale : 0.0F;
  }
  __syncwarp();
  for (int slot = at.lane; slot < slots; slot += kWarpSize) {
    const float w = weights[slot];
    const float g = dweights[slot];
    const int expert = chosen[slot];
    if (p.kind == RouterKind::sigmoid) {
      dlogits[expert] = g * (w * (1.0F - w / p.scale));
    } else if (p.kind == RouterKind::sigmoid_normalised) {
      dlogits[expert] = w * router_score(-logits[expert]) * (g - mean);
    } else {
      dlogits[expert] = w * (g - mean);
    }
  }
  __syncwarp();
  add_balancing(p, at, row, e);
}

}  // namespace

void router_forward(CudaStream& stream, const RouterForwardParams& p) {
  const Grid grid = router_grid(p.rows, forward_floats(p));
  allow_shared_bytes(router_forward_kernel, grid.shared_bytes);
  launch(stream, router_forward_kernel, grid, p);
}

void router_backward(CudaStream& stream, const RouterBackwardParams& p) {
  const Grid grid = router_grid(p.rows, p.experts);
  allow_shared_bytes(router_backward_kernel, grid.shared_bytes);
  launch(stream, router_backward_kernel, grid, p);
}

}  // namespace train::kernels::cuda
