#include "engine/model/workspace.hpp"

#include <algorithm>

#include "engine/base/check.hpp"

namespace train::engine {

Workspace::Workspace(std::int64_t sequences, std::int64_t seq_len, bool with_gradient)
    : sequences_(sequences), seq_len_(seq_len), with_gradient_(with_gradient) {
  TRAIN_CHECK(sequences > 0 && seq_len > 0, "{} x {}", sequences, seq_len);
}

Workspace::Slot Workspace::keep(const std::string& owner, const std::string& name,
                                std::int64_t floats) {
  if (!with_gradient_) {
    return share(name, floats);
  }
  if (recompute_kept_) {
    return share("recomputed " + name, floats);
  }
  TRAIN_CHECK(buffers_.empty(), "{} after allocate()", name);
  const std::size_t size_bytes = static_cast<std::size_t>(floats) * sizeof(float);
  reservations_.push_back({owner + name, size_bytes, false, false});
  return reservations_.size() - 1;
}

Workspace::Slot Workspace::share(const std::string& name, std::int64_t floats) {
  TRAIN_CHECK(buffers_.empty(), "{} after allocate()", name);
  const std::size_t size_bytes = static_cast<std::size_t>(floats) * sizeof(float);
  const auto found = std::find_if(reservations_.begin(), reservations_.end(),
                                  [&](const Reservation& r) { return r.shared && r.name == name; });
  if (found != reservations_.end()) {
    found->size_bytes = std::max(found->size_bytes, size_bytes);
    return static_cast<Slot>(found - reservations_.begin());
  }
  reservations_.push_back({name, size_bytes, true, false});
  return reservations_.size() - 1;
}

Workspace::Slot Workspace::share_backward(const std::string& name, std::int64_t floats) {
  return share(name, with_gradient_ ? floats : 0);
}

void Workspace::allocate() {
  TRAIN_CHECK(buffers_.empty());
  buffers_.reserve(reservations_.size());
  for (const Reservation& reservation : reservations_) {
    buffers_.push_back(reservation.size_bytes == 0
                           ? kernels::Buffer()
                           : kernels::Buffer(reservation.size_bytes, reservation.name));
  }
}

float* Workspace::at(Slot slot) const {
  TRAIN_CHECK(slot < buffers_.size(), "slot {} of {}", slot, buffers_.size());
  return buffers_[slot].as<float>();
}

bool Workspace::first_use(Slot slot) {
  TRAIN_CHECK(slot < reservations_.size());
  const bool first = !reservations_[slot].used;
  reservations_[slot].used = true;
  return first;
}

std::size_t Workspace::size_bytes() const {
  std::size_t total = 0;
  for (const Reservation& reservation : reservations_) {
    total += reservation.size_bytes;
  }
  return total;
}

std::size_t Workspace::allocated_bytes() const {
  std::size_t total = 0;
  for (const kernels::Buffer& buffer : buffers_) {
    total += buffer.size_bytes();
  }
  return total;
}

}  // namespace train::engine
