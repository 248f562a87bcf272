#include "engine/model/workspace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

std::size_t whole_lines(std::size_t size_bytes) { return (size_bytes + 63) / 64 * 64; }

ArenaPlan plan_arena(const std::vector<UnitBytes>& kept, const std::vector<UnitBytes>& gradients,
                     const ScratchBytes& scratch) {
  ArenaPlan plan;
  std::size_t kept_bytes = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    TRAIN_CHECK(i == 0 || kept[i - 1].unit <= kept[i].unit, "slots of unit {} come after {}",
                kept[i].unit, kept[i - 1].unit);
    plan.kept.push_back(kept_bytes);
    kept_bytes += whole_lines(kept[i].size_bytes);
  }
  const auto kept_up_to = [&](std::size_t unit) {
    const auto above = std::find_if(kept.begin(), kept.end(),
                                    [&](const UnitBytes& slot) { return slot.unit > unit; });
    return above == kept.end() ? kept_bytes
                               : plan.kept[static_cast<std::size_t>(above - kept.begin())];
  };
  std::vector<std::size_t> falling(gradients.size());
  std::iota(falling.begin(), falling.end(), std::size_t{0});
  std::sort(falling.begin(), falling.end(),
            [&](std::size_t a, std::size_t b) { return gradients[a].unit > gradients[b].unit; });
  std::vector<std::size_t> from_end(gradients.size());
  std::size_t of_head = 0;
  std::size_t written = 0;
  for (const std::size_t index : falling) {
    if (gradients[index].unit < scratch.head_unit && of_head == written) {
      written += scratch.block_bytes;
    }
    written += whole_lines(gradients[index].size_bytes);
    from_end[index] = written;
    of_head = gradients[index].unit >= scratch.head_unit ? written : of_head;
    plan.size_bytes = std::max(plan.size_bytes, kept_up_to(gradients[index].unit) + written);
  }
  const std::size_t largest = std::max(scratch.block_bytes, scratch.head_bytes);
  plan.size_bytes = std::max(plan.size_bytes, kept_bytes + largest + of_head);
  for (const std::size_t distance : from_end) {
    plan.gradients.push_back(plan.size_bytes - distance);
  }
  plan.block_scratch = plan.size_bytes - of_head - scratch.block_bytes;
  plan.head_scratch = plan.size_bytes - of_head - scratch.head_bytes;
  return plan;
}

Workspace::Workspace(std::int64_t sequences, std::int64_t seq_len, bool with_gradient,
                     kernels::DType dtype)
    : sequences_(sequences), seq_len_(seq_len), with_gradient_(with_gradient), dtype_(dtype) {
  TRAIN_CHECK(sequences > 0 && seq_len > 0, "{} x {}", sequences, seq_len);
}

void Workspace::begin_unit(std::size_t unit) {
  TRAIN_CHECK(unit >= unit_, "unit {} comes after {}", unit, unit_);
  unit_ = unit;
}

void Workspace::begin_branch(std::size_t index, std::string_view role) {
  branch_ = index;
  role_ = role;
}

std::size_t Workspace::bytes_of(std::int64_t count, Content content) const {
  return static_cast<std::size_t>(count) *
         (content == Content::floats ? sizeof(float) : kernels::size_of(dtype_));
}

Workspace::Slot Workspace::keep(const std::string& owner, const std::string& name,
                                std::int64_t count, Content content) {
  if (!has_backward()) {
    return share(name, count, content);
  }
  if (recompute_kept_) {
    return scratch(Phase::block, fmt::format("recomputed {} {}", branch_, name), count, content);
  }
  TRAIN_CHECK(buffers_.empty(), "{} after allocate()", name);
  const std::size_t size_bytes = bytes_of(count, content);
  reservations_.push_back(
      {.name = owner + name, .size_bytes = size_bytes, .content = content, .unit = unit_});
  return reservations_.size() - 1;
}

Workspace::Slot Workspace::keep_always(const std::string& owner, const std::string& name,
                                       std::int64_t count, Content content) {
  const bool again = std::exchange(recompute_kept_, false);
  const Slot slot = keep(owner, name, count, content);
  recompute_kept_ = again;
  return slot;
}

Workspace::Slot Workspace::keep_for_next(const std::string& owner, const std::string& name,
                                         std::int64_t count) {
  const Slot slot = keep(owner, name, count);
  if (has_backward()) {
    TRAIN_CHECK(!recompute_kept_, "{} is the next unit's", name);
    reservations_[slot].unit = unit_ + 1;
  }
  return slot;
}

Workspace::Slot Workspace::keep_unless_lean(Phase phase, const std::string& owner,
                                            const std::string& name, std::int64_t count) {
  return lean_ ? scratch(phase, name, count) : keep(owner, name, count);
}

Workspace::Slot Workspace::keep_unless_expanded(const std::string& owner, const std::string& name,
                                                std::int64_t count) {
  return expands_again() ? scratch(Phase::branch, name, count) : keep(owner, name, count);
}

Workspace::Slot Workspace::share_in(std::optional<Phase> phase, const std::string& name,
                                    std::int64_t count, Content content) {
  TRAIN_CHECK(buffers_.empty(), "{} after allocate()", name);
  const std::size_t size_bytes = bytes_of(count, content);
  const std::string role = phase == Phase::branch ? role_ : "";
  const auto found =
      std::find_if(reservations_.begin(), reservations_.end(), [&](const Reservation& r) {
        return !r.unit && !r.for_texts && r.phase == phase && r.role == role && r.name == name;
      });
  if (found != reservations_.end()) {
    TRAIN_CHECK(found->content == content, "{} holds something else", name);
    found->size_bytes = std::max(found->size_bytes, size_bytes);
    return static_cast<Slot>(found - reservations_.begin());
  }
  reservations_.push_back(
      {.name = name, .size_bytes = size_bytes, .content = content, .phase = phase, .role = role});
  return reservations_.size() - 1;
}

