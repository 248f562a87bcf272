#include "bench/kernels/cpu_experts.hpp"

#include <algorithm>
#include <string>

#include "kernels/activation/activation.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/gemm/matmul.hpp"

namespace train::bench {
namespace {

using kernels::cpu_backend;
using kernels::ExpertMatmulParams;
using kernels::ExpertProduct;
using kernels::KernelTable;
using kernels::MatmulParams;
using kernels::Stream;

using Numbers = std::vector<std::int32_t>;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

/// Activations and their gradients of a gated MLP, `count` rows of `hidden` and of d.
struct Hidden {
  Floats gate, up, activated, dactivated, out, dx;
  Hidden(std::int64_t count, std::int64_t hidden, std::int64_t d)
      : gate(size(count * hidden)),
        up(gate),
        activated(gate),
        dactivated(gate),
        out(size(count * d)),
        dx(out) {}
};

/// Gated MLP d -> hidden -> d without experts.
class DenseSite {
 public:
  DenseSite(std::int64_t rows, std::int64_t d, std::int64_t hidden)
      : rows_(rows),
        d_(d),
        width_(hidden),
        x_(values(rows * d)),
        dy_(values(rows * d)),
        weights_(values(3 * hidden * d)),
        gradients_(weights_.size()),
        at_(rows, hidden, d) {}

  void products(Stream& stream) {
    forward_products_in(stream);
    forward_product_out(stream);
    input_gradient_out(stream);
    weight_gradient_out(stream);
    gradients_in(stream);
  }
  void run(Stream& stream) {
    const KernelTable& kernels = cpu_backend();
    forward_products_in(stream);
    kernels.swiglu_forward(stream, {.gate = at_.gate.data(),
                                    .up = at_.up.data(),
                                    .y = at_.activated.data(),
                                    .count = rows_ * width_});
    forward_product_out(stream);
    input_gradient_out(stream);
    kernels.swiglu_backward(stream, {.gate = at_.gate.data(),
                                     .up = at_.up.data(),
                                     .dy = at_.dactivated.data(),
                                     .dgate = at_.gate.data(),
                                     .dup = at_.up.data(),
                                     .y = at_.activated.data(),
                                     .count = rows_ * width_});
    weight_gradient_out(stream);
    gradients_in(stream);
  }

 private:
  [[nodiscard]] const float* weight(int which) const {
    return weights_.data() + which * width_ * d_;
  }
  void output(Stream& stream, const Floats& x, int which, Floats& y) {
    const std::int64_t in = which == 2 ? width_ : d_;
    const std::int64_t out = which == 2 ? d_ : width_;
    cpu_backend().matmul(stream, {.a = x.data(),
                                  .b = weight(which),
                                  .c = y.data(),
                                  .m = rows_,
                                  .n = out,
                                  .k = in,
                                  .lda = in,
                                  .ldb = in,
                                  .ldc = out,
                                  .transpose_b = true});
  }
  void input(Stream& stream, const Floats& dy, int which, Floats& dx, bool accumulate = false) {
    const std::int64_t in = which == 2 ? width_ : d_;
    const std::int64_t out = which == 2 ? d_ : width_;
    cpu_backend().matmul(stream, {.a = dy.data(),
                                  .b = weight(which),
                                  .c = dx.data(),
                                  .m = rows_,
                                  .n = in,
                                  .k = out,
                                  .lda = out,
                                  .ldb = in,
                                  .ldc = in,
                                  .accumulate = accumulate});
  }
  void gradient(Stream& stream, const Floats& dy, const Floats& x, int which) {
    const std::int64_t in = which == 2 ? width_ : d_;
    const std::int64_t out = which == 2 ? d_ : width_;
    cpu_backend().matmul(stream, {.a = dy.data(),
                                  .b = x.data(),
                                  .c = gradients_.data() + which * width_ * d_,
                                  .m = out,
                                  .n = in,
                                  .k = rows_,
                                  .lda = out,
                                  .ldb = in,
                                  .ldc = in,
                                  .transpose_a = true});
  }
  void forward_products_in(Stream& stream) {
    output(stream, x_, 0, at_.gate);
    output(stream, x_, 1, at_.up);
  }
  void forward_product_out(Stream& stream) { output(stream, at_.activated, 2, at_.out); }
  void input_gradient_out(Stream& stream) { input(stream, dy_, 2, at_.dactivated); }
  void weight_gradient_out(Stream& stream) { gradient(stream, dy_, at_.activated, 2); }
  void gradients_in(Stream& stream) {
    gradient(stream, at_.gate, x_, 0);
    gradient(stream, at_.up, x_, 1);
    input(stream, at_.gate, 0, at_.dx);
    input(stream, at_.up, 1, at_.dx, /*accumulate=*/true);
  }

