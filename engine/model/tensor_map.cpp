#include "engine/model/tensor_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "engine/model/blocks/block.hpp"
#include "engine/model/unit_parameters.hpp"

namespace train::engine {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kLongRun = std::int64_t{1} << 16;  // elements that are worth a call

/// Elements between neighbours along each axis.
Shape steps_of(const Shape& shape) {
  Shape steps(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    steps[axis - 1] = steps[axis] * shape[axis];
  }
  return steps;
}

/// The loops over rows, in rows.
std::vector<TensorAxis> row_axes(const TensorRule& rule, std::int64_t rows) {
  if (rule.order == TensorOrder::rotary_pairs) {
    const std::int64_t dim = rows / rule.heads;
    return {{rule.heads, dim, dim}, {2, dim / 2, 1}, {dim / 2, 1, 2}};
  }
  if (rule.order == TensorOrder::by_parts) {
    const std::int64_t dim = rows / (3 * rule.heads);
    return {{rule.heads, 3 * dim, dim}, {3, dim, rule.heads * dim}, {dim, 1, 1}};
  }
  return {{rows, 1, 1}};
}

/// Omits axes of one element, and joins axes that are contiguous with the next one.
std::vector<TensorAxis> joined(const std::vector<TensorAxis>& axes) {
  std::vector<TensorAxis> all;
  for (const TensorAxis& axis : axes) {
    if (axis.count == 1) {
      continue;
    }
    if (!all.empty() && all.back().parameter == axis.parameter * axis.count &&
        all.back().stored == axis.stored * axis.count) {
      all.back() = {all.back().count * axis.count, axis.parameter, axis.stored};
    } else {
      all.push_back(axis);
    }
  }
  return all.empty() ? std::vector{TensorAxis{}} : all;
}

TensorPart part_of(Shape shape, const TensorRule& rule, std::string name) {
  TensorPart part{.name = std::move(name), .added = rule.added, .as = rule.as};
  const Shape steps = steps_of(shape);
  if (rule.slice.count > 0) {
    part.first = rule.slice.first * steps.at(rule.slice.axis);
    shape[rule.slice.axis] = rule.slice.count;
  }
  std::vector<std::size_t> axis_in_file(shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    axis_in_file[axis] = axis;
  }
  part.shape = shape;
  if (rule.order == TensorOrder::transposed && shape.size() > 1) {
    std::swap(axis_in_file[shape.size() - 2], axis_in_file[shape.size() - 1]);
    std::swap(part.shape[shape.size() - 2], part.shape[shape.size() - 1]);
  }
  if (rule.within.count > 0) {
    part.shape.at(rule.within.axis) = rule.within.count;
  }
  const Shape whole_steps = steps_of(part.shape);
  part.stored = rule.within.first * whole_steps.at(rule.within.axis);
  Shape stored_steps = whole_steps;
  stored_steps[rule.within.axis] *= rule.step;
  for (const TensorAxis& rows : row_axes(rule, shape.front())) {
    part.axes.push_back(
        {rows.count, rows.parameter * steps[0], rows.stored * stored_steps[axis_in_file[0]]});
  }
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    part.axes.push_back({shape[axis], steps[axis], stored_steps[axis_in_file[axis]]});
  }
  part.axes = joined(part.axes);
  if (rule.stack.count > 0) {
    part.stored += rule.stack.place * whole_steps.front() * part.shape.front();
    part.shape.insert(part.shape.begin(), rule.stack.count);
  }
  part.shape = rule.shape.empty() ? part.shape : rule.shape;
  return part;
}

/// Elements that lie at even steps.
struct Run {
  std::int64_t parameter, stored, count;
};

/// Runs along the innermost axis that lie in elements [begin, end) of the parameter.
std::vector<Run> runs_of(const TensorPart& part, std::int64_t begin, std::int64_t end) {
  std::vector<Run> runs;
  const TensorAxis& last = part.axes.back();
  const auto places_below = [&](std::int64_t from, std::int64_t limit) {
    return std::clamp<std::int64_t>((limit - from + last.parameter - 1) / last.parameter, 0,
                                    last.count);
  };
  Shape index(part.axes.size(), 0);
  for (std::size_t axis = index.size(); axis > 0;) {
    std::int64_t parameter = part.first;
    std::int64_t stored = part.stored;
    for (std::size_t i = 0; i < index.size(); ++i) {
      parameter += index[i] * part.axes[i].parameter;
      stored += index[i] * part.axes[i].stored;
    }
    const std::int64_t skipped = parameter >= begin ? 0 : places_below(parameter, begin);
    const std::int64_t places = parameter >= end ? 0 : places_below(parameter, end);
    if (places > skipped) {
      runs.push_back(
          {parameter + skipped * last.parameter, stored + skipped * last.stored, places - skipped});
    }
    for (axis = index.size() - 1; axis > 0 && ++index[axis - 1] == part.axes[axis - 1].count;) {
      index[--axis] = 0;
    }
  }
  return runs;
}

