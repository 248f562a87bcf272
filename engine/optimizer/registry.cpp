#include "engine/optimizer/registry.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

namespace {

#define TRAIN_OPTIMIZER_ENTRY(identifier, name, keys) {name, make_##identifier},
constexpr auto kOptimizers =
    std::to_array<RegisteredOptimizer>({TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_ENTRY)});
#undef TRAIN_OPTIMIZER_ENTRY

}  // namespace

std::span<const RegisteredOptimizer> registered_optimizers() { return kOptimizers; }

std::unique_ptr<Optimizer> make_optimizer(const configs::OptimizerSection& section,
                                          std::int64_t run_steps) {
  const auto* const found = std::find_if(
      kOptimizers.begin(), kOptimizers.end(),
      [&](const RegisteredOptimizer& optimizer) { return optimizer.name == section.name; });
  TRAIN_CHECK(found != kOptimizers.end(), "optimizer \"{}\"", section.name);
  return found->make(section, run_steps);
}

std::vector<std::string> whole_parameters(const Optimizer& optimizer,
                                          std::span<const UnitParameters> units) {
  std::vector<std::string> names;
  for (const UnitParameters& unit : units) {
    for (const Parameter& parameter : unit.parameters) {
      if (optimizer.whole(parameter) && !parameter.frozen) {
        names.push_back(parameter.name);
      }
    }
  }
  return names;
}

std::vector<OptimizerDiagnostic> diagnose(const Optimizer& optimizer,
                                          std::span<const ExactSum> sums) {
  if (sums.empty()) {
    return {};
  }
  std::vector<double> values;
  for (const ExactSum& sum : sums) {
    values.push_back(sum.value());
  }
  return optimizer.diagnose(values);
}

OptimizerGroup::OptimizerGroup(const kernels::KernelTable& kernels, const Optimizer& optimizer,
                               ParameterGroup group)
    : kernels_(&kernels), optimizer_(&optimizer), decayed_(group == ParameterGroup::decay) {}

void OptimizerGroup::add(const OptimizerSlice& slice, LaneRange counted, std::size_t unit) {
  TRAIN_CHECK(slice.parameter != nullptr && slice.weights != nullptr && slice.gradient != nullptr);
  const Parameter& parameter = *slice.parameter;
  const std::size_t states = optimizer_->states(parameter).size();
  TRAIN_CHECK(states <= kMostStates, "{} states of {}", states, parameter.name);
  for (std::size_t i = 0; i < states; ++i) {
    TRAIN_CHECK(slice.states[i] != nullptr, "{} lacks state {}", parameter.name, i);
  }
  TRAIN_CHECK(!optimizer_->whole(parameter) || slice.rows == parameter.rows(),
              "{}: {} of {} rows are here", parameter.name, slice.rows, parameter.rows());
  TRAIN_CHECK(counted.first >= 0 && counted.end() <= slice.rows, "rows {}..{} of {}", counted.first,
              counted.end(), slice.rows);
  entries_.push_back({slice, counted, unit});
}

void OptimizerGroup::update(kernels::Stream& stream, const Update& update) const {
  TRAIN_CHECK(update.step >= 1, "step {}", update.step);
  OptimizerStep step{.kernels = kernels_,
                     .guard = update.guard,
                     .step = update.step,
                     .decayed = decayed_,
                     .diagnosed = update.diagnosed,
                     .scratch = update.scratch};
  std::vector<ExactSum>* sums = update.diagnosed ? update.sums : nullptr;
  if (sums != nullptr) {
    stream.enqueue(
        [sums, count = optimizer_->row_sums().size()] { sums->assign(count, ExactSum()); });
  }
  for (std::size_t next = 0; next < entries_.size();) {
    const std::size_t first = next;
    const std::vector<OptimizerSlice> slices = next_slices(next, update, step);
    if (step.step == 0) {
      continue;
    }
    optimizer_->update(stream, slices, step);
    if (sums != nullptr) {
      add_up(stream, first, slices, update);
    }
  }
}

std::vector<OptimizerSlice> OptimizerGroup::next_slices(std::size_t& first, const Update& update,
                                                        OptimizerStep& step) const {
  const auto number_of = [&update](const Entry& entry) {
    return update.number_of ? update.number_of(entry.unit) : update.step;
  };
  // A slice's row sums lie behind those of the one before.
  const auto sums_of_row = static_cast<std::int64_t>(optimizer_->row_sums().size());
  const auto room = static_cast<std::int64_t>(
      update.row_sums == nullptr ? 0 : update.row_sums->size_bytes() / sizeof(double));
  const double lr_scale = entries_[first].slice.parameter->lr_scale;
  step.step = number_of(entries_[first]);
  step.lr = update.lr * lr_scale;
  step.peak_lr = update.peak_lr * lr_scale;
  std::vector<OptimizerSlice> slices;
  std::int64_t taken = 0;
  const auto fits = [&](const Entry& entry) {
    return !update.diagnosed || taken + entry.slice.rows * sums_of_row <= room;
  };
  do {
    OptimizerSlice slice = entries_[first++].slice;
    slice.row_sums += update.diagnosed ? taken : 0;
    taken += slice.rows * sums_of_row;
    slices.push_back(slice);
  } while (first < entries_.size() && number_of(entries_[first]) == step.step &&
           entries_[first].slice.parameter->lr_scale == lr_scale && fits(entries_[first]));
  return slices;
}

void OptimizerGroup::add_up(kernels::Stream& stream, std::size_t first,
                            std::span<const OptimizerSlice> slices, const Update& update) const {
  const std::size_t count = optimizer_->row_sums().size();
  const double* begin = slices.front().row_sums;
  std::vector<std::span<const double>> counted;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const LaneRange rows = entries_[first + i].counted;
    counted.emplace_back(slices[i].row_sums + static_cast<std::size_t>(rows.first) * count,
                         static_cast<std::size_t>(rows.count) * count);
  }
  if (update.row_sums != nullptr) {
    const double* end = counted.back().data() + counted.back().size();
    update.row_sums->to_host(stream, begin, static_cast<std::size_t>(end - begin));
    const double* device = update.row_sums->device<double>();
    const double* host = update.row_sums->host<double>();
    for (std::span<const double>& values : counted) {
      values = {host + (values.data() - device), values.size()};
    }
  }
  stream.enqueue([sums = update.sums, counted = std::move(counted), count] {
    for (const std::span<const double> values : counted) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        (*sums)[i % count].add(values[i]);
      }
    }
  });
}

std::int64_t OptimizerGroup::element_count() const {
  std::int64_t count = 0;
  for (const Entry& entry : entries_) {
    count += entry.slice.count();
  }
  return count;
}

}  // namespace train::engine
