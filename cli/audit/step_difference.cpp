#include "cli/audit/step_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.hpp"

namespace train::cli {
namespace {

constexpr std::size_t kMostNamed = 4;  // Tensors named on a line.

/// "model.x" and "optimizer.<state>.x" belong to parameter x.
std::string_view parameter_of(std::string_view tensor) {
  const auto cut = [&tensor] {
    const std::size_t dot = tensor.find('.');
    tensor.remove_prefix(dot == std::string_view::npos ? 0 : dot + 1);
  };
  const bool state = tensor.starts_with("optimizer.");
  cut();
  if (state) {
    cut();
  }
  return tensor;
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

std::string both(double journal, double replayed) {
  return fmt::format("{} ({:016x}) in the journal, {} ({:016x}) replayed", journal, bits(journal),
                     replayed, bits(replayed));
}

/// Units whose norms differ, in backward order: the last unit first.
std::vector<std::size_t> differing_units(const std::vector<std::uint64_t>& a,
                                         const std::vector<std::uint64_t>& b) {
  std::vector<std::size_t> units;
  for (std::size_t unit = std::min(a.size(), b.size()); unit-- > 0;) {
    if (a[unit] != b[unit]) {
      units.push_back(unit);
    }
  }
  return units;
}

std::string before_text(std::int64_t step, std::int64_t agreed) {
  if (agreed == step - 1) {
    return fmt::format("all tensors of step {} are the same bits", step - 1);
  }
  return fmt::format(
      "tensors are known to be the same up to step {}, losses and norms up to step {}: with "
      "run.digest_interval_steps = 1 the run would have left more",
      agreed, step - 1);
}

std::string unit_name(const ModelNames& names, std::size_t unit) {
  return unit < names.units.size() ? names.units[unit] : fmt::format("unit {}", unit);
}

}  // namespace

ModelNames ModelNames::of(const std::vector<engine::UnitParameters>& units,
                          std::vector<std::string> tensors) {
  ModelNames names;
  // Unit, and place in it.
  std::map<std::string_view, std::pair<std::size_t, std::size_t>> parameters;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    names.units.push_back(units[unit].name);
    for (std::size_t i = 0; i < units[unit].parameters.size(); ++i) {
      parameters[units[unit].parameters[i].name] = {unit, i};
    }
  }
  using Place = std::tuple<std::size_t, std::size_t, std::size_t>;  // Unit, parameter, tensor.
  std::vector<Place> order;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const auto known = parameters.find(parameter_of(tensors[tensor]));
    TRAIN_CHECK(known != parameters.end(), "{} is of no unit", tensors[tensor]);
    names.unit_of.push_back(known->second.first);
    order.emplace_back(known->second.first, known->second.second, tensor);
  }
  std::sort(order.begin(), order.end());
  names.place_of.resize(tensors.size());
  for (std::size_t place = 0; place < order.size(); ++place) {
    names.place_of[std::get<2>(order[place])] = place;
  }
  names.tensors = std::move(tensors);
  return names;
}

std::string ModelNames::described(std::size_t tensor) const {
  return fmt::format("tensor {} of layer {}", tensors.at(tensor), units.at(unit_of.at(tensor)));
}

std::vector<std::size_t> differing_tensors(const std::vector<std::uint64_t>& a,
                                           const std::vector<std::uint64_t>& b,
                                           const ModelNames& names) {
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < names.tensors.size(); ++i) {
    if (a.size() != b.size() || a[i] != b[i]) {
      tensors.push_back(i);
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [&](std::size_t x, std::size_t y) { return names.place_of[x] < names.place_of[y]; });
  return tensors;
}

std::optional<StepDifference> compare_steps(const checkpoint::StepRecord& journal,
                                            const checkpoint::StepRecord& replayed,
                                            const ModelNames& names) {
  const auto different = [&journal](StepPart part, std::vector<std::size_t> where,
                                    std::string values) {
    return StepDifference{
        .step = journal.step, .part = part, .where = std::move(where), .values = std::move(values)};
  };
  if (bits(journal.lr) != bits(replayed.lr)) {
    return different(StepPart::learning_rate, {}, both(journal.lr, replayed.lr));
  }
  if (bits(journal.loss) != bits(replayed.loss)) {
    return different(StepPart::loss, {}, both(journal.loss, replayed.loss));
  }
  auto units = differing_units(journal.unit_grad_norms, replayed.unit_grad_norms);
  if (!units.empty()) {
    const std::size_t first = units.front();
    return different(StepPart::gradient, std::move(units),
                     both(std::bit_cast<double>(journal.unit_grad_norms[first]),
                          std::bit_cast<double>(replayed.unit_grad_norms[first])));
  }
  if (bits(journal.grad_norm) != bits(replayed.grad_norm)) {
    return different(StepPart::gradient_norm, {}, both(journal.grad_norm, replayed.grad_norm));
  }
  if (journal.tensor_digests.empty() || replayed.tensor_digests.empty()) {
    return std::nullopt;
  }
  auto tensors = differing_tensors(journal.tensor_digests, replayed.tensor_digests, names);
  if (tensors.empty()) {
    return std::nullopt;
  }
  return different(StepPart::update, std::move(tensors), {});
}

std::string tensors_text(const std::vector<std::size_t>& tensors, const ModelNames& names) {
  std::string text = names.described(tensors.front());
  if (tensors.size() > 1) {
    std::vector<std::string> more;
    for (std::size_t i = 1; i < std::min(tensors.size(), kMostNamed); ++i) {
      more.push_back(names.tensors[tensors[i]]);
    }
    text += fmt::format(", the first of {} that differ (then {}{})", tensors.size(),
                        fmt::join(more, ", "), tensors.size() > kMostNamed ? ", …" : "");
  }
  return text;
}

std::string describe(const StepDifference& difference, const ModelNames& names,
                     std::int64_t digests_agreed) {
  const std::int64_t step = difference.step;
  switch (difference.part) {
    case StepPart::learning_rate:
      return fmt::format("step {}: the learning rate is {}; was run.steps another one then?", step,
                         difference.values);
    case StepPart::loss:
      return fmt::format("step {}: the loss is {}; {}", step, difference.values,
                         before_text(step, digests_agreed));
    case StepPart::gradient:
      return fmt::format(
          "step {}: the gradient of layer {}, first of {} in the backward pass that differ, has "
          "the "
          "norm {}; the loss is the same bits",
          step, unit_name(names, difference.where.front()), difference.where.size(),
          difference.values);
    case StepPart::gradient_norm:
      return fmt::format(
          "step {}: the gradient norm is {}; the loss and all layers' norms are the same bits",
          step, difference.values);
    case StepPart::update:
      break;
  }
  return fmt::format("step {}: {} after the update; loss and gradient norms are the same bits; {}",
                     step, tensors_text(difference.where, names),
                     before_text(step, digests_agreed));
}

}  // namespace train::cli