  std::int64_t rows_, d_, width_;
  Floats x_, dy_, weights_, gradients_;
  Hidden at_;
};

/// Layer of experts, in the order of kernels of the engine's block.
class ExpertsSite {
 public:
  explicit ExpertsSite(const ExpertsCase& c)
      : c_(c),
        x_(values(c.rows * c.d)),
        dy_(values(c.rows * c.d)),
        router_(values(c.experts * c.d)),
        drouter_(router_.size()),
        weights_(values(c.experts * stride())),
        gradients_(weights_.size()),
        logits_(size(c.rows * c.experts)),
        dlogits_(logits_.size()),
        slot_weights_(size(places())),
        dslot_weights_(slot_weights_),
        y_(x_.size()),
        dx_(x_.size()),
        chosen_(size(places())),
        row_of_(chosen_),
        slot_of_(chosen_),
        places_(chosen_),
        offsets_(size(c.experts + 1)),
        gathered_(size(places() * c.d)),
        at_(places(), c.hidden, c.d) {}

  void route(Stream& stream);
  void products(Stream& stream) {
    forward_products_in(stream);
    forward_product_out(stream);
    product(stream, ExpertProduct::input, 2, gathered_.data(), at_.dactivated.data());
    product(stream, ExpertProduct::weight, 2, gathered_.data(), at_.activated.data());
    gradients_in(stream);
  }
  void run(Stream& stream) {
    forward(stream);
    backward(stream);
  }

 private:
  [[nodiscard]] std::int64_t places() const { return c_.rows * c_.slots; }
  /// Elements of an expert: its matrices are neighbours.
  [[nodiscard]] std::int64_t stride() const { return 3 * c_.hidden * c_.d; }
  void product(Stream& stream, ExpertProduct kind, int which, const float* a, float* other,
               bool accumulate = false);
  void gather(Stream& stream, const Floats& x);
  void combine(Stream& stream, const Floats& parts, const float* weights, Floats& y);
  void route_backward(Stream& stream);
  void activate(Stream& stream);
  void forward(Stream& stream);
  void backward(Stream& stream);
  void forward_products_in(Stream& stream) {
    product(stream, ExpertProduct::output, 0, gathered_.data(), at_.gate.data());
    product(stream, ExpertProduct::output, 1, gathered_.data(), at_.up.data());
  }
  void forward_product_out(Stream& stream) {
    product(stream, ExpertProduct::output, 2, at_.activated.data(), at_.out.data());
  }
  void gradients_in(Stream& stream) {
    product(stream, ExpertProduct::weight, 0, at_.gate.data(), gathered_.data());
    product(stream, ExpertProduct::weight, 1, at_.up.data(), gathered_.data());
    product(stream, ExpertProduct::input, 0, at_.gate.data(), at_.dx.data());
    product(stream, ExpertProduct::input, 1, at_.up.data(), at_.dx.data(), /*accumulate=*/true);
  }

