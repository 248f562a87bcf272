// Comparison of GEMM libraries at the shapes of a training step: the table in kernels/README.md.
// Usage: bench_gemm [threads] [avx2] [--shape NAME]. BLIS and OpenBLAS are included if installed
// (Debian: libblis4-openmp, libopenblas0-openmp). Each product is measured with every library in
// turn, in rounds; a figure covers all products of a class at the medians of their rounds. avx2: no
// library uses AVX-512. NAME: only classes whose name contains it. "limit": the FMA units in
// registers alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/kernels/fma_limit.hpp"
#include "bench/kernels/gemm_libraries.hpp"
#include "bench/steps/step_case.hpp"
#include "tests/support/devices/instruction_sets.hpp"

namespace {

using namespace train::bench;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr std::int64_t kHeadRows = 128;  // Rows of logits at a time, as in the head.
constexpr double kRoundSeconds = 0.02;   // For one product and library; a slower product runs once.

struct ShapeClass {
  std::string name;
  std::vector<Product> products;
};

std::string kind_of(const Product& p) {
  return p.transpose_a ? "dW = dy^T x" : p.transpose_b ? "y = x W^T" : "dx = dy W";
}

/// Equal matrices of other layers are counted together.
void add(std::vector<Product>& products, const Product& p) {
  for (Product& known : products) {
    if (known.m == p.m && known.n == p.n && known.k == p.k) {
      known.times += p.times;
      return;
    }
  }
  products.push_back(p);
}

/// Products of a model, grouped by purpose, the head separately.
std::vector<ShapeClass> classes_of(const Workplace& place, const StepCase& one,
                                   const std::string& name) {
  const auto plan = plan_of_case(place, one);
  const auto& shape = plan.engine.model;
  const auto& batch = plan.engine.batch;
  std::vector<ShapeClass> classes;
  std::map<std::string, std::size_t> known;
  const std::int64_t rows = batch.micro_batch * plan.engine.seq_len;
  for (Product p : products_of(shape, rows)) {
    const bool head = p.m == shape.vocab_size || p.n == shape.vocab_size || p.k == shape.vocab_size;
    if (head) {
      (p.transpose_a ? p.k : p.m) = std::min(rows, kHeadRows);
    }
    const std::string what = fmt::format("{}, {}{}", name, head ? "head " : "", kind_of(p));
    const auto [at, added] = known.try_emplace(what, classes.size());
    if (added) {
      classes.push_back({what, {}});
    }
    add(classes[at->second].products, p);
  }
  return classes;
}

double seconds_of(GemmLibrary& library, int times) {
  const auto begin = Clock::now();
  library.run(times);
  return std::chrono::duration<double>(Clock::now() - begin).count() / times;
}

/// Seconds by library; 0: the library does not support the product.
std::vector<double> measure(const Product& product, int threads,
                            const std::vector<std::unique_ptr<GemmLibrary>>& libraries) {
  const std::vector<float> a = operand(product.m * product.k);
  const std::vector<float> b = operand(product.k * product.n);
  std::vector<float> c(static_cast<std::size_t>(product.m * product.n));
  std::vector<int> times(libraries.size(), 0);
  std::vector<Values> seconds(libraries.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      if (!libraries[i]->takes(product)) {
        continue;
      }
      libraries[i]->prepare({product, a.data(), b.data(), c.data()}, threads);
      if (times[i] == 0) {
        seconds_of(*libraries[i], 1);  // Warm-up: generates code, touches memory.
        times[i] = std::max(1, static_cast<int>(kRoundSeconds / seconds_of(*libraries[i], 1)));
      }
      seconds[i].add(seconds_of(*libraries[i], times[i]));
    }
  }
  std::vector<double> medians;
  for (const Values& one : seconds) {
    medians.push_back(one.all.empty() ? 0.0 : one.median());
  }
  return medians;
}

