#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/elements.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/optimizer/update_guard.hpp"

#include "kernels/device/buffer.hpp"
#include "kernels/device/cuda_device.hpp"
#include "tests/kernels/kernel_fixture.hpp"
#include "tests/support/harness/drawn.hpp"

// A kernel of the CUDA table against its CPU twin: one call is written once, and run on both.
namespace train::kernels::testing {

/// Tolerances are in roundings of fp32: |cuda - cpu| <= roundings * 2^-24 * (1 + |cpu|).
constexpr double rounding = 1.0 / (1 << 24);
constexpr double same_bits = 0.0;
/// A few operations, fused on one side alone where the CPU has no such instruction.
constexpr double elementwise = 4.0;
/// One rounding of a result to bf16, and what fp32 does besides.
constexpr double bf16_rounding = 1.01 * (1 << 16);
/// exp, log and the like, of two libraries.
constexpr double transcendental = 16.0;

/// A sum of `terms` products, added up in another order: roundings of either sign, so their sum
/// grows like a root; of partial sums that may be some times the result.
inline double sum_of(std::int64_t terms) {
  return 16.0 + 8.0 * std::sqrt(static_cast<double>(terms));
}

/// What a result holds, as doubles to compare.
inline void append(Exact& to, float value) { to.push_back(value); }
inline void append(Exact& to, double value) { to.push_back(value); }
inline void append(Exact& to, std::uint16_t value) { to.push_back(value); }
inline void append(Exact& to, std::int32_t value) { to.push_back(value); }
inline void append(Exact& to, std::int64_t value) { to.push_back(static_cast<double>(value)); }
template <class Sums>
requires requires(const Sums& sums) { sums.cross_entropy; }
void append(Exact& to, const Sums& sums) {
  to.insert(to.end(),
            {sums.cross_entropy, sums.z_squared, sums.correct, sums.targets, sums.weights});
}
template <class Sums>
requires requires(const Sums& sums) { sums.momentum_squared; }
void append(Exact& to, const Sums& sums) {
  to.insert(to.end(), {sums.alpha, sums.ratio, sums.momentum_squared, sums.count});
}
inline void append(Exact& to, const UpdateGuard& gate) {
  to.insert(to.end(),
            {gate.grad_scale, gate.grad_norm, static_cast<double>(gate.nonfinite), gate.loss});
}

/// The nearest bf16 of each value, and these as values again.
inline std::vector<std::uint16_t> halves_of(const Values& values) {
  std::vector<std::uint16_t> halves(values.size());
  cpu::pack_bf16(*make_inline_stream(1),
                 {.in = values.data(), .out = halves.data(), .count = std::ssize(values)});
  return halves;
}
inline Values values_of(const std::vector<std::uint16_t>& halves) {
  Values values(halves.size());
  cpu::unpack_bf16(*make_inline_stream(1),
                   {.in = halves.data(), .out = values.data(), .count = std::ssize(halves)});
  return values;
}

/// One of the two: a table, a stream of its device, and memory there.
class Side {
 public:
  Side(const KernelTable& table, std::unique_ptr<Stream> stream, MemoryKind kind)
      : kernels(table), stream_(std::move(stream)), kind_(kind) {}

  const KernelTable& kernels;
  DType dtype = DType::f32;  ///< Of elements(), on this side.
  bool rounds = false;       ///< elements() hold values that are bf16, whatever their type is.

  [[nodiscard]] Stream& stream() const { return *stream_; }

  /// A copy of `values` in the device's memory, for as long as the side lives.
  template <class T>
  T* put(const std::vector<T>& values) {
    const std::size_t size_bytes = values.size() * sizeof(T);
    buffers_.emplace_back(size_bytes, "test", kind_);
    T* data = buffers_.back().template as<T>();
    transfer(data, values.data(), size_bytes);
    return data;
  }
  /// The same, and what the kernel leaves there is compared.
  template <class T>
  T* result(const std::vector<T>& values) {
    T* data = put(values);
    readers_.push_back([this, data, count = values.size()](Exact& to) {
      std::vector<T> read(count);
      transfer(read.data(), data, count * sizeof(T));
      for (const T& value : read) {
        append(to, value);
      }
    });
    return data;
  }

  /// put() and result() of what kernels take as either type.
  engine::Elements elements(const Values& values) {
    if (dtype == DType::bf16) {
      return {reinterpret_cast<std::byte*>(put(halves_of(values))), dtype};
    }
    return put(rounds ? values_of(halves_of(values)) : values);
  }
  engine::Elements element_result(const Values& values) {
    if (dtype == DType::f32) {
      return result(rounds ? values_of(halves_of(values)) : values);
    }
    const engine::Elements data = elements(values);
    readers_.push_back([this, data, count = values.size()](Exact& to) {
      std::vector<std::uint16_t> read(count);
      transfer(read.data(), data, count * sizeof(std::uint16_t));
      const Values wide = values_of(read);
      to.insert(to.end(), wide.begin(), wide.end());
    });
    return data;
  }