  ExpertsCase c_;
  Floats x_, dy_, router_, drouter_, weights_, gradients_, logits_, dlogits_, slot_weights_,
      dslot_weights_, y_, dx_;
  Numbers chosen_, row_of_, slot_of_, places_, offsets_;
  Floats gathered_;
  Hidden at_;
};

/// other: c of an output or an input, b of a gradient.
void ExpertsSite::product(Stream& stream, ExpertProduct kind, int which, const float* a,
                          float* other, bool accumulate) {
  const bool gradient = kind == ExpertProduct::weight;
  const std::int64_t n = which == 2 ? c_.d : c_.hidden;
  const std::int64_t k = which == 2 ? c_.hidden : c_.d;
  const std::int64_t first = which * c_.hidden * c_.d;
  ExpertMatmulParams params{.product = kind,
                            .a = a,
                            .b = weights_.data() + first,
                            .c = other,
                            .offsets = offsets_.data(),
                            .experts = c_.experts,
                            .places = places(),
                            .n = n,
                            .k = k,
                            .lda = kind == ExpertProduct::output ? k : n,
                            .ldb = k,
                            .ldc = kind == ExpertProduct::output ? n : k,
                            .stride = stride(),
                            .accumulate = accumulate};
  if (gradient) {
    params.b = other;
    params.c = gradients_.data() + first;
  }
  cpu_backend().expert_matmul(stream, params);
}

void ExpertsSite::gather(Stream& stream, const Floats& x) {
  cpu_backend().gather_rows(stream, {.x = x.data(),
                                     .index = row_of_.data(),
                                     .y = gathered_.data(),
                                     .count = places(),
                                     .cols = c_.d});
}

void ExpertsSite::combine(Stream& stream, const Floats& parts, const float* weights, Floats& y) {
  cpu_backend().combine_rows(stream, {.parts = parts.data(),
                                      .places = places_.data(),
                                      .weights = weights,
                                      .y = y.data(),
                                      .rows = c_.rows,
                                      .slots = c_.slots,
                                      .cols = c_.d});
}

void ExpertsSite::route(Stream& stream) {
  cpu_backend().matmul(stream, {.a = x_.data(),
                                .b = router_.data(),
                                .c = logits_.data(),
                                .m = c_.rows,
                                .n = c_.experts,
                                .k = c_.d,
                                .lda = c_.d,
                                .ldb = c_.d,
                                .ldc = c_.experts,
                                .transpose_b = true});
  cpu_backend().router_forward(stream, {.logits = logits_.data(),
                                        .chosen = chosen_.data(),
                                        .weights = slot_weights_.data(),
                                        .rows = c_.rows,
                                        .experts = c_.experts,
                                        .slots = c_.slots});
  cpu_backend().expert_sort(stream, {.chosen = chosen_.data(),
                                     .offsets = offsets_.data(),
                                     .row_of = row_of_.data(),
                                     .slot_of = slot_of_.data(),
                                     .places = places_.data(),
                                     .rows = c_.rows,
                                     .experts = c_.experts,
                                     .slots = c_.slots});
}

void ExpertsSite::route_backward(Stream& stream) {
  cpu_backend().router_backward(stream, {.logits = logits_.data(),
                                         .chosen = chosen_.data(),
                                         .weights = slot_weights_.data(),
                                         .dweights = dslot_weights_.data(),
                                         .dlogits = dlogits_.data(),
                                         .rows = c_.rows,
                                         .experts = c_.experts,
                                         .slots = c_.slots});
  cpu_backend().matmul(stream, {.a = dlogits_.data(),
                                .b = x_.data(),
                                .c = drouter_.data(),
                                .m = c_.experts,
                                .n = c_.d,
                                .k = c_.rows,
                                .lda = c_.experts,
                                .ldb = c_.d,
                                .ldc = c_.d,
                                .transpose_a = true});
  cpu_backend().matmul(stream, {.a = dlogits_.data(),
                                .b = router_.data(),
                                .c = dx_.data(),
                                .m = c_.rows,
                                .n = c_.d,
                                .k = c_.experts,
                                .lda = c_.experts,
                                .ldb = c_.d,
                                .ldc = c_.d,
                                .accumulate = true});
}

void ExpertsSite::activate(Stream& stream) {
  cpu_backend().swiglu_forward(stream, {.gate = at_.gate.data(),
                                        .up = at_.up.data(),
                                        .y = at_.activated.data(),
                                        .count = places() * c_.hidden});
}

void ExpertsSite::forward(Stream& stream) {
  route(stream);
  gather(stream, x_);
  forward_products_in(stream);
  activate(stream);
  forward_product_out(stream);
  combine(stream, at_.out, slot_weights_.data(), y_);
}

void ExpertsSite::backward(Stream& stream) {
  gather(stream, dy_);
  activate(stream);  // As in the engine, which does not keep it.
  product(stream, ExpertProduct::input, 2, gathered_.data(), at_.dactivated.data());
  cpu_backend().slot_weights_backward(stream, {.dh = at_.dactivated.data(),
                                               .h = at_.activated.data(),
                                               .slot_of = slot_of_.data(),
                                               .weights = slot_weights_.data(),
                                               .dweights = dslot_weights_.data(),
                                               .count = places(),
                                               .cols = c_.hidden});
  product(stream, ExpertProduct::weight, 2, gathered_.data(), at_.activated.data());
  cpu_backend().swiglu_backward(stream, {.gate = at_.gate.data(),
                                         .up = at_.up.data(),
                                         .dy = at_.dactivated.data(),
                                         .dgate = at_.gate.data(),
                                         .dup = at_.up.data(),
                                         .count = places() * c_.hidden});
  gather(stream, x_);
  gradients_in(stream);
  combine(stream, at_.dx, nullptr, dx_);
  route_backward(stream);
}

/// A router of DeepSeek-V3's size.
class RouterSite {
 public:
  RouterSite(std::int64_t rows, kernels::RouterKind kind, bool grouped)
      : logits_(values(rows * kExperts)),
        bias_(values(kExperts)),
        weights_(size(rows * kSlots)),
        dweights_(values(rows * kSlots)),
        dlogits_(logits_.size()),
        chosen_(weights_.size()),
        forward_{.kind = kind,
                 .logits = logits_.data(),
                 .chosen = chosen_.data(),
                 .weights = weights_.data(),
                 .rows = rows,
                 .experts = kExperts,
                 .slots = kSlots} {
    std::transform(logits_.begin(), logits_.end(), logits_.begin(), [](float l) { return 8 * l; });
    if (grouped) {
      forward_.bias = bias_.data();
      forward_.groups = 8;
      forward_.kept_groups = 4;
      forward_.scale = 2.5F;
    }
  }

