#include <vector>

#include "base/math/fixed_math.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {

void attention_sinks_backward(const AttentionSinksBackwardParams& p, int threads) {
  std::vector<double> sums(static_cast<std::size_t>(p.sequences * p.heads));
  parallel_for(threads, p.sequences * p.heads, [&](std::int64_t i, int) {
    const auto sink = static_cast<double>(p.sinks[i % p.heads]);
    const float* const lse = p.lse + i * p.seq_len;
    const float* const delta = p.delta + i * p.seq_len;
    double sum = 0.0;
    for (std::int64_t row = 0; row < p.seq_len; ++row) {
      sum -= fixed::exp(sink - static_cast<double>(lse[row])) * static_cast<double>(delta[row]);
    }
    sums[static_cast<std::size_t>(i)] = sum;
  });
  for (std::int64_t head = 0; head < p.heads; ++head) {
    double sum = 0.0;
    for (std::int64_t sequence = 0; sequence < p.sequences; ++sequence) {
      sum += sums[static_cast<std::size_t>(sequence * p.heads + head)];
    }
    p.dsinks[head] = static_cast<float>(sum);
  }
}

}  // namespace train::kernels::cpu