  /// All results, one after another.
  [[nodiscard]] Exact results() const {
    stream_->synchronize();
    Exact all;
    for (const auto& read : readers_) {
      read(all);
    }
    return all;
  }

 private:
  void transfer(void* out, const void* in, std::size_t size_bytes) const {
    kernels.copy(*stream_,
                 {.out = out, .in = in, .size_bytes = static_cast<std::int64_t>(size_bytes)});
    stream_->synchronize();
  }

  std::unique_ptr<Stream> stream_;
  MemoryKind kind_;
  std::vector<Buffer> buffers_;
  std::vector<std::function<void(Exact&)>> readers_;
};

inline Side cpu_side() { return {cpu_backend(), make_thread_stream("cpu", 2), MemoryKind::host}; }
/// REQUIRES: cuda_backend() is there.
inline Side cuda_side() { return {*cuda_backend(), make_cuda_stream("cuda"), MemoryKind::device}; }

/// True where there is no device; says so, once for a program.
inline bool no_device() {
  if (cuda_backend() != nullptr) {
    return false;
  }
  [[maybe_unused]] static const bool said = [] {
    std::printf("skipped: tests of CUDA kernels: %s\n", cuda_absence().c_str());
    return true;
  }();
  return true;
}

/// Whether the device is emulated (tests/cuda_emulation): a step takes about a second.
/// REQUIRES: cuda_backend() is there.
inline bool emulated_device() {
  return cuda_backend()->kernel_set().find(" emulated ") != std::string::npos;
}

/// Cases to run: all on a device, `count` drawn by --rng-seed on an emulated one, where all of them
/// run in soaks. REQUIRES: cuda_backend() is there.
template <class Case>
std::vector<Case> drawn_if_emulated(std::vector<Case> cases, std::size_t count) {
  return emulated_device() ? test::drawn(std::move(cases), count) : cases;
}

/// The largest |actual - expected| / (1 + |expected|); infinite where only one is NaN, or the
/// counts differ. Infinities of one sign are equal.
inline double largest_error(const Exact& actual, const Exact& expected) {
  constexpr double wrong = std::numeric_limits<double>::infinity();
  if (actual.size() != expected.size()) {
    return wrong;
  }
  double worst = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool same =
        actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]));
    const double error =
        same ? 0.0 : std::abs(actual[i] - expected[i]) / (1.0 + std::abs(expected[i]));
    worst = std::max(worst, std::isfinite(error) ? error : wrong);
  }
  return worst;
}

/// One line of the table: kernel, case, largest error in roundings and of how many that may be.
inline void print_row(const std::string& kernel, const std::string& what, double error,
                      double roundings) {
  [[maybe_unused]] static const bool headed = [] {
    std::printf("%-22s %-34s %10s %10s\n", "kernel", "case", "error", "allowed");
    return true;
  }();
  const bool fine = error <= roundings * rounding;
  std::printf("%-22s %-34s %10.3g %10g  %s\n", kernel.c_str(), what.c_str(), error / rounding,
              roundings, fine ? "ok" : "FAILED");
  std::fflush(stdout);
}

/// Runs `call` on both sides, prints the table's row and requires that the results agree. `dtype`:
/// of the CUDA side's elements(); those of the CPU are the same values in fp32.
inline void compare_sides(const std::string& kernel, const std::string& what, DType dtype,
                          double roundings, const std::function<void(Side&)>& call) {
  if (no_device()) {
    return;
  }
  Side cpu = cpu_side();
  Side cuda = cuda_side();
  cuda.dtype = dtype;
  cpu.rounds = dtype == DType::bf16;
  call(cpu);
  call(cuda);
  const double error = largest_error(cuda.results(), cpu.results());
  print_row(kernel, what, error, roundings);
  INFO(kernel << " " << what << ": error " << error << ", allowed " << roundings * rounding);
  CHECK(error <= roundings * rounding);
}

inline void compare_twins(const std::string& kernel, const std::string& what, double roundings,
                          const std::function<void(Side&)>& call) {
  compare_sides(kernel, what, DType::f32, roundings, call);
}

/// compare_twins() of a kernel that takes elements of either type, in both.
inline void compare_twins(const std::string& kernel, const std::string& what, double roundings,
                          double bf16_roundings, const std::function<void(Side&)>& call) {
  compare_sides(kernel, what, DType::f32, roundings, call);
  compare_sides(kernel, what + " bf16", DType::bf16, bf16_roundings, call);
}

}  // namespace train::kernels::testing
