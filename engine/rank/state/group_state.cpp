#include "engine/rank/state/group_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/process/joined_thread.hpp"
#include "base/text/byte_sizes.hpp"
#include "engine/model/elements.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/thread_team.hpp"

namespace train::engine {
namespace {

/// Rows of one parameter and where their initial values go.
struct RowFill {
  const Parameter* parameter = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  float* out = nullptr;
};

/// Draws the rows of a fill, or reads them. Errors: those of reading.
Status fill_piece(const RowFill& fill, const ModelSpec& model, const InitOptions& options) {
  const auto count = static_cast<std::size_t>(fill.rows * fill.parameter->cols());
  const std::span<float> out(fill.out, count);
  if (options.source && !fill.parameter->adapter && !fill.parameter->unpublished()) {
    return options.source->read_rows(*fill.parameter, fill.first_row, fill.rows, out);
  }
  fill_initial_rows(*fill.parameter, model, options, fill.first_row, fill.rows, out);
  return {};
}

void fill_rows(const std::vector<RowFill>& fills, const ModelSpec& model,
               const InitOptions& options) {
  std::int64_t elements = 0;
  for (const RowFill& fill : fills) {
    elements += fill.rows * fill.parameter->cols();
  }
  std::vector<Status> done(fills.size());
  const auto fill = [&](std::int64_t i, int /*worker*/) {
    const auto at = static_cast<std::size_t>(i);
    done[at] = fill_piece(fills[at], model, options);
  };
  constexpr std::int64_t kWorthThreads = std::int64_t{1} << 18;
  const auto threads = static_cast<int>(std::thread::hardware_concurrency());
  const auto count = static_cast<std::int64_t>(fills.size());
  if (elements < kWorthThreads || threads <= 1) {
    kernels::cpu::parallel_for(1, count, fill);
  } else {
    // A team ends with the thread that started it; the caller shall not keep one for a single use.
    const kernels::SignalsBlocked no_signals;
    JoinedThread([&] { kernels::cpu::parallel_for(threads, count, fill); }).join();
  }
  for (const Status& status : done) {
    if (!status.ok()) {
      throw WeightsUnreadable(status.error().message);
    }
  }
}

/// Appends rows in pieces large enough for a thread, or, if they are read, for a disk access.
void append_fill(std::vector<RowFill>& fills, RowFill fill, const InitOptions& options) {
  const std::int64_t elements = std::int64_t{1} << (options.source ? 21 : 15);
  const std::int64_t cols = fill.parameter->cols();
  const std::int64_t rows = std::max<std::int64_t>(1, elements / cols);
  while (fill.rows > 0) {
    const std::int64_t piece = std::min(rows, fill.rows);
    fills.push_back({fill.parameter, fill.first_row, piece, fill.out});
    fill.first_row += piece;
    fill.rows -= piece;
    fill.out += piece * cols;
  }
}

/// The part's rows of the parameter; nullptr: it has none.
const Segment* segment_of(const Part& part, std::size_t parameter) {
  const auto found = std::lower_bound(
      part.segments.begin(), part.segments.end(), parameter,
      [](const Segment& one, std::size_t wanted) { return one.parameter < wanted; });
  return found != part.segments.end() && found->parameter == parameter ? &*found : nullptr;
}

/// Enqueues out = in rounded to bf16, through `scratch`.
void round_to_bf16(const kernels::KernelTable& kernels, kernels::Stream& stream,
                   const kernels::Buffer& scratch, const float* in, float* out,
                   std::int64_t count) {
  auto* halves = scratch.as<std::uint16_t>();
  const auto most = static_cast<std::int64_t>(scratch.size_bytes() / sizeof(std::uint16_t));
  for (std::int64_t at = 0; at < count; at += most) {
    const std::int64_t piece = std::min(most, count - at);
    kernels.pack_bf16(stream, {.in = in + at, .out = halves, .count = piece});
    kernels.unpack_bf16(stream, {.in = halves, .out = out + at, .count = piece});
  }
}

}  // namespace

GroupState::GroupState(const kernels::KernelTable& kernels, const ShardGroup& group,
                       const GroupLayout& layout, const Optimizer& optimizer,
                       ComputeWeights compute, Offload offload)
    : kernels_(&kernels),
      group_(&group),
      layout_(&layout),
      optimizer_(&optimizer),
      compute_(compute),
      offload_(offload),
      has_exact_(std::any_of(group.parameters.begin(), group.parameters.end(),
                             [](const Parameter& parameter) { return parameter.exact; })) {
  if (keeps_whole()) {
    const std::size_t size =
        compute == ComputeWeights::bf16 ? sizeof(std::uint16_t) : sizeof(float);
    whole_ = {static_cast<std::size_t>(layout.flat) * size, group.name + " weights",
              kernels.device->memory};
  }
  const kernels::Device& device = *kernels.device;
  const auto kind = offload == Offload::parameters ? device.offload : device.memory;
  const bool compute_bf16 = compute != ComputeWeights::masters;
  if (compute_bf16 || !layout.resident) {
    masters_ = {floats(masters().element_count), group.name + " masters", kind};
  }
  if (compute_bf16 && !layout.resident) {
    shard_bf16_ = {static_cast<std::size_t>(layout.rows.element_count) * sizeof(std::uint16_t),
                   group.name + " bf16 weights", kind};
  }
  make_states(offload == Offload::nothing ? device.memory : device.offload);
}

void GroupState::make_states(kernels::MemoryKind kind) {
  const std::vector<Segment>& segments = layout_->state.segments;
  for (std::size_t number = 0; number < kMostStates; ++number) {
    std::int64_t elements = 0;
    for (const Segment& segment : segments) {
      state_at_[number].push_back(elements);
      const bool has = number < optimizer_->states(group_->parameters[segment.parameter]).size();
      elements += has ? padded(segment.count) : 0;
    }
    states_[number] = {floats(elements), fmt::format("{} optimizer state {}", group_->name, number),
                       kind};
  }
}

Elements GroupState::whole() const {
  return {whole_.data(),
          compute_ == ComputeWeights::bf16 ? kernels::DType::bf16 : kernels::DType::f32};
}

void GroupState::initialise_bf16(const ModelSpec& model, const InitOptions& options) {
  const kernels::Buffer values(floats(layout_->flat), "initial weights");
  std::vector<RowFill> fills;
  for (const Parameter& parameter : group_->parameters) {
    append_fill(fills, {&parameter, 0, parameter.rows(), values.as<float>() + parameter.offset},
                options);
  }
  fill_rows(fills, model, options);
  const kernels::Buffer rounded(whole_.size_bytes(), "initial bf16 weights");
  const auto stream = kernels::make_inline_stream(1);
  kernels::cpu_backend().pack_bf16(
      *stream,
      {.in = values.as<float>(), .out = rounded.as<std::uint16_t>(), .count = layout_->flat});
  for (const Parameter& parameter : group_->parameters) {
    if (parameter.exact) {
      std::copy_n(values.as<float>() + parameter.offset, parameter.count(),
                  reinterpret_cast<float*>(rounded.as<std::uint16_t>() + parameter.offset));
    }
  }
  const kernels::Device& device = *kernels_->device;
  device.copy(whole_.data(), rounded.data(), rounded.size_bytes());
  for (const Segment& segment : layout_->state.segments) {
    device.copy(master(segment.parameter, segment.first_row),
                values.as<float>() + segment.flat_offset, floats(segment.count));
  }
}

void GroupState::initialise(const ModelSpec& model, const InitOptions& options) {
  if (keeps_whole() && compute_ == ComputeWeights::bf16) {
    initialise_bf16(model, options);
    return;
  }
  const kernels::Device& device = *kernels_->device;
  const kernels::Buffer& made = keeps_whole() ? whole_ : masters_;
  const kernels::Buffer elsewhere =
      device.is_host() ? kernels::Buffer() : kernels::Buffer(made.size_bytes(), "initial weights");
  float* to = device.is_host() ? made.as<float>() : elsewhere.as<float>();
  std::vector<RowFill> fills;
  if (keeps_whole()) {
    for (const Parameter& parameter : group_->parameters) {
      append_fill(fills, {&parameter, 0, parameter.rows(), to + parameter.offset}, options);
    }
  } else {
    for (const Segment& segment : masters().segments) {
      append_fill(fills,
                  {&group_->parameters[segment.parameter], segment.first_row, segment.rows,
                   to + segment.packed_offset},
                  options);
    }
  }
  fill_rows(fills, model, options);
  device.copy(made.data(), elsewhere.data(), elsewhere.size_bytes());
  if (!layout_->resident && compute_ != ComputeWeights::masters) {
    initialise_frozen_shard(model, options);
  }
  if (layout_->resident && compute_ == ComputeWeights::rounded) {
    for (const Segment& segment : layout_->state.segments) {
      device.copy(master(segment.parameter, segment.first_row),
                  whole_floats() + segment.flat_offset, floats(segment.count));
    }
  }
}

void GroupState::initialise_frozen_shard(const ModelSpec& model, const InitOptions& options) {
  for (const Segment& segment : layout_->rows.segments) {
    const Parameter& parameter = group_->parameters[segment.parameter];
    if (!parameter.frozen) {
      continue;
    }
    const kernels::Buffer values(floats(segment.count), "initial weights");
    std::vector<RowFill> fills;
    append_fill(fills, {&parameter, segment.first_row, segment.rows, values.as<float>()}, options);
    fill_rows(fills, model, options);
    std::uint16_t* const to = shard_bf16_.as<std::uint16_t>() + segment.packed_offset;
    if (parameter.exact) {
      kernels_->device->copy(to, values.data(), values.size_bytes());
      continue;
    }
    const kernels::Buffer rounded(bytes_of(segment.count, sizeof(std::uint16_t)),
                                  "initial bf16 weights");
    kernels::cpu_backend().pack_bf16(
        *kernels::make_inline_stream(1),
        {.in = values.as<float>(), .out = rounded.as<std::uint16_t>(), .count = segment.count});
    kernels_->device->copy(to, rounded.data(), rounded.size_bytes());
  }
}

const Segment& GroupState::segment_with(const Part& part, std::size_t parameter,
                                        std::int64_t row) const {
  const Segment* found = segment_of(part, parameter);
  TRAIN_CHECK(found != nullptr, "no row of {}", group_->parameters[parameter].name);
  TRAIN_CHECK(row >= found->first_row && row < found->first_row + found->rows,
              "row {} of {} is not here", row, group_->parameters[parameter].name);
  return *found;
}

float* GroupState::master(std::size_t parameter, std::int64_t row) const {
  const Parameter& described = group_->parameters[parameter];
  const Part& part = masters_.data() != nullptr ? masters() : layout_->rows;
  const Segment& segment = segment_with(part, parameter, row);
  const std::int64_t offset = segment.packed_offset + (row - segment.first_row) * described.cols();
  return masters_.data() != nullptr ? masters_.as<float>() + offset
                                    : whole_floats() + described.offset + row * described.cols();
}

Elements GroupState::weight(std::size_t parameter, std::int64_t row) const {
  const Parameter& described = group_->parameters[parameter];
  if (!described.frozen || compute_ == ComputeWeights::masters) {
    return master(parameter, row);
  }
  if (layout_->resident) {
    return rows_in(whole(), described, row);
  }
  const Segment& segment = segment_with(layout_->rows, parameter, row);
  Elements shard = Elements(shard_bf16_.data(), kernels::DType::bf16) + segment.packed_offset;
  shard.dtype = described.exact ? kernels::DType::f32 : shard.dtype;
  return shard + (row - segment.first_row) * described.cols();
}

std::uint16_t* GroupState::rounded(std::size_t parameter, std::int64_t row) const {
  const Segment& segment = segment_with(layout_->rows, parameter, row);
  const Parameter& described = group_->parameters[parameter];
  if (compute_ != ComputeWeights::bf16 || layout_->made || described.exact) {
    return nullptr;
  }
  return layout_->resident ? whole_.as<std::uint16_t>() + described.offset + row * described.cols()
                           : shard_bf16_.as<std::uint16_t>() + segment.packed_offset +
                                 (row - segment.first_row) * described.cols();
}

std::array<float*, kMostStates> GroupState::states(std::size_t parameter, std::int64_t row) const {
  const Segment& segment = segment_with(layout_->state, parameter, row);
  const auto index = static_cast<std::size_t>(&segment - layout_->state.segments.data());
  const Parameter& described = group_->parameters[parameter];
  const std::int64_t offset = (row - segment.first_row) * described.cols();
  std::array<float*, kMostStates> states{};
  for (std::size_t number = 0; number < optimizer_->states(described).size(); ++number) {
    states[number] = states_[number].as<float>() + state_at_[number][index] + offset;
  }
  return states;
}

const std::byte* GroupState::shard() const {
  return compute_ == ComputeWeights::masters ? masters_.data() : shard_bf16_.data();
}

void GroupState::finalize(kernels::Stream& stream, const kernels::Buffer& rounding,
                          bool is_rounded) const {
  if (compute_ == ComputeWeights::masters || layout_->made) {
    return;
  }
  copy_exact(stream, whole());
  if (is_rounded) {
    return;
  }
  if (!layout_->resident) {
    pack_shard(stream);
    return;
  }
  if (compute_ == ComputeWeights::bf16) {
    pack_masters(stream, whole_.as<std::uint16_t>());
    return;
  }
  for (const Segment& segment : layout_->state.segments) {
    if (!group_->parameters[segment.parameter].exact) {
      round_to_bf16(*kernels_, stream, rounding, master(segment.parameter, segment.first_row),
                    whole_floats() + segment.flat_offset, segment.count);
    }
  }
}

void GroupState::copy_exact(kernels::Stream& stream, Elements flat) const {
  for (const Segment& segment : layout_->state.segments) {
    const Parameter& parameter = group_->parameters[segment.parameter];
    if (!parameter.exact) {
      continue;
    }
    std::byte* const to =
        layout_->resident
            ? rows_in(flat, parameter, segment.first_row).data
            : shard_bf16_.data() +
                  bytes_of(segment_with(layout_->rows, segment.parameter, segment.first_row)
                               .packed_offset,
                           sizeof(std::uint16_t));
    kernels_->copy(stream, {.out = to,
                            .in = master(segment.parameter, segment.first_row),
                            .size_bytes = static_cast<std::int64_t>(floats(segment.count))});
  }
}

void GroupState::pack_shard(kernels::Stream& stream) const {
  auto* shard = shard_bf16_.as<std::uint16_t>();
  // Nothing is frozen, and all is rounded.
  if (layout_->state.element_count == layout_->rows.element_count && !has_exact_) {
    kernels_->pack_bf16(
        stream, {.in = masters_.as<float>(), .out = shard, .count = layout_->state.element_count});
    return;
  }
  for (const Segment& segment : layout_->state.segments) {
    if (group_->parameters[segment.parameter].exact) {
      continue;
    }
    const Segment& sent = segment_with(layout_->rows, segment.parameter, segment.first_row);
    kernels_->pack_bf16(stream, {.in = masters_.as<float>() + segment.packed_offset,
                                 .out = shard + sent.packed_offset,
                                 .count = segment.count});
  }
}

void GroupState::make_weights(kernels::Stream& stream, std::uint16_t* out) const {
  TRAIN_CHECK(layout_->made, "the weights of {} are kept", group_->name);
  pack_masters(stream, out);
  copy_exact(stream, {reinterpret_cast<std::byte*>(out), kernels::DType::bf16});
}

// Whole parameters, or what is made anew, need one launch where they lie as they do in the whole
// group: between them is nothing but padding.
void GroupState::pack_masters(kernels::Stream& stream, std::uint16_t* out) const {
  const std::vector<Segment>& segments = layout_->state.segments;
  if (segments.empty()) {
    return;
  }
  const bool alike =
      !has_exact_ && std::all_of(segments.begin(), segments.end(), [&](const Segment& one) {
        return (layout_->made || one.rows == group_->parameters[one.parameter].rows()) &&
               one.packed_offset - segments.front().packed_offset ==
                   one.flat_offset - segments.front().flat_offset;
      });
  if (alike) {
    const Segment& first = segments.front();
    const Segment& last = segments.back();
    kernels_->pack_bf16(stream, {.in = master(first.parameter, first.first_row),
                                 .out = out + first.flat_offset,
                                 .count = last.flat_offset + last.count - first.flat_offset});
    return;
  }
  for (const Segment& segment : segments) {
    if (!group_->parameters[segment.parameter].exact) {
      kernels_->pack_bf16(stream, {.in = master(segment.parameter, segment.first_row),
                                   .out = out + segment.flat_offset,
                                   .count = segment.count});
    }
  }
}

void GroupState::round_whole(kernels::Stream& stream, const kernels::Buffer& rounding) const {
  if (compute_ != ComputeWeights::rounded || !layout_->resident) {
    return;
  }
  if (!has_exact_) {
    round_to_bf16(*kernels_, stream, rounding, whole_floats(), whole_floats(), layout_->flat);
    return;
  }
  for (const Parameter& parameter : group_->parameters) {
    if (!parameter.exact) {
      float* const values = whole_floats() + parameter.offset;
      round_to_bf16(*kernels_, stream, rounding, values, values, parameter.count());
    }
  }
}

void GroupState::append_views(const Part& part, std::vector<StateView>& views) const {
  const std::size_t before = views.size();
  append_rows(*group_, part, *optimizer_, views);
  auto view = views.begin() + static_cast<std::ptrdiff_t>(before);
  for (const Segment& segment : part.segments) {
    const std::size_t index = segment.parameter;
    const Elements values = weight(index, segment.first_row);
    view->data = static_cast<std::byte*>(values.data);
    (view++)->is_bf16 = values.dtype == kernels::DType::bf16;
    if (group_->parameters[index].frozen) {
      continue;
    }
    const auto data = states(index, segment.first_row);
    const std::size_t count = optimizer_->states(group_->parameters[index]).size();
    std::for_each_n(data.begin(), count, [&view](float* state) {
      (view++)->data = reinterpret_cast<std::byte*>(state);
    });
  }
}

void GroupState::append_foreign_views(std::vector<StateView>& views) const {
  for (std::size_t i = 0; layout_->resident && i < group_->parameters.size(); ++i) {
    const Parameter& parameter = group_->parameters[i];
    const auto append = [&](std::int64_t first, std::int64_t end) {
      if (first < end) {
        const Elements data = rows_in(whole(), parameter, first);
        views.push_back(row_view(weight_name(parameter.name), parameter, first, end - first,
                                 reinterpret_cast<float*>(data.data)));
        views.back().is_bf16 = data.dtype == kernels::DType::bf16;
      }
    };
    const Segment* kept = segment_of(layout_->rows, i);
    if (kept == nullptr) {
      append(0, parameter.rows());
      continue;
    }
    append(0, kept->first_row);
    append(kept->first_row + kept->rows, parameter.rows());
  }
}

void GroupState::append_empty_views(std::vector<StateView>& views) const {
  for (std::size_t i = 0; i < group_->parameters.size(); ++i) {
    const Parameter& parameter = group_->parameters[i];
    if (segment_of(layout_->rows, i) != nullptr) {
      continue;
    }
    if (!layout_->resident) {
      views.push_back(row_view(weight_name(parameter.name), parameter, 0, 0, nullptr));
    }
    for (const std::string_view state : kept_states(*optimizer_, parameter)) {
      views.push_back(row_view(fmt::format("optimizer.{}.{}", state, parameter.name), parameter, 0,
                               0, nullptr));
    }
  }
}

std::size_t GroupState::weights_bytes() const {
  return whole_.size_bytes() + masters_.size_bytes() + shard_bf16_.size_bytes();
}

std::size_t GroupState::optimizer_bytes() const {
  std::size_t size_bytes = 0;
  for (const kernels::Buffer& buffer : states_) {
    size_bytes += buffer.size_bytes();
  }
  return size_bytes;
}

std::size_t GroupState::offloaded_bytes() const {
  const std::size_t kept = masters_.size_bytes() + shard_bf16_.size_bytes();
  return (offload_ == Offload::nothing ? 0 : optimizer_bytes()) +
         (offload_ == Offload::parameters ? kept : 0);
}

}  // namespace train::engine
