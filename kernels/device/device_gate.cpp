#include "kernels/device/device_gate.hpp"

namespace train::kernels {

DeviceGate& DeviceGate::instance() {
  static DeviceGate gate;
  return gate;
}

DeviceGate::Exchange::Exchange(DeviceGate& gate) : gate_(gate) {
  std::unique_lock lock(gate_.mutex_);
  gate_.changed_.wait(lock, [this] { return gate_.calls_ == 0; });
  ++gate_.exchanges_;
}

DeviceGate::Exchange::~Exchange() {
  const std::lock_guard lock(gate_.mutex_);
  --gate_.exchanges_;
  gate_.changed_.notify_all();
}

DeviceGate::Call::Call(DeviceGate& gate) : gate_(gate) {
  std::unique_lock lock(gate_.mutex_);
  ++gate_.waiting_calls_;
  gate_.changed_.wait(lock, [this] { return gate_.exchanges_ == 0; });
  --gate_.waiting_calls_;
  ++gate_.calls_;
}

DeviceGate::Call::~Call() {
  const std::lock_guard lock(gate_.mutex_);
  --gate_.calls_;
  gate_.changed_.notify_all();
}

int DeviceGate::waiting_calls() const {
  const std::lock_guard lock(mutex_);
  return waiting_calls_;
}

}  // namespace train::kernels
