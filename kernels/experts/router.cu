#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.cuh"
#include "kernels/instructions.cuh"

// Choices and weights of a layer of experts. A warp has a row: its reads of [rows, experts] and the
// rounds of the choice, one per slot, limit it; both are small beside the experts' products.
namespace train::kernels::cuda {
namespace {

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

/// Chooses `slots` experts in the order of their keys, which are overwritten with NaN. Every NaN
/// among the keys must have been replaced by -Inf.
__device__ void choose(float* keys, const RouterPlace& at, int experts, int slots,
                       std::int32_t* chosen) {
  Candidate mine = first_of_lane(keys, experts, at.lane);
  for (int slot = 0; slot < slots; ++slot) {
    const Candidate best = first_of_warp(mine);
    if (best.expert % kWarpSize == at.lane) {
      chosen[slot] = best.expert;
      keys[best.expert] = NAN;
      mine = first_of_lane(keys, experts, at.lane);
    }
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kMostRouterWarps* kWarpSize)
    router_forward_kernel(RouterForwardParams p) {
  const RouterPlace at;
  const int experts = static_cast<int>(p.experts);
  const int slots = static_cast<int>(p.slots);
  if (at.row >= p.rows) {
    return;
  }
  const float* logits = p.logits + at.row * p.experts;
  std::int32_t* chosen = p.chosen + at.row * p.slots;
  float* weights = p.weights + at.row * p.slots;
  float* keys = dynamic_shared<float>() + at.warp * experts;
  const bool gate = p.kind == RouterKind::sigmoid;
  const RouterSum row = gate ? RouterSum{} : sum_of_row(logits, experts, at.lane, keys);
  for (int e = at.lane; e < experts; e += kWarpSize) {
    const float key = gate ? logits[e] : row.probability(keys[e]);
    keys[e] = isnan(key) ? -INFINITY : key;
  }
  choose(keys, at, experts, slots, chosen);
  __syncwarp();
  const auto weight = [&](int slot) {
    const float logit = logits[chosen[slot]];
    return gate ? router_sigmoid(logit) : row.probability(router_exp(logit - row.largest));
  };
  float total = 0.0F;  // In order of slots, by every lane.
  for (int slot = 0; slot < slots && p.kind == RouterKind::softmax_normalised; ++slot) {
    total += weight(slot);
  }
  for (int slot = at.lane; slot < slots; slot += kWarpSize) {
    weights[slot] = p.kind == RouterKind::softmax_normalised ? weight(slot) / total : weight(slot);
  }
}

/// Adds balancing's part to dlogits of the lane's own columns. `e` holds exp(logit - largest).
__device__ void add_balancing(const RouterBackwardParams& p, const RouterPlace& at,
                              const RouterSum& row, const float* e, float* dlogits) {
  const int group = p.groups == nullptr ? 0 : p.groups[at.row];
  if (group < 0 || (p.factors == nullptr && p.z_factor == nullptr)) {
    return;
  }
  const int experts = static_cast<int>(p.experts);
  const float* factors = p.factors == nullptr ? nullptr : p.factors + group * p.experts;
  double mean = 0.0;
  for (int i = at.lane; i < experts && factors != nullptr; i += kWarpSize) {
    mean += static_cast<double>(row.probability(e[i])) * static_cast<double>(factors[i]);
  }
  mean = warp_sum(mean);
  const double z =
      p.z_factor == nullptr ? 0.0 : 2.0 * static_cast<double>(*p.z_factor) * row.log_sum_exp();
  for (int i = at.lane; i < experts; i += kWarpSize) {
    const double factor = factors == nullptr ? 0.0 : static_cast<double>(factors[i]);
    dlogits[i] += row.probability(e[i]) * static_cast<float>(factor - mean + z);
  }
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
  const RouterSum row = sum_of_row(logits, experts, at.lane, e);
  float mean = 0.0F;  // Sum of w_j g_j in order of slots, by every lane.
  for (int slot = 0; slot < slots; ++slot) {
    mean += weights[slot] * dweights[slot];
  }
  for (int i = at.lane; i < experts; i += kWarpSize) {
    const bool flows = p.kind == RouterKind::softmax && mean != 0.0F;
    dlogits[i] = flows ? -(row.probability(e[i]) * mean) : 0.0F;
  }
  __syncwarp();
  for (int slot = at.lane; slot < slots; slot += kWarpSize) {
    const float w = weights[slot];
    const float g = dweights[slot];
    dlogits[chosen[slot]] = p.kind == RouterKind::sigmoid ? g * (w * (1.0F - w)) : w * (g - mean);
  }
  __syncwarp();
  add_balancing(p, at, row, e, dlogits);
}

}  // namespace

void router_forward(CudaStream& stream, const RouterForwardParams& p) {
  const Grid grid = router_grid(p.rows, p.experts);
  allow_shared_bytes(router_forward_kernel, grid.shared_bytes);
  launch(stream, router_forward_kernel, grid, p);
}

void router_backward(CudaStream& stream, const RouterBackwardParams& p) {
  const Grid grid = router_grid(p.rows, p.experts);
  allow_shared_bytes(router_backward_kernel, grid.shared_bytes);
  launch(stream, router_backward_kernel, grid, p);
}

}  // namespace train::kernels::cuda
