#include "engine/objective/registry.hpp"

namespace train::engine {
namespace {

/// Supervised fine-tuning: cross-entropy of the trained targets of packed documents, by weight.
class Sft final : public Objective {
 public:
  explicit Sft(float label_smoothing) : label_smoothing_(label_smoothing) {}
  [[nodiscard]] RowKind rows() const override { return RowKind::documents; }
  [[nodiscard]] LaneColumns columns() const override {
    return {.positions = true, .weights = true};
  }
  [[nodiscard]] std::vector<Pass> passes(std::int64_t /*step*/) const override {
    return {{.head = {.label_smoothing = label_smoothing_}}};
  }

 private:
  float label_smoothing_;
};

}  // namespace

std::unique_ptr<const Objective> make_sft(const configs::ObjectiveSection& section) {
  return std::make_unique<Sft>(static_cast<float>(section.label_smoothing));
}

}  // namespace train::engine
