#include "cli/board/run_metrics.hpp"

#include <simdjson.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace train::cli {
namespace {

constexpr std::size_t kMostNumbers = 4096;
constexpr std::size_t kMostLosses = 65'536;
constexpr double kLastStep = 1e15;  // Exact as a double, and far beyond every run.

/// Time of the system's clock, in microseconds.
std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

/// False: not a list of lists of numbers from 0 that a float can hold.
bool read_loads(simdjson::dom::element value, ExpertHistory::Loads& loads) {
  simdjson::dom::array layers, experts;
  if (value.get(layers) != simdjson::SUCCESS) {
    return false;
  }
  for (const auto layer : layers) {
    if (layer.get(experts) != simdjson::SUCCESS) {
      return false;
    }
    std::vector<float>& into = loads.emplace_back();
    for (const auto expert : experts) {
      double load = 0.0;
      if (!expert.is_number() || expert.get(load) != simdjson::SUCCESS ||
          !(load >= 0.0 && load <= std::numeric_limits<float>::max())) {
        return false;
      }
      into.push_back(static_cast<float>(load));
    }
  }
  return true;
}

}  // namespace

/// Parses lines to numbers. The lines of a run are similar, so it remembers the column at each
/// position.
class RunMetrics::Parser {
 public:
  explicit Parser(StepRange steps) : steps_(steps) {}

  /// Returns false if the line is damaged; then nothing was added.
  bool add(std::string_view line, MetricHistory& history, ExpertHistory& experts) {
    numbers_.clear();
    position_ = 0;
    step_ = -1;
    loss_.reset();
    loads_.clear();
    if (!read(line, history) || step_ < 0) {
      return false;
    }
    if (!loads_.empty() && wanted()) {
      experts.add(step_, std::move(loads_));
    }
    for (const Number& number : numbers_) {
      if (number.column && wanted()) {
        history.add(*number.column, step_, number.value);
      }
    }
    return true;
  }
  void forget() { seen_.clear(); }

  /// Validation loss of the line added last, if it has one, with its step.
  [[nodiscard]] std::optional<std::pair<std::int64_t, double>> validation_loss() const {
    return loss_ ? std::optional(std::pair(step_, *loss_)) : std::nullopt;
  }

 private:
  struct Number {
    std::optional<std::size_t> column;
    double value;
  };
  struct Seen {
    std::string object, key;
    std::optional<std::size_t> column;
  };

  [[nodiscard]] bool wanted() const { return step_ >= steps_.from && step_ <= steps_.to; }

  bool read(std::string_view line, MetricHistory& history) {
    simdjson::dom::object object;
    // The line is followed by padding (storage::LineTail::kPadding), so it need not be copied.
    if (parser_.parse(line.data(), line.size(), false).get(object) != simdjson::SUCCESS) {
      return false;
    }
    for (const auto field : object) {
      if (field.key == "step") {
        double step = 0.0;
        step_ = number(field.value, step) && step >= 0.0 && step <= kLastStep
                    ? static_cast<std::int64_t>(step)
                    : -1;
      } else if (field.key == "expert_load") {
        if (!read_loads(field.value, loads_)) {
          return false;
        }
      } else {
        double loss = 0.0;
        if (field.key == "val_loss" && number(field.value, loss)) {
          loss_ = loss;
        }
        take({}, field.key, field.value, history);
      }
    }
    return numbers_.size() <= kMostNumbers;
  }

  void take(std::string_view object, std::string_view key, simdjson::dom::element value,
            MetricHistory& history) {
    simdjson::dom::object inner;
    double found = 0.0;
    if (numbers_.size() > kMostNumbers) {
      return;
    }
    if (number(value, found)) {
      numbers_.push_back({column_of(object, key, history), found});
    } else if (object.empty() && value.get(inner) == simdjson::SUCCESS) {
      for (const auto field : inner) {
        take(key, field.key, field.value, history);
      }
    }
  }

  static bool number(simdjson::dom::element value, double& found) {
    return value.is_number() && value.get(found) == simdjson::SUCCESS;
  }

  std::optional<std::size_t> column_of(std::string_view object, std::string_view key,
                                       MetricHistory& history) {
    if (position_ == seen_.size()) {
      seen_.emplace_back();
    }
    Seen& seen = seen_[position_++];
    if (seen.key != key || seen.object != object) {
      const std::string name =
          object.empty() ? std::string(key) : std::string(object) + "/" + std::string(key);
      seen = {
          .object = std::string(object), .key = std::string(key), .column = history.column(name)};
    }
    return seen.column;
  }

  StepRange steps_;
  simdjson::dom::parser parser_;
  std::vector<Number> numbers_;
  std::vector<Seen> seen_;
  std::size_t position_ = 0;
  std::int64_t step_ = -1;
  std::optional<double> loss_;
  ExpertHistory::Loads loads_;
};

RunMetrics::RunMetrics(const storage::Within& run, StepRange steps)
    : tail_(run / "metrics.jsonl", {}),
      steps_(steps),
      parser_(std::make_unique<Parser>(steps)),
      history_(steps.from),
      reading_(now_us()) {}
RunMetrics::~RunMetrics() = default;

bool RunMetrics::read_on() {
  const auto restart = [this] {
    history_ = MetricHistory(steps_.from);
    experts_ = {};
    losses_.clear();
    parser_->forget();
    damaged_ = 0;
    ++version_;
    reading_ = std::max(reading_ + 1, now_us());
  };
  const auto take = [this](std::string_view line) {
    const bool sound = parser_->add(line, history_, experts_);
    damaged_ += sound ? 0 : 1;
    if (const auto loss = sound ? parser_->validation_loss() : std::nullopt) {
      losses_[loss->first] = loss->second;
      if (losses_.size() > kMostLosses) {
        losses_.erase(losses_.begin());
      }
    }
    ++version_;
  };
  return tail_.next({.restart = restart, .line = take}) == storage::LineTail::More::yes;
}

std::uint64_t RunMetrics::damaged_lines() const { return damaged_ + tail_.skipped_lines(); }

}  // namespace train::cli
