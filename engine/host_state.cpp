#include "engine/host_state.hpp"

#include <utility>

namespace train::engine {

HostState::HostState(const kernels::Device& device, std::vector<StateView> views)
    : device_(&device), views_(std::move(views)) {
  if (device.is_host()) {
    return;
  }
  std::size_t size_bytes = 0;
  for (const StateView& view : views_) {
    size_bytes += view.size_bytes;
  }
  copy_ = {size_bytes, "state on the host"};
  std::byte* place = copy_.data();
  for (StateView& view : views_) {
    places_.push_back(std::exchange(view.data, place));
    place += view.size_bytes;
  }
}

void HostState::load() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    device_->copy(views_[i].data, places_[i], views_[i].size_bytes);
  }
}

void HostState::store() const {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    device_->copy(places_[i], views_[i].data, views_[i].size_bytes);
  }
}

}  // namespace train::engine
