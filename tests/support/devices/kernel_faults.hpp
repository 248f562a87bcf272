#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/attention/attention.hpp"
#include "kernels/backend.hpp"
#include "kernels/state_space/causal_conv.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/kill_points.hpp"

namespace train::test {

/// Makes a kernel of one process fail: the backward pass of an attention, as set by the environment
/// of a run.
///
///   ACTORTRAIN_TEST_FAULT=<what>:<n>:<role>  role: a rank's number, or head; n: first
///   failing call, from 1; what:
///     throw, bad_alloc  the kernel throws on its stream
///     handler           enqueuing it throws std::bad_alloc
///     nan               it writes one NaN
///     wedge             it hangs while the file ACTORTRAIN_TEST_WEDGE exists
///     forward           the n-th forward pass of an attention hangs likewise
///     scan              the n-th backward pass of a scan's convolution hangs likewise
///     start             the kernels are unavailable (n is ignored)
///     thread            an unsupervised thread throws
///
/// While the file ACTORTRAIN_TEST_SLOW exists, each such pass in any process takes 5 ms longer, so
/// that a run on a fast machine lasts until the test has acted on it.
///
/// ACTORTRAIN_TEST_KERNEL_SET=<name> renames the kernel set, as if the kernels had other bits.
///
/// The file ACTORTRAIN_TEST_FAULT_STAMP gets the time of the first fault, except handler and
/// thread: nanoseconds of std::chrono::steady_clock, which all processes of a machine share.
class KernelFaults {
 public:
  KernelFaults() {
    const char* const text = std::getenv("ACTORTRAIN_TEST_FAULT");
    const std::string fault = text == nullptr ? "" : text;
    const std::size_t first = fault.find(':');
    const std::size_t last = fault.rfind(':');
    if (first < last && fault.substr(last + 1) == KillPoints::own_role()) {
      what_ = fault.substr(0, first);
      number_ = std::atoi(fault.substr(first + 1, last - first - 1).c_str());
    }
  }

  /// Returns `table` with this process's fault.
  kernels::KernelTable apply(kernels::KernelTable table) const {
    if (what_ == "start") {
      throw std::bad_alloc();
    }
    if (what_ == "forward") {
      table.attention_forward = held_forward;
    } else if (what_ == "scan") {
      table.causal_conv_backward = held_scan;
    } else if (!what_.empty() || slow() != nullptr) {
      table.attention_backward = faulty;
    }
    if (std::getenv("ACTORTRAIN_TEST_KERNEL_SET") != nullptr) {
      table.kernel_set = [] { return std::string(std::getenv("ACTORTRAIN_TEST_KERNEL_SET")); };
    }
    return table;
  }

  static const KernelFaults& of_this_process() {
    static const KernelFaults faults;
    return faults;
  }

 private:
  static const char* slow() { return std::getenv("ACTORTRAIN_TEST_SLOW"); }

  static void held_forward(kernels::Stream& stream, const kernels::AttentionForwardParams& params) {
    static std::atomic<int> calls{0};
    if (++calls == of_this_process().number_) {
      stream.enqueue([] { fail("wedge"); });
    }
    kernels::cpu::attention_forward(stream, params);
  }

  static void held_scan(kernels::Stream& stream, const kernels::CausalConvBackwardParams& params) {
    static std::atomic<int> calls{0};
    if (++calls == of_this_process().number_) {
      stream.enqueue([] { fail("wedge"); });
    }
    kernels::cpu::causal_conv_backward(stream, params);
  }

  static void faulty(kernels::Stream& stream, const kernels::AttentionBackwardParams& params) {
    const KernelFaults& faults = of_this_process();
    static std::atomic<int> calls{0};
    const bool due = !faults.what_.empty() && ++calls >= faults.number_;
    if (slow() != nullptr) {
      stream.enqueue([file = std::string(slow())] {
        if (std::filesystem::exists(file)) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      });
    }
    if (due && faults.what_ == "handler") {
      throw std::bad_alloc();
    }
    if (due && faults.what_ == "thread") {
      std::thread([] { throw std::runtime_error("a thread has lost its way"); }).join();
    }
    if (due && faults.what_ != "nan") {
      stream.enqueue([what = faults.what_] { fail(what); });
    }
    kernels::cpu::attention_backward(stream, params);
    if (due && faults.what_ == "nan") {
      stream.enqueue([to = static_cast<float*>(params.dq)] {
        stamp();
        *to = std::numeric_limits<float>::quiet_NaN();
      });
    }
  }

  /// Records only the first fault.
  static void stamp() {
    static std::once_flag once;
    std::call_once(once, [] {
      if (const char* const file = std::getenv("ACTORTRAIN_TEST_FAULT_STAMP")) {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        std::ofstream(file) << std::chrono::nanoseconds(now).count();
      }
    });
  }

  static void fail(const std::string& what) {
    stamp();
    if (what == "throw") {
      throw std::runtime_error("the kernel has lost its way");
    }
    if (what == "bad_alloc") {
      throw std::bad_alloc();
    }
    const char* const wedge = std::getenv("ACTORTRAIN_TEST_WEDGE");
    while (what == "wedge" && wedge != nullptr && std::filesystem::exists(wedge)) {
      before_the_next_look();
    }
  }

  std::string what_;
  int number_ = 0;
};

}  // namespace train::test
