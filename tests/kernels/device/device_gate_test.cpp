#include "kernels/device/device_gate.hpp"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <thread>

#include "tests/support/harness/thread_sleep.hpp"

namespace train::kernels::device_gate_test {
namespace {

void wait_for_waiting_call(const DeviceGate& gate) {
  while (gate.waiting_calls() == 0) {
    std::this_thread::yield();
  }
}

TEST_CASE("device gate: a call waits for all exchanges, and holds back none",
          "[kernels][device_gate]") {
  DeviceGate gate;
  std::atomic<int> exchanges = 0;
  std::optional<DeviceGate::Exchange> first(gate);
  exchanges = 1;
  auto seen = std::async(std::launch::async, [&] {
    const DeviceGate::Call call(gate);
    return exchanges.load();
  });
  wait_for_waiting_call(gate);
  {
    const DeviceGate::Exchange second(gate);  // Would never come if it waited for who waits.
    exchanges = 2;
    exchanges = 1;
  }
  CHECK(gate.waiting_calls() == 1);
  exchanges = 0;
  first.reset();
  CHECK(seen.get() == 0);
  CHECK(gate.waiting_calls() == 0);
}

TEST_CASE("device gate: an exchange waits for all calls that have begun, a call for none",
          "[kernels][device_gate]") {
  DeviceGate gate;
  std::atomic<bool> last = false;
  std::optional<DeviceGate::Call> first(gate);
  std::optional<DeviceGate::Call> second(gate);
  CHECK(gate.waiting_calls() == 0);
  std::promise<pid_t> begun;
  auto seen = std::async(std::launch::async, [&] {
    begun.set_value(::gettid());
    const DeviceGate::Exchange exchange(gate);
    return last.load();
  });
  const pid_t exchanging = begun.get_future().get();
  CHECK(test::falls_asleep(exchanging, seen));
  const long asleep = test::sleep_of(exchanging).value_or(-1);
  first.reset();
  CHECK(test::falls_asleep(exchanging, seen, asleep));  // woken, it waits for the second
  last = true;
  second.reset();
  CHECK(seen.get());
}

}  // namespace
}  // namespace train::kernels::device_gate_test
