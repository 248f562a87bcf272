#include "bench/kernels/cpu_attention.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "kernels/attention/attention_cached.hpp"

namespace train::bench {
namespace {

using kernels::cpu_backend;
using kernels::Stream;

/// Attention with its own memory.
class AttentionSite {
 public:
  explicit AttentionSite(const AttentionCase& c)
      : case_(c),
        qkv_(values(c.tokens() * c.fused_width())),
        dqkv_(qkv_.size()),
        out_(static_cast<std::size_t>(c.tokens() * c.out_width())),
        dout_(values(c.tokens() * c.out_width())),
        lse_(static_cast<std::size_t>(c.tokens() * c.heads)),
        delta_(lse_.size()) {}

  [[nodiscard]] const AttentionCase& shape() const { return case_; }
  [[nodiscard]] AttentionMemory memory() {
    return {.qkv = qkv_.data(),
            .out = out_.data(),
            .dout = dout_.data(),
            .dqkv = dqkv_.data(),
            .lse = lse_.data(),
            .delta = delta_.data()};
  }
  void run(Stream& stream) {
    attention_forward(stream, cpu_backend(), case_, memory());
    attention_backward(stream, cpu_backend(), case_, memory());
  }
  /// Repeats keys and values of `grouped` for every head in their group, and sums the gradients
  /// back, as models without grouped kernels do.
  void repeat_from(const AttentionSite& grouped, Stream& stream);
  void sum_into(AttentionSite& grouped, Stream& stream) const;