Workspace::Slot Workspace::share(const std::string& name, std::int64_t count, Content content) {
  return share_in(std::nullopt, name, count, content);
}

Workspace::Slot Workspace::share_backward(const std::string& name, std::int64_t count,
                                          Content content) {
  return share(name, with_gradient_ ? count : 0, content);
}

Workspace::Slot Workspace::scratch(Phase phase, const std::string& name, std::int64_t count,
                                   Content content) {
  return share_in(phase, name, count, content);
}

Workspace::Slot Workspace::scratch_backward(Phase phase, const std::string& name,
                                            std::int64_t count, Content content) {
  return scratch(phase, name, with_gradient_ ? count : 0, content);
}

Workspace::Slot Workspace::keep_for_texts(const std::string& name, std::int64_t count,
                                          Content content) {
  TRAIN_CHECK(buffers_.empty() && cached_texts_ > 0, "{} of no texts", name);
  reservations_.push_back({.name = name,
                           .size_bytes = bytes_of(count, content),
                           .content = content,
                           .for_texts = true});
  return reservations_.size() - 1;
}

std::size_t Workspace::scratch_bytes(Phase phase) const {
  std::map<std::string, std::size_t> totals;
  std::size_t most = 0;
  for (const Reservation& reservation : reservations_) {
    if (reservation.phase == phase) {
      std::size_t& total = totals[reservation.role];
      total += whole_lines(reservation.size_bytes);
      most = std::max(most, total);
    }
  }
  return most;
}

ArenaPlan Workspace::plan_kept() const {
  std::vector<UnitBytes> kept;
  for (const Reservation& reservation : reservations_) {
    if (reservation.unit) {
      kept.push_back({*reservation.unit, reservation.size_bytes});
    }
  }
  return plan_arena(kept, shared_gradients_,
                    {.head_unit = unit_,
                     .head_bytes = scratch_bytes(Phase::head),
                     .block_bytes = scratch_bytes(Phase::block) + scratch_bytes(Phase::branch)});
}

void Workspace::share_gradients(std::vector<UnitBytes> gradients) {
  TRAIN_CHECK(buffers_.empty() && (with_gradient_ || gradients.empty()));
  shared_gradients_ = std::move(gradients);
}

void Workspace::allocate(kernels::MemoryKind kind) {
  TRAIN_CHECK(buffers_.empty());
  buffers_.reserve(reservations_.size() + 1);
  const auto add = [this, kind](std::size_t size_bytes, const std::string& name) {
    return buffers_.emplace_back(size_bytes, name, kind).data();
  };
  const ArenaPlan plan = plan_kept();
  std::byte* arena = add(plan.size_bytes, "activations and scratch");
  const std::map<Phase, std::size_t> begins = {
      {Phase::head, plan.head_scratch},
      {Phase::block, plan.block_scratch},
      {Phase::branch, plan.block_scratch + scratch_bytes(Phase::block)}};
  std::map<std::pair<Phase, std::string>, std::size_t> used;
  std::size_t kept = 0;
  for (const Reservation& reservation : reservations_) {
    std::byte* place = nullptr;
    if (reservation.unit) {
      place = arena + plan.kept[kept++];
    } else if (!reservation.phase) {
      place = add(reservation.size_bytes, reservation.name);
    } else if (reservation.size_bytes > 0) {
      std::size_t& offset = used[{*reservation.phase, reservation.role}];
      place = arena + begins.at(*reservation.phase) + offset;
      offset += whole_lines(reservation.size_bytes);
    }
    places_.push_back(place);
  }
  for (const std::size_t offset : plan.gradients) {
    gradients_.push_back(reinterpret_cast<float*>(arena + offset));
  }
}

float* Workspace::gradient(std::size_t index) const {
  TRAIN_CHECK(index < gradients_.size(), "gradient {} of {}", index, gradients_.size());
  return gradients_[index];
}

std::size_t Workspace::shared_bytes() const {
  std::size_t total = 0;
  for (const UnitBytes& loan : shared_gradients_) {
    total += loan.size_bytes;
  }
  return total;
}

Elements Workspace::at(Slot slot) const {
  TRAIN_CHECK(slot < places_.size(), "slot {} of {}", slot, places_.size());
  TRAIN_CHECK(reservations_[slot].content == Content::elements, "slot {} holds floats", slot);
  return {places_[slot], dtype_};
}

float* Workspace::floats_at(Slot slot) const {
  TRAIN_CHECK(slot < places_.size(), "slot {} of {}", slot, places_.size());
  TRAIN_CHECK(reservations_[slot].content == Content::floats, "slot {} holds elements", slot);
  return reinterpret_cast<float*>(places_[slot]);
}

bool Workspace::first_use(Slot slot) {
  TRAIN_CHECK(slot < reservations_.size());
  const bool first = !reservations_[slot].used;
  reservations_[slot].used = true;
  return first;
}

std::size_t Workspace::size_bytes() const {
  std::size_t total = plan_kept().size_bytes;
  for (const Reservation& reservation : reservations_) {
    total += reservation.unit || reservation.phase ? 0 : reservation.size_bytes;
  }
  return total - shared_bytes();
}

std::size_t Workspace::allocated_bytes() const {
  std::size_t total = 0;
  for (const kernels::Buffer& buffer : buffers_) {
    total += buffer.size_bytes();
  }
  return total - shared_bytes();
}

}  // namespace train::engine