  void forward(Stream& stream) { cpu_backend().router_forward(stream, forward_); }
  void backward(Stream& stream) {
    cpu_backend().router_backward(stream, {.kind = forward_.kind,
                                           .logits = logits_.data(),
                                           .chosen = chosen_.data(),
                                           .weights = weights_.data(),
                                           .dweights = dweights_.data(),
                                           .dlogits = dlogits_.data(),
                                           .rows = forward_.rows,
                                           .experts = kExperts,
                                           .slots = kSlots,
                                           .scale = forward_.scale});
  }

 private:
  static constexpr std::int64_t kExperts = 256;
  static constexpr std::int64_t kSlots = 8;
  Floats logits_, bias_, weights_, dweights_, dlogits_;
  Numbers chosen_;
  kernels::RouterForwardParams forward_;
};

}  // namespace

void bench_experts(CpuKernelBench& bench, const ExpertsCase& c, double products, double whole) {
  DenseSite dense(c.rows, c.d, c.slots * c.hidden);
  ExpertsSite experts(c);
  const std::string shape =
      fmt::format("{} rows, {} of {} experts {} -> {}", c.rows, c.slots, c.experts, c.d, c.hidden);
  bench.compare(
      "whole / dense, " + shape, whole,
      {[&](Stream& stream) { experts.run(stream); }, [&](Stream& stream) { dense.run(stream); }});
  bench.compare("products / dense, " + shape, products,
                {[&](Stream& stream) { experts.products(stream); },
                 [&](Stream& stream) { dense.products(stream); }});
}

void bench_routers(CpuKernelBench& bench, std::int64_t rows) {
  using kernels::RouterKind;
  struct Kind {
    const char* name;
    RouterKind kind;
    bool grouped;
    double target;
  };
  constexpr Kind kinds[] = {
      {"softmax, normalised", RouterKind::softmax_normalised, false, 0.9},
      {"sigmoid", RouterKind::sigmoid, false, 0.67},
      {"sigmoid, normalised", RouterKind::sigmoid_normalised, false, 0.67},
      {"sigmoid, normalised, 4 of 8 groups", RouterKind::sigmoid_normalised, true, 0.67},
  };
  RouterSite softmax(rows, RouterKind::softmax, false);
  const auto forward = [](RouterSite& site) { return [&](Stream& s) { site.forward(s); }; };
  const auto backward = [](RouterSite& site) { return [&](Stream& s) { site.backward(s); }; };
  const std::string shape = fmt::format("{} rows, 8 of 256", rows);
  bench.row("router, softmax, " + shape, 0.0, 0.0, forward(softmax));
  bench.row("router backward, softmax, " + shape, 0.0, 0.0, backward(softmax));
  for (const Kind& kind : kinds) {
    RouterSite site(rows, kind.kind, kind.grouped);
    bench.compare(fmt::format("router / softmax, {}", kind.name), kind.target,
                  {forward(site), forward(softmax)});
    bench.compare(fmt::format("backward / softmax, {}", kind.name), kind.target,
                  {backward(site), backward(softmax)});
  }
}

}  // namespace train::bench
