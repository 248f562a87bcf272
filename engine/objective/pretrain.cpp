#include "engine/objective/registry.hpp"

namespace train::engine {
namespace {

/// Cross-entropy of the next token; every token of a sequence has one.
class Pretrain final : public Objective {
 public:
  [[nodiscard]] RowKind rows() const override { return RowKind::tokens; }
  [[nodiscard]] LaneColumns columns() const override { return {}; }
};

}  // namespace

std::unique_ptr<const Objective> make_pretrain(const configs::ObjectiveSection& /*section*/) {
  return std::make_unique<Pretrain>();
}

}  // namespace train::engine
