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

#include "kernels/backend.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/kill_points.hpp"

namespace train::test {

/// Makes a kernel of one process fail: the backward pass of an attention, where the environment of
/// a run says so.
///
///   ACTORTRAIN_TEST_FAULT=<what>:<n>:<role>  role: a rank's number, or head; n: from the n-th
///   call on, from 1; what:
///     throw, bad_alloc  the kernel throws on its stream
///     handler           enqueuing it throws std::bad_alloc
///     nan               it writes one NaN
///     wedge             it does not end while the file ACTORTRAIN_TEST_WEDGE is there
///     forward           the same of the n-th forward pass of an attention
///     start             the kernels cannot be had at all (n does not count)
///     thread            a thread that nobody watches throws
///
/// While the file ACTORTRAIN_TEST_SLOW is there, each such pass of any process takes 5 ms more: a
/// run is not over before a test has done to it what it wants to, however fast the machine is.
///
/// ACTORTRAIN_TEST_KERNEL_SET=<name> is what the kernels are called, as if they had other bits.
///
/// A file ACTORTRAIN_TEST_FAULT_STAMP gets the time of the first of them, but handler and thread:
/// nanoseconds of std::chrono::steady_clock, which all processes of a machine share.
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

  /// Of `kernels`, as this process is to have them.
  kernels::KernelTable apply(kernels::KernelTable table) const {
    if (what_ == "start") {
      throw std::bad_alloc();
    }
    if (what_ == "forward") {
      table.attention_forward = held_forward;
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

  /// Of the first fault alone.
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