void print_class(const ShapeClass& one, int threads,
                 const std::vector<std::unique_ptr<GemmLibrary>>& libraries) {
  std::vector<double> seconds(libraries.size(), 0.0);
  for (const Product& product : one.products) {
    const std::vector<double> medians = measure(product, threads, libraries);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      seconds[i] += medians[i] * static_cast<double>(product.times);
    }
  }
  std::size_t best = 0;
  std::string line = fmt::format("| {:<28} |", one.name);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const bool has = seconds[i] > 0.0;
    best = has && seconds[i] < seconds[best] ? i : best;
    line += has ? fmt::format(" {:>13.0f} |", flops_of(one.products) / seconds[i] * 1e-9)
                : fmt::format(" {:>13} |", "-");
  }
  fmt::print("{} {} ({:.2f} x engine) |\n", line, libraries[best]->name(),
             seconds[0] / seconds[best]);
  std::fflush(stdout);
}

struct Options {
  std::vector<int> threads = {1, 2};
  bool narrow = false;  ///< Without AVX-512.
  std::string shape;    ///< Only classes whose name contains this.
};

/// Throws std::runtime_error.
Options options_of(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "avx2") {
      options.narrow = true;
    } else if (word == "--shape" && i + 1 < words.size()) {
      options.shape = words[++i];
    } else if (const int threads = std::atoi(word.c_str()); threads > 0) {
      options.threads = {threads};
    } else {
      throw std::runtime_error("usage: bench_gemm [threads] [avx2] [--shape NAME], not " + word);
    }
  }
  return options;
}

void print_table(int threads, const std::string& shape) {
  const Workplace place;
  const auto libraries = gemm_libraries();
  const double limit = fma_limit(threads, 0.5) * 1e-9;
  fmt::print("{} threads, limit of the FMA units {:.0f} GFLOP/s\n\n", threads, limit);
  std::string head = fmt::format("| {:<28} |", fmt::format("GFLOP/s, {} threads", threads));
  std::string rule = "|---|";
  for (const auto& library : libraries) {
    head += fmt::format(" {:>13} |", library->name());
    rule += "---|";
  }
  fmt::print("{} fastest |\n{}---|\n", head, rule);
  const std::vector<std::pair<const char*, StepCase>> cases = {
      {"124M, 1 x 1024", gpt2_case(1024, 1, 1)},
      {"124M, 4 x 64", gpt2_case(64, 4, 1)},
      {"quickstart", quickstart_case()},
      {"qwen3 2 heads", qwen3_case()}};
  for (const auto& [name, one] : cases) {
    for (const ShapeClass& each : classes_of(place, one, name)) {
      if (each.name.find(shape) != std::string::npos) {
        print_class(each, threads, libraries);
      }
    }
  }
}

/// Restarts with environment variables that are read before main(): otherwise OpenMP's threads
/// would keep spinning on the cores of the next measurement, and freed operands would make the next
/// product fault its pages in again, which does not happen in a run. `narrow`: without AVX-512.
void start_undisturbed(char* argv[], bool narrow) {
  if (::getenv("OMP_WAIT_POLICY") == nullptr) {
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::setenv("MALLOC_TRIM_THRESHOLD_", "1000000000", 0);
    ::setenv("MALLOC_MMAP_THRESHOLD_", "1000000000", 0);
    if (narrow) {
      ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
      ::setenv("OPENBLAS_CORETYPE", "Haswell", 1);
      ::setenv("BLIS_ARCH_TYPE", "haswell", 1);
    }
    ::execv("/proc/self/exe", argv);
  }
  if (narrow) {
    train::test::do_without_instructions(train::test::kAvx512);
  }
}

}  // namespace

int main(int argc, char* argv[]) {
  try {
    const Options options = options_of({argv + 1, argv + argc});
    start_undisturbed(argv, options.narrow);
    for (const int threads : options.threads) {
      print_table(threads, options.shape);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_gemm: {}\n", error.what());
    return 1;
  }
  return 0;
}
