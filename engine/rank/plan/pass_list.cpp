#include "engine/rank/plan/pass_list.hpp"

#include "base/check.hpp"
#include "engine/objective/registry.hpp"

namespace train::engine {

PassList::PassList(const std::vector<Pass>& passes, bool live_reference, bool step_sums) {
  TRAIN_CHECK(!passes.empty() && (!step_sums || passes.size() == 1), "a step of {} passes",
              passes.size());
  add(kEvaluation);
  add(kScoring);
  PassPlan reference = kReference;
  reference.frozen = live_reference;
  add(reference);
  add(kSampling);
  const auto add_step = [&](std::vector<PassPlan>& to, const auto& plan_of) {
    for (std::size_t number = 0; number < passes.size(); ++number) {
      if (passes[number].compared != Compared::nothing) {
        to.push_back(add({.name = kReference.name,
                          .loss = LossUse::compared,
                          .frozen = true,
                          .number = number}));
      }
      if (step_sums) {
        to.push_back(add({.name = {"block_sums", "AddBlockSums"}, .loss = LossUse::block_sums}));
      }
      PassPlan plan = plan_of(number);
      plan.number = number;
      to.push_back(add(plan));
    }
  };
  add_step(step_, [&](std::size_t number) {
    return number + 1 == passes.size()
               ? kTrainStep
               : PassPlan{.name = {"gradient", "KeepGradient"}, .gradient = GradientUse::kept};
  });
  add_step(search_, [&](std::size_t number) {
    PassPlan search = kNonfiniteSearch;
    if (number == 0 && passes.size() > 1) {
      search.name = {"find_nonfinite_first", "FindNonfiniteFirst"};
    }
    return search;
  });
}

PassPlan PassList::add(PassPlan pass) {
  pass.index = static_cast<std::int32_t>(all_.size());
  all_.push_back(pass);
  return pass;
}

PassList pass_list_of(const RankOptions& options) {
  const auto objective = make_objective(options.objective);
  return PassList(objective->passes(0),
                  options.objective.reference == "live" && needs_reference(*objective),
                  options.model.reads_step_sums());
}

}  // namespace train::engine
