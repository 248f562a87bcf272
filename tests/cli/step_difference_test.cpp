#include "cli/audit/step_difference.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace train::cli::step_difference_test {
namespace {

using checkpoint::StepRecord;
using Numbers = std::vector<std::size_t>;

/// Three units with a parameter each, of two tensors; the order of names is not that of the model.
ModelNames names_of_model() {
  std::vector<engine::UnitParameters> units(3);
  const char* parameters[] = {"wte.weight", "h.0.weight", "a_head.weight"};
  const char* names[] = {"embedding", "block 0", "head"};
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i].name = names[i];
    units[i].parameters.resize(1);
    units[i].parameters[0].name = parameters[i];
  }
  return ModelNames::of(units, {"model.a_head.weight", "model.h.0.weight", "model.wte.weight",
                                "optimizer.exp_avg.a_head.weight", "optimizer.exp_avg.h.0.weight",
                                "optimizer.exp_avg.wte.weight"});
}

StepRecord record() {
  return {.step = 9,
          .loss = 2.5,
          .grad_norm = 1.0,
          .lr = 1e-3,
          .unit_grad_norms = {1, 2, 3},
          .tensor_digests = {1, 2, 3, 4, 5, 6}};
}

TEST_CASE("step difference: the same bits are no difference; what one lacks is not compared",
          "[actors][audit]") {
  const ModelNames names = names_of_model();
  CHECK_FALSE(compare_steps(record(), record(), names));
  StepRecord bare = record();
  bare.unit_grad_norms.clear();
  bare.tensor_digests.clear();
  CHECK_FALSE(compare_steps(bare, record(), names));
  StepRecord not_a_number = record();
  not_a_number.loss = std::nan("1");
  CHECK_FALSE(compare_steps(not_a_number, not_a_number, names));
  StepRecord zero = record();
  zero.loss = 0.0;
  StepRecord minus = record();
  minus.loss = -0.0;
  CHECK(compare_steps(zero, minus, names));
}

TEST_CASE("step difference: the part that is computed first is named", "[actors][audit]") {
  const ModelNames names = names_of_model();
  StepRecord other = record();
  other.tensor_digests[4] = 0;
  other.tensor_digests[2] = 0;
  auto found = compare_steps(record(), other, names);
  REQUIRE(found);
  CHECK(found->part == StepPart::update);
  CHECK(found->where == Numbers{2, 4});  // the embedding comes first in the model
  std::string text = describe(*found, names, 8);
  CHECK(text.find("step 9: tensor model.wte.weight of layer embedding, the first of 2 that differ "
                  "(then optimizer.exp_avg.h.0.weight)") == 0);
  CHECK(text.find("all tensors of step 8 are the same bits") != std::string::npos);
  CHECK(describe(*found, names, 5).find("up to step 5, losses and norms up to step 8") !=
        std::string::npos);

  other.grad_norm = 1.5;
  CHECK(compare_steps(record(), other, names)->part == StepPart::gradient_norm);

  other.unit_grad_norms = {0, 0, 3};
  found = compare_steps(record(), other, names);
  REQUIRE(found);
  CHECK(found->part == StepPart::gradient);
  CHECK(found->where == Numbers{1, 0});  // the backward pass ends with the embedding
  text = describe(*found, names, 8);
  CHECK(text.find("gradient of layer block 0, first of 2 in the backward pass") !=
        std::string::npos);

  other.loss = 2.75;
  found = compare_steps(record(), other, names);
  REQUIRE(found);
  CHECK(found->part == StepPart::loss);
  CHECK(describe(*found, names, 8)
            .find("2.5 (4004000000000000) in the journal, 2.75 "
                  "(4006000000000000) replayed") != std::string::npos);

  other.lr = 2e-3;
  CHECK(compare_steps(record(), other, names)->part == StepPart::learning_rate);
}

TEST_CASE("step difference: a line names a few of many tensors", "[actors][audit]") {
  const ModelNames names = names_of_model();
  const auto all = differing_tensors(record().tensor_digests, {}, names);
  CHECK(all == Numbers{2, 5, 1, 4, 0, 3});
  CHECK(tensors_text(all, names) ==
        "tensor model.wte.weight of layer embedding, the first of 6 that differ (then "
        "optimizer.exp_avg.wte.weight, model.h.0.weight, optimizer.exp_avg.h.0.weight, …)");
  CHECK(tensors_text({0}, names) == "tensor model.a_head.weight of layer head");
}

}  // namespace
}  // namespace train::cli::step_difference_test
