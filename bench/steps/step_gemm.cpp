#include "bench/steps/step_gemm.hpp"

#include <dnnl.h>
#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>

#include "bench/ranks/ranks_support.hpp"
#include "engine/model/model.hpp"

namespace train::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds forward, dX and dW of a matrix [out, in].
void add_matrix(std::vector<Product>& products, std::int64_t rows, std::int64_t out,
                std::int64_t in, std::int64_t times) {
  products.push_back({rows, out, in, false, true, times});
  products.push_back({rows, in, out, false, false, times});
  products.push_back({out, in, rows, true, false, times});
}

double run_once(const Product& p, const float* a, const float* b, float* c) {
  const auto begin = Clock::now();
  const auto status =
      dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0F, a,
                 p.transpose_a ? p.m : p.k, b, p.transpose_b ? p.k : p.n, 0.0F, c, p.n);
  if (status != dnnl_success) {
    throw std::runtime_error(fmt::format("dnnl_sgemm {} {} {} failed", p.m, p.n, p.k));
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median_seconds(const Product& p) {
  constexpr std::size_t kRuns = 3;
  constexpr double kEnough = 0.05;  // Small products are repeated.
  const std::vector<float> a = operand(p.m * p.k);
  const std::vector<float> b = operand(p.k * p.n);
  std::vector<float> c(static_cast<std::size_t>(p.m * p.n));
  // Warm-up: generates code, touches pages.
  double total = run_once(p, a.data(), b.data(), c.data());
  Values seconds;
  while (seconds.all.size() < kRuns || total < kEnough) {
    seconds.add(run_once(p, a.data(), b.data(), c.data()));
    total += seconds.all.back();
  }
  return seconds.median();
}

double seconds_of_all(const std::vector<Product>& products, int threads) {
  omp_set_num_threads(threads);
  double seconds = 0.0;
  for (const Product& product : products) {
    seconds += median_seconds(product) * static_cast<double>(product.times);
  }
  return seconds;
}

}  // namespace

std::vector<float> operand(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 2654435761U & 1023U) * 1e-3F - 0.5F;
  }
  return values;
}

std::vector<Product> products_of(const engine::ModelSpec& model, std::int64_t rows) {
  std::vector<Product> products;
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& matrix : unit.parameters) {
      if (matrix.linear) {
        add_matrix(products, rows, matrix.rows(), matrix.cols(), 1);
      }
    }
  }
  add_matrix(products, rows, model.vocab_size, model.embedding_dim, 1);
  return products;
}

double library_seconds(const std::vector<Product>& products, int threads) {
  // Runs on its own thread, whose team ends with it.
  return std::async(std::launch::async, seconds_of_all, std::cref(products), threads).get();
}

double flops_of(const std::vector<Product>& products) {
  double flops = 0.0;
  for (const Product& product : products) {
    flops += product.flops() * static_cast<double>(product.times);
  }
  return flops;
}

}  // namespace train::bench
