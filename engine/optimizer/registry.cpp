#include "engine/optimizer/registry.hpp"

#include <algorithm>
#include <array>

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
  TRAIN_CHECK(!optimizer_->whole(parameter) || slice.rows == parameter.rows,
              "{}: {} of {} rows are here", parameter.name, slice.rows, parameter.rows);
  TRAIN_CHECK(counted.first >= 0 && counted.end() <= slice.rows, "rows {}..{} of {}", counted.first,
              counted.end(), slice.rows);
  entries_.push_back({slice, counted, unit});
}

void OptimizerGroup::update(kernels::Stream& stream, const Update& update) const {
  TRAIN_CHECK(update.step >= 1, "step {}", update.step);
  OptimizerStep step{.kernels = kernels_,
                     .guard = update.guard,
                     .step = update.step,
                     .lr = update.lr,
                     .peak_lr = update.peak_lr,
                     .decayed = decayed_,
                     .diagnosed = update.diagnosed,
                     .scratch = update.scratch};
  std::vector<ExactSum>* sums = update.diagnosed ? update.sums : nullptr;
  if (sums != nullptr) {
    stream.enqueue(
        [sums, count = optimizer_->row_sums().size()] { sums->assign(count, ExactSum()); });
  }
  for (std::size_t next = 0; next < entries_.size();) {
    const Entry& entry = entries_[next];
    const std::vector<OptimizerSlice> slices = next_slices(next, update, step.step);
    if (step.step == 0) {
      continue;
    }
    optimizer_->update(stream, slices, step);
    if (sums != nullptr) {
      add_up(stream, entry, update);
    }
  }
}

std::vector<OptimizerSlice> OptimizerGroup::next_slices(std::size_t& first, const Update& update,
                                                        std::int64_t& number) const {
  const auto number_of = [&update](const Entry& entry) {
    return update.number_of ? update.number_of(entry.unit) : update.step;
  };
  number = number_of(entries_[first]);
  std::vector<OptimizerSlice> slices;
  do {
    slices.push_back(entries_[first++].slice);
  } while (!update.diagnosed && first < entries_.size() && number_of(entries_[first]) == number);
  return slices;
}

void OptimizerGroup::add_up(kernels::Stream& stream, const Entry& entry,
                            const Update& update) const {
  const std::size_t count = optimizer_->row_sums().size();
  const double* values =
      entry.slice.row_sums + static_cast<std::size_t>(entry.counted.first) * count;
  const std::size_t total = static_cast<std::size_t>(entry.counted.count) * count;
  if (update.row_sums != nullptr) {
    update.row_sums->to_host(stream, values, total);
    values = update.row_sums->host<double>() + (values - update.row_sums->device<double>());
  }
  stream.enqueue([sums = update.sums, values, count, total] {
    for (std::size_t i = 0; i < total; ++i) {
      (*sums)[i % count].add(values[i]);
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