/// Reads the elements of the runs into `out`, which begins with the parameter's element `begin`.
Status read_runs(const TensorPart& part, std::span<const Run> runs, std::int64_t begin,
                 const ReadStored& read, std::span<float> out) {
  const TensorAxis& last = part.axes.back();
  if (last.parameter == 1 && last.stored == 1 && (runs.size() == 1 || last.count >= kLongRun)) {
    for (const Run& run : runs) {
      const auto to = out.subspan(static_cast<std::size_t>(run.parameter - begin),
                                  static_cast<std::size_t>(run.count));
      TRAIN_RETURN_IF_ERROR(read(part.name, run.stored, to));
    }
    return {};
  }
  std::int64_t low = runs.front().stored;
  std::int64_t high = low;
  for (const Run& run : runs) {
    low = std::min(low, run.stored);
    high = std::max(high, run.stored + (run.count - 1) * last.stored + 1);
  }
  std::vector<float> found(static_cast<std::size_t>(high - low));
  TRAIN_RETURN_IF_ERROR(read(part.name, low, found));
  for (const Run& run : runs) {
    const float* from = found.data() + (run.stored - low);
    float* to = out.data() + (run.parameter - begin);
    for (std::int64_t i = 0; i < run.count; ++i) {
      to[i * last.parameter] = from[i * last.stored];
    }
  }
  return {};
}

/// Makes an element that was read the parameter's. False: the stored one is no rate.
bool restore(const TensorPart& part, float& value) {
  if (part.as == StoredAs::rate) {
    const bool is_rate = value < 0.0F && std::isfinite(value);
    value = is_rate ? static_cast<float>(fixed::log(-static_cast<double>(value))) : value;
    return is_rate;
  }
  value = part.added == 0.0F ? value : value - part.added;
  return true;
}

/// Likewise of all elements of the runs in `out`, which begins with the parameter's element
/// `begin`.
Status restore_runs(const TensorPart& part, std::span<const Run> runs, std::int64_t begin,
                    std::span<float> out) {
  if (part.as == StoredAs::same && part.added == 0.0F) {
    return {};
  }
  for (const Run& run : runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      float& value =
          out[static_cast<std::size_t>(run.parameter - begin + i * part.axes.back().parameter)];
      if (!restore(part, value)) {
        return user_error(fmt::format(
            "tensor {} has {} at element {}: rates of decay are negative there; fetch the file "
            "again",
            part.name, value, run.stored + i * part.axes.back().stored));
      }
    }
  }
  return {};
}

/// The stored form of a parameter's element.
float stored_form(const TensorPart& part, float value) {
  if (part.as == StoredAs::rate) {
    return static_cast<float>(-fixed::exp(static_cast<double>(value)));
  }
  return part.added == 0.0F ? value : value + part.added;
}

using Rules = std::multimap<std::string, TensorRule, std::less<>>;

/// The rules of all parameters, by their whole names.
Rules rules_of(const ModelSpec& model, Dialect dialect) {
  Rules rules;
  const auto add = [&](const std::string& prefix, const std::string& stored_prefix,
                       TensorRule rule) {
    rule.parameter.insert(0, prefix);
    rule.stored.insert(0, stored_prefix);
    rules.emplace(rule.parameter, std::move(rule));
  };
  const bool gguf = dialect == Dialect::gguf;
  if (gguf) {
    add("", "", {model.embedding, "token_embd.weight"});
    add("", "", {model.positions, "position_embd.weight"});
    add("", "", norm_rule(model.final_norm, "output_norm"));
    add("", "", {model.head, "output.weight"});
  }
  for (std::size_t index = 0; index < model.layers.size(); ++index) {
    const LayerSpec& layer = model.layers[index];
    for (const BranchSpec& branch : layer.branches) {
      for (TensorRule& rule : branch.block->tensor_rules(
               model, branch, dialect == Dialect::peft ? Dialect::hf : dialect)) {
        add(layer.prefix, gguf ? fmt::format("blk.{}.", index) : layer.prefix, std::move(rule));
      }
    }
  }
  return rules;
}

/// Rules that name the parameter or its module; for an adapter its map's rule, for the name alone.
std::vector<TensorRule> rules_for(const Parameter& parameter, const Rules& rules) {
  std::vector<TensorRule> found;
  std::string name = parameter.name;
  for (int part = 0; part < (parameter.adapter ? 3 : 2) && !name.empty(); ++part) {
    const auto [begin, end] = rules.equal_range(name);
    for (auto at = begin; at != end; ++at) {
      const std::string stored = at->second.stored + parameter.name.substr(name.size());
      found.push_back(parameter.adapter ? TensorRule{} : at->second);
      found.back().stored = stored;
    }
    name.resize(name.find('.') == std::string::npos ? 0 : name.rfind('.'));
  }
  return found;
}

}  // namespace