 private:
  AttentionCase case_;
  Floats qkv_, dqkv_, out_, dout_, lse_, delta_;
};

void AttentionSite::repeat_from(const AttentionSite& grouped, Stream& stream) {
  const AttentionCase& from = grouped.case_;
  stream.enqueue([this, &grouped, &from] {
    const std::int64_t dim = from.head_dim;
    const std::int64_t group = from.heads / from.kv_heads;
    for (std::int64_t token = 0; token < from.tokens(); ++token) {
      const float* source = grouped.qkv_.data() + token * from.fused_width();
      float* out = std::copy_n(source, from.width(), qkv_.data() + token * case_.fused_width());
      for (std::int64_t head = 0; head < 2 * case_.heads; ++head) {
        out = std::copy_n(source + from.width() + head / group * dim, dim, out);
      }
    }
  });
}

void AttentionSite::sum_into(AttentionSite& grouped, Stream& stream) const {
  const AttentionCase& to = grouped.case_;
  stream.enqueue([this, &grouped, &to] {
    const std::int64_t dim = to.head_dim;
    const std::int64_t group = to.heads / to.kv_heads;
    for (std::int64_t token = 0; token < to.tokens(); ++token) {
      const float* source = dqkv_.data() + token * case_.fused_width();
      float* out = grouped.dqkv_.data() + token * to.fused_width();
      std::copy_n(source, to.width(), out);
      std::fill(out + to.width(), out + to.fused_width(), 0.0F);
      for (std::int64_t head = 0; head < 2 * case_.heads; ++head) {
        const float* one = source + to.width() + head * dim;
        float* sum = out + to.width() + head / group * dim;
        std::transform(one, one + dim, sum, sum, std::plus<>());
      }
    }
  });
}

}  // namespace

void bench_attention(CpuKernelBench& bench, const AttentionCase& c) {
  AttentionSite site(c);
  attention_rows(bench, c, site.memory());
}

void bench_grouped_attention(CpuKernelBench& bench, AttentionCase c) {
  AttentionSite grouped(c);
  c.kv_heads = 0;
  AttentionSite whole(c);
  const std::string shape = grouped.shape().shape();
  bench.compare("repeated / grouped, " + shape, 1.3,
                {[&](Stream& stream) { grouped.run(stream); },
                 [&](Stream& stream) {
                   whole.repeat_from(grouped, stream);
                   whole.run(stream);
                   whole.sum_into(grouped, stream);
                 }});
  bench.compare(
      "as many of all / grouped, " + shape, 1.0,
      {[&](Stream& stream) { grouped.run(stream); }, [&](Stream& stream) { whole.run(stream); }});
}

void bench_windowed_attention(CpuKernelBench& bench, AttentionCase c) {
  AttentionSite windowed(c);
  c.window = 0;
  AttentionSite full(c);
  bench.compare(
      "full / windowed, " + windowed.shape().shape(), 4.0,
      {[&](Stream& stream) { windowed.run(stream); }, [&](Stream& stream) { full.run(stream); }});
}

void bench_value_widths(CpuKernelBench& bench, AttentionCase c) {
  AttentionSite unlike(c);
  c.head_dim = (c.head_dim + c.value_dim) / 2;
  c.value_dim = 0;
  AttentionSite like(c);
  const auto forward = [](AttentionSite& site) {
    return [&site](Stream& stream) {
      attention_forward(stream, cpu_backend(), site.shape(), site.memory());
    };
  };
  const auto backward = [](AttentionSite& site) {
    return [&site](Stream& stream) {
      attention_backward(stream, cpu_backend(), site.shape(), site.memory());
    };
  };
  const std::string shape = unlike.shape().shape();
  bench.compare("like / unlike widths, forward, " + shape, 0.9, {forward(unlike), forward(like)});
  bench.compare("like / unlike widths, backward, " + shape, 0.9,
                {backward(unlike), backward(like)});
}

void bench_latent_attention(CpuKernelBench& bench, const LatentCase& c) {
  const std::int64_t width = c.latent + c.rope;
  const std::int64_t head_dim = c.plain + c.rope;
  const std::int64_t slack = kernels::KeyValueCache::kSlack;
  Floats q = values(c.heads * std::max(width, head_dim));
  Floats out(static_cast<std::size_t>(c.heads * std::max(c.latent, c.values)));
  Floats rows = values(c.tokens * width);
  Floats keys = values(c.heads * head_dim * c.tokens + slack);
  Floats kept = values(c.heads * c.values * c.tokens + slack);
  const std::int32_t text = 0;
  const auto position = static_cast<std::int32_t>(c.tokens - 1);
  const auto latents = [&](Stream& stream) {
    cpu_backend().latent_cached(stream, {.q = q.data(),
                                         .out = out.data(),
                                         .texts = &text,
                                         .positions = &position,
                                         .rows = 1,
                                         .heads = c.heads,
                                         .q_layout = {c.heads * width, width},
                                         .out_layout = {c.heads * c.latent, c.latent},
                                         .cache = {.rows = rows.data(),
                                                   .capacity = c.tokens,
                                                   .latent_dim = c.latent,
                                                   .rope_dim = c.rope},
                                         .scale = 0.1F});
  };
  const auto expanded = [&](Stream& stream) {
    cpu_backend().attention_cached(stream, {.q = q.data(),
                                            .out = out.data(),
                                            .texts = &text,
                                            .positions = &position,
                                            .rows = 1,
                                            .heads = c.heads,
                                            .q_layout = {c.heads * head_dim, head_dim},
                                            .out_layout = {c.heads * c.values, c.values},
                                            .cache = {.keys = keys.data(),
                                                      .values = kept.data(),
                                                      .capacity = c.tokens,
                                                      .kv_heads = c.heads,
                                                      .head_dim = head_dim,
                                                      .value_dim = c.values},
                                            .scale = 0.1F});
  };
  bench.row("attention over latents, " + c.shape(), 0, static_cast<double>(rows.size()) * 4.0,
            latents);
  bench.row("attention over keys, " + c.shape(), 0,
            static_cast<double>(keys.size() + kept.size()) * 4.0, expanded);
  bench.compare("keys / latents, " + c.shape(), 1.0, {latents, expanded});
}

}  // namespace train::bench
