#include "checkpoint/load/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/load/reader.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {
namespace {

/// Bytes read of each checkpoint at a time.
constexpr std::int64_t kCompareBatchBytes = std::int64_t{8} << 20;
constexpr std::int64_t kFloatBytes = sizeof(float);

using Shape = std::vector<std::int64_t>;
using Shapes = std::map<std::string, Shape>;

Shapes shapes_of(const Manifest& manifest) {
  Shapes shapes;
  for (const TensorRecord& tensor : manifest.tensors) {
    shapes[tensor.name] = tensor.shape;
  }
  return shapes;
}

std::int64_t elements_of(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) {
    count *= dimension;
  }
  return count;
}

/// Rows of one tensor, to be read from both checkpoints.
struct Piece {
  std::string name;
  Shape shape;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t elements = 0;
};

/// Collects pieces, then reads and compares them together.
class Comparison {
 public:
  Comparison(const std::filesystem::path& directory_a, const Manifest& a,
             const std::filesystem::path& directory_b, const Manifest& b)
      : directory_a_(directory_a), a_(a), directory_b_(directory_b), b_(b) {}

  Status add(const std::string& name, const Shape& shape) {
    const std::int64_t rows = shape.empty() ? 1 : shape.front();
    const std::int64_t row = rows == 0 ? 0 : elements_of(shape) / rows;
    const std::int64_t row_bytes = std::max<std::int64_t>(row, 1) * kFloatBytes;
    const std::int64_t most = std::max<std::int64_t>(kCompareBatchBytes / row_bytes, 1);
    found_[name].elements = elements_of(shape);
    for (std::int64_t first = 0; first < rows; first += most) {
      const std::int64_t count = std::min(most, rows - first);
      pieces_.push_back({name, shape, first, count, count * row});
      collected_ += count * row_bytes;
      if (collected_ >= kCompareBatchBytes) {
        TRAIN_RETURN_IF_ERROR(flush());
      }
    }
    return {};
  }

  Status flush() {
    TRAIN_RETURN_IF_ERROR(read(directory_a_, a_, values_a_));
    TRAIN_RETURN_IF_ERROR(read(directory_b_, b_, values_b_));
    std::size_t at = 0;
    for (const Piece& piece : pieces_) {
      TensorDifference& found = found_[piece.name];
      const std::size_t end = at + static_cast<std::size_t>(piece.elements);
      for (; at < end; ++at) {
        note(found, values_a_[at], values_b_[at]);
      }
    }
    pieces_.clear();
    collected_ = 0;
    return {};
  }

  /// Differing tensors, by name.
  std::vector<TensorDifference> take() {
    std::vector<TensorDifference> differing;
    for (auto& [name, found] : found_) {
      if (found.differing > 0) {
        found.name = name;
        differing.push_back(std::move(found));
      }
    }
    return differing;
  }
  [[nodiscard]] std::int64_t tensors() const { return std::ssize(found_); }

 private:
  static void note(TensorDifference& found, float a, float b) {
    if (std::bit_cast<std::uint32_t>(a) != std::bit_cast<std::uint32_t>(b)) {
      const double distance = std::abs(static_cast<double>(a) - static_cast<double>(b));
      ++found.differing;
      found.max_abs = std::isnan(distance) || distance > found.max_abs ? distance : found.max_abs;
    }
  }

  Status read(const std::filesystem::path& directory, const Manifest& manifest,
              std::vector<float>& values) const {
    std::int64_t all = 0;
    for (const Piece& piece : pieces_) {
      all += piece.elements;
    }
    values.resize(static_cast<std::size_t>(all));
    std::vector<engine::StateView> views;
    float* next = values.data();
    for (const Piece& piece : pieces_) {
      views.push_back({.name = piece.name,
                       .global_shape = piece.shape,
                       .first_row = piece.first_row,
                       .rows = piece.rows,
                       .data = reinterpret_cast<std::byte*>(next),
                       .size_bytes = static_cast<std::size_t>(piece.elements) * sizeof(float)});
      next += piece.elements;
    }
    return restore(directory, manifest, views, {.which = Restore::subset});
  }

  const std::filesystem::path& directory_a_;
  const Manifest& a_;
  const std::filesystem::path& directory_b_;
  const Manifest& b_;
  std::vector<Piece> pieces_;
  std::int64_t collected_ = 0;
  std::vector<float> values_a_;
  std::vector<float> values_b_;
  std::map<std::string, TensorDifference> found_;
};

std::map<std::string, std::string> keys_of(const std::string& text) {
  const auto trimmed = [](std::string_view part) {
    const std::size_t first = part.find_first_not_of(" \t\r");
    const std::size_t last = part.find_last_not_of(" \t\r");
    return first == std::string_view::npos ? std::string()
                                           : std::string(part.substr(first, last - first + 1));
  };
  std::map<std::string, std::string> keys;
  std::string section;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string line = trimmed(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    const std::size_t equals = line.find('=');
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string::npos && !line.starts_with('#')) {
      keys[fmt::format("{}.{}", section, trimmed(line.substr(0, equals)))] =
          trimmed(line.substr(equals + 1));
    }
  }
  return keys;
}

}  // namespace

Result<CheckpointDifference> compare_checkpoints(const std::filesystem::path& directory_a,
                                                 const Manifest& a,
                                                 const std::filesystem::path& directory_b,
                                                 const Manifest& b) {
  const Shapes shapes_a = shapes_of(a);
  const Shapes shapes_b = shapes_of(b);
  CheckpointDifference difference;
  difference.keys = compare_configs(a.fields.config_text, b.fields.config_text);
  Comparison comparison(directory_a, a, directory_b, b);
  for (const auto& [name, shape] : shapes_a) {
    const auto other = shapes_b.find(name);
    if (other == shapes_b.end()) {
      difference.differing.push_back({.name = name, .defect = "only in the first"});
    } else if (other->second != shape) {
      difference.differing.push_back(
          {.name = name,
           .defect = fmt::format("shape [{}] and [{}]", fmt::join(shape, ", "),
                                 fmt::join(other->second, ", "))});
    } else {
      TRAIN_RETURN_IF_ERROR(comparison.add(name, shape));
    }
  }
  TRAIN_RETURN_IF_ERROR(comparison.flush());
  for (const auto& [name, shape] : shapes_b) {
    if (!shapes_a.contains(name)) {
      difference.differing.push_back({.name = name, .defect = "only in the second"});
    }
  }
  for (TensorDifference& found : comparison.take()) {
    difference.differing.push_back(std::move(found));
  }
  difference.tensors = comparison.tensors();
  std::sort(difference.differing.begin(), difference.differing.end(),
            [](const auto& x, const auto& y) { return x.name < y.name; });
  return difference;
}

std::vector<KeyDifference> compare_configs(const std::string& a, const std::string& b) {
  const auto keys_a = keys_of(a);
  const auto keys_b = keys_of(b);
  std::set<std::string> keys;
  for (const auto* side : {&keys_a, &keys_b}) {
    for (const auto& [key, value] : *side) {
      keys.insert(key);
    }
  }
  const auto value_in = [](const std::map<std::string, std::string>& side, const std::string& key) {
    const auto found = side.find(key);
    return found == side.end() ? std::string() : found->second;
  };
  std::vector<KeyDifference> different;
  for (const std::string& key : keys) {
    KeyDifference one{key, value_in(keys_a, key), value_in(keys_b, key)};
    if (one.a != one.b) {
      different.push_back(std::move(one));
    }
  }
  return different;
}

}  // namespace train::checkpoint