TensorRule norm_rule(const NormSpec& norm, std::string stored) {
  return {
      .parameter = norm.name, .stored = std::move(stored), .added = norm.plus_one ? 1.0F : 0.0F};
}

void add_norm_rules(const BranchSpec& branch, const std::array<std::string, 2>& stored,
                    std::vector<TensorRule>& rules) {
  const std::optional<NormSpec>* norms[] = {&branch.pre, &branch.post};
  for (std::size_t i = 0; i < 2; ++i) {
    if (*norms[i]) {
      rules.push_back(norm_rule(**norms[i], stored[i]));
    }
  }
}

bool MappedParameter::is_copy() const {
  return parts.size() == 1 && parts.front().axes.size() == 1 && parts.front().added == 0.0F &&
         parts.front().as == StoredAs::same && parts.front().axes.front().stored == 1 &&
         parts.front().shape == parameter.shape;
}

std::vector<TensorPart> parts_of(const Parameter& parameter, std::span<const TensorRule> rules) {
  std::vector<TensorPart> parts;
  for (const TensorRule& rule : rules) {
    const std::size_t number = rule.stored.find("{}");
    if (number == std::string::npos) {
      parts.push_back(part_of(parameter.shape, rule, rule.stored));
      continue;
    }
    const Shape one(parameter.shape.begin() + 1, parameter.shape.end());
    for (std::int64_t place = 0; place < parameter.rows(); ++place) {
      std::string name = rule.stored;
      parts.push_back(part_of(one, rule, name.replace(number, 2, std::to_string(place))));
      parts.back().first += place * parameter.cols();
    }
  }
  std::int64_t elements = 0;
  for (const TensorPart& part : parts) {
    std::int64_t of_part = 1;
    for (const TensorAxis& axis : part.axes) {
      of_part *= axis.count;
    }
    elements += of_part;
  }
  TRAIN_CHECK(parts.empty() || elements == parameter.count(), "{} is stored as {} elements of {}",
              parameter.name, elements, parameter.count());
  return parts;
}

std::vector<MappedParameter> tensor_map(const ModelSpec& model, Dialect dialect) {
  const Rules rules = rules_of(model, dialect);
  std::vector<MappedParameter> map;
  for (UnitParameters& unit : describe_units(model)) {
    for (Parameter& parameter : unit.parameters) {
      if (parameter.unpublished() || parameter.adapter != (dialect == Dialect::peft)) {
        continue;
      }
      std::vector<TensorRule> own = rules_for(parameter, rules);
      if (own.empty() && dialect != Dialect::gguf) {
        own.push_back({parameter.name, parameter.name});
      }
      for (TensorRule& rule : own) {
        rule.stored.insert(0, parameter.adapter ? "base_model.model." : "");
      }
      auto parts = parts_of(parameter, own);
      map.push_back({std::move(parameter), std::move(parts)});
    }
  }
  return map;
}

Status read_rows(const MappedParameter& mapped, std::int64_t first_row, std::int64_t rows,
                 const ReadStored& read, std::span<float> out) {
  const std::int64_t begin = first_row * mapped.parameter.cols();
  TRAIN_CHECK(static_cast<std::int64_t>(out.size()) == rows * mapped.parameter.cols());
  for (const TensorPart& part : mapped.parts) {
    const auto runs = runs_of(part, begin, begin + static_cast<std::int64_t>(out.size()));
    if (runs.empty()) {
      continue;
    }
    TRAIN_RETURN_IF_ERROR(read_runs(part, runs, begin, read, out));
    TRAIN_RETURN_IF_ERROR(restore_runs(part, runs, begin, out));
  }
  return {};
}

RowRange rows_of(const TensorPart& part, std::int64_t cols) {
  std::int64_t last = part.first;
  for (const TensorAxis& axis : part.axes) {
    last += (axis.count - 1) * axis.parameter;
  }
  return {part.first / cols, last / cols - part.first / cols + 1};
}

void store(const TensorPart& part, std::int64_t first, std::span<const float> elements,
           std::span<float> stored) {
  const TensorAxis& last = part.axes.back();
  for (const Run& run : runs_of(part, first, first + static_cast<std::int64_t>(elements.size()))) {
    const float* from = elements.data() + (run.parameter - first);
    float* to = stored.data() + run.stored;
    for (std::int64_t i = 0; i < run.count; ++i) {
      to[i * last.stored] = stored_form(part, from[i * last.parameter]);
    }
  }
}

}  // namespace train::engine
