#include "run/program/run_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "data/lanes/lane_facts.hpp"
#include "engine/optimizer/exact_sum.hpp"

namespace train::run {
namespace {

Error disagreement(const char* what, std::int64_t step, std::int32_t rank_a, FloatBits a,
                   std::int32_t rank_b, FloatBits b) {
  return failure(fmt::format(
      "step {}: {} of rank {} is {} ({:016x}), of rank {} {} ({:016x}); they must be the same "
      "bits: suspect the memory or processor of one of them",
      step, what, rank_a, a.value(), a.bits, rank_b, b.value(), b.bits));
}

/// Exact sum, independent of the order in which ranks report.
std::vector<std::uint64_t> added(const std::vector<std::uint64_t>& a,
                                 const std::vector<std::uint64_t>& b) {
  std::vector<engine::ExactSum> sums = engine::sums_of(a);
  engine::add_each(sums, engine::sums_of(b));
  return engine::words_of(sums);
}

/// Copies a rank's values to their positions among those of all ranks, `first` and on.
template <class Value>
void place(std::vector<Value>& all, const std::vector<Value>& own, std::int64_t first,
           Value unknown) {
  if (own.empty()) {
    return;
  }
  all.resize(std::max(all.size(), static_cast<std::size_t>(first) + own.size()), unknown);
  std::copy(own.begin(), own.end(), all.begin() + first);
}

}  // namespace

using engine::CommandKind;

RunProgram::RunProgram(Options options)
    : options_(std::move(options)),
      step_(options_.first_step),
      references_(options_.references_done),
      saved_(options_.first_step > 0 && options_.first_step_saved) {
  // A resumed run evaluated this step before saving, except in a save on a signal, which does not
  // wait for it; a new run starts with a measured loss.
  evaluated_ = options_.first_step > 0 && !options_.evaluation_missed;
  if (options_.early_stop.over()) {
    options_.total_steps = options_.first_step;
  }
  answered_ = options_.first_step > 0 && !options_.choices_missed;
  sampled_ = options_.first_step > 0 && !options_.samples_missed;
  sampling_ = TextSampling(options_.sampling);
}

bool RunProgram::due(std::int64_t interval) const {
  return step_ >= options_.total_steps || (interval > 0 && step_ % interval == 0);
}

Command RunProgram::give(engine::CommandKind kind, std::int64_t step) {
  return {.sequence = sequence_++, .kind = kind, .step = step};
}

Command RunProgram::give(const engine::PassPlan& pass, std::int64_t step) {
  return {.sequence = sequence_++, .kind = CommandKind::pass, .pass = pass.index, .step = step};
}

Command RunProgram::next_of_step() {
  const std::vector<engine::PassPlan>& parts = options_.passes.step();
  const engine::PassPlan& part = parts[given_];
  given_ = (given_ + 1) % parts.size();
  if (!part.updates()) {
    return give(part, step_);
  }
  evaluated_ = answered_ = sampled_ = sampling_begun_ = saved_ = false;
  return give(part, step_++);
}

std::optional<Command> RunProgram::next() {
  if (stopped_ || ((awaits_evaluation_ || awaits_tokens_) && !nonfinite_)) {
    return std::nullopt;
  }
  if (nonfinite_) {
    if (searched_ < options_.passes.search().size()) {
      return give(options_.passes.search()[searched_++], *nonfinite_);
    }
    stopped_ = true;
    return give(CommandKind::stop, step_);
  }
  if (given_ > 0) {  // A step in progress is always completed.
    return next_of_step();
  }
  if (!stop_early_ && options_.first_step == 0 && references_ < options_.reference_commands) {
    return give(options_.passes.reference(), references_++);
  }
  if (!stop_early_ && !evaluated_ && options_.eval_interval > 0 && due(options_.eval_interval)) {
    if (auto command = live_reference(/*evaluates=*/true)) {
      return command;
    }
    evaluated_ = true;
    awaits_evaluation_ = options_.early_stop.used();
    return give(options_.passes.evaluation(), step_);
  }
  if (!stop_early_ && !answered_ && options_.choices_interval > 0 &&
      due(options_.choices_interval)) {
    answered_ = true;
    return give(options_.passes.scoring(), step_);
  }
  if (!stop_early_ && !sampled_ && options_.samples_interval > 0 &&
      due(options_.samples_interval)) {
    return next_tokens();
  }
  const bool missed = options_.save_missed && step_ == options_.first_step;
  const bool save_due = options_.saves && (stop_early_ || job_over() || phase_over() || missed ||
                                           due(options_.checkpoint_interval));
  if (!saved_ && step_ > 0 && save_due) {
    saved_ = true;
    return give(CommandKind::snapshot, step_);
  }
  if (!further_steps()) {
    stopped_ = true;
    return give(CommandKind::stop, step_);
  }
  if (auto command = live_reference(/*evaluates=*/false)) {
    return command;
  }
  return next_of_step();
}

Command RunProgram::next_tokens() {
  if (!std::exchange(sampling_begun_, true)) {
    sampling_.begin();
    sampling_ns_ = 0;
  }
  awaits_tokens_ = true;
  Command command = give(options_.passes.sampling(), step_);
  engine::TextTokens texts = sampling_.texts();
  command.text_lengths = std::move(texts.lengths);
  command.text_tokens = std::move(texts.tokens);
  command.text_vocab = texts.vocab;
  return command;
}

std::optional<TextsSampled> RunProgram::sampled(const TokensSampled& event) {
  TRAIN_CHECK(awaits_tokens_ && event.step == step_, "tokens of step {} at step {}", event.step,
              step_);
  awaits_tokens_ = false;
  sampling_.add(event.tokens);
  sampling_ns_ += event.elapsed_ns;
  if (!sampling_.over()) {
    return std::nullopt;
  }
  sampled_ = true;
  TextsSampled texts{.step = step_, .elapsed_ns = sampling_ns_, .lengths = {}, .tokens = {}};
  for (const TextSampling::Tokens& text : sampling_.sampled()) {
    texts.lengths.push_back(std::ssize(text));
    texts.tokens.insert(texts.tokens.end(), text.begin(), text.end());
  }
  return texts;
}

RunProgram::LiveReference live_reference_of(const data::ReferenceRows& rows) {
  return {.used = rows.live && !rows.of_passes,
          .first_of_validation = rows.training_commands,
          .of_validation = rows.commands - rows.training_commands};
}

std::optional<Command> RunProgram::live_reference(bool evaluates) {
  const LiveReference& live = options_.live_reference;
  if (!live.used) {
    return std::nullopt;
  }
  if (!evaluates) {
    return std::exchange(referenced_, step_ + 1) <= step_
               ? std::optional(give(options_.passes.reference(), step_))
               : std::nullopt;
  }
  return references_ < live.of_validation
             ? std::optional(
                   give(options_.passes.reference(), live.first_of_validation + references_++))
             : std::nullopt;
}

bool RunProgram::evaluated(std::int64_t step, const EvaluationFinished& event) {
  if (!options_.early_stop.used() || event.of_choices) {
    return false;
  }
  TRAIN_CHECK(step == step_, "an evaluation of step {} at step {}", step, step_);
  awaits_evaluation_ = false;
  options_.early_stop.hear(step, options_.early_stop.metric() == "val_loss"
                                     ? event.cross_entropy.value()
                                     : event.accuracy.value());
  if (options_.early_stop.over()) {
    options_.total_steps = step_;  // What is due after the last step is due now.
  }
  return true;
}

void RunProgram::stop_early() { stop_early_ = true; }

void RunProgram::stop_nonfinite(std::int64_t step) {
  if (!nonfinite_) {
    nonfinite_ = step;
  }
}

SaveSchedule::Take SaveSchedule::take(std::int64_t step) {
  TRAIN_CHECK(taken_.empty() || step > taken_.back(), "step {} after step {}", step,
              taken_.empty() ? -1 : taken_.back());
  Take take;
  take.write_now = !under_way_;
  if (take.write_now) {
    under_way_ = step;
  } else if (const auto before = waiting()) {
    take.replaces = *before;
  }
  taken_.push_back(step);
  forget_replaced();
  return take;
}

std::optional<std::int64_t> SaveSchedule::over(std::int64_t step) {
  TRAIN_CHECK(under_way_ == step, "the save of step {} is over, but was not under way", step);
  // The replaced snapshot was kept until this one proved good.
  good_through(std::max(step, good_through_));
  std::erase(taken_, step);
  return grant_next();
}

void SaveSchedule::good_through(std::int64_t step) {
  good_through_ = std::max(step, good_through_);
  forget_replaced();
}

std::optional<std::int64_t> SaveSchedule::nonfinite_from(std::int64_t step) {
  std::erase_if(taken_, [step](std::int64_t taken) { return taken >= step; });
  return under_way_ && *under_way_ >= step ? grant_next() : std::nullopt;
}

std::optional<std::int64_t> SaveSchedule::waiting() const {
  return taken_.empty() || taken_.back() == under_way_ ? std::nullopt
                                                       : std::optional(taken_.back());
}

std::optional<std::int64_t> SaveSchedule::grant_next() {
  under_way_ = taken_.empty() ? std::nullopt : std::optional(taken_.back());
  return under_way_;
}

void SaveSchedule::forget_replaced() {
  // The newest good snapshot replaces all earlier ones except the one under way.
  const auto newest_good = std::find_if(
      taken_.rbegin(), taken_.rend(), [this](std::int64_t step) { return step <= good_through_; });
  if (newest_good == taken_.rend()) {
    return;
  }
  const std::int64_t newest = *newest_good;
  std::erase_if(taken_, [&](std::int64_t step) {
    const bool replaced = step < newest && step != under_way_;
    if (replaced) {
      skipped_.push_back(step);
    }
    return replaced;
  });
}

Result<std::optional<StepFinished>> RankAgreement::hear(const StepFinished& event,
                                                        std::size_t ranks) {
  auto& heard = steps_[event.step];
  if (heard.count == 0) {
    heard.first = event;
  } else {
    const StepFinished& first = heard.first;
    if (first.loss.bits != event.loss.bits) {
      return disagreement("the loss", event.step, first.rank, first.loss, event.rank, event.loss);
    }
    if (first.grad_norm.bits != event.grad_norm.bits) {
      return disagreement("the gradient norm", event.step, first.rank, first.grad_norm, event.rank,
                          event.grad_norm);
    }
    if (first.optimizer_sums.size() != event.optimizer_sums.size()) {
      return failure(fmt::format(
          "step {}: ranks {} and {} have {} and {} words of the optimizer's sums; they do not run "
          "the same program",
          event.step, first.rank, event.rank, first.optimizer_sums.size(),
          event.optimizer_sums.size()));
    }
    if (first.tensor_digests.size() != event.tensor_digests.size()) {
      return failure(fmt::format(
          "step {}: ranks {} and {} have digests of {} and {} tensors; they do not run the same "
          "program",
          event.step, first.rank, event.rank, first.tensor_digests.size(),
          event.tensor_digests.size()));
    }
    heard.first.weights_digest += event.weights_digest;
    for (std::size_t i = 0; i < event.tensor_digests.size(); ++i) {
      heard.first.tensor_digests[i] += event.tensor_digests[i];
    }
    heard.first.optimizer_sums = added(first.optimizer_sums, event.optimizer_sums);
    heard.first.trained_ns = std::max(first.trained_ns, event.trained_ns);
  }
  if (++heard.count < ranks) {
    return std::optional<StepFinished>();
  }
  std::optional<StepFinished> all = heard.first;
  steps_.erase(event.step);
  return all;
}

Result<std::optional<EvaluationFinished>> RankAgreement::hear(const EvaluationFinished& event,
                                                              std::size_t ranks) {
  const std::pair key(event.step, event.of_choices);
  auto& heard = evaluations_[key];
  if (heard.count == 0) {
    heard.first = event;
    heard.first.first_document = 0;
    heard.first.log_likelihoods.clear();
  } else if (heard.first.cross_entropy.bits != event.cross_entropy.bits) {
    return disagreement("the evaluation", event.step, heard.first.rank, heard.first.cross_entropy,
                        event.rank, event.cross_entropy);
  }
  heard.first.elapsed_ns = std::max(heard.first.elapsed_ns, event.elapsed_ns);
  place(heard.first.log_likelihoods, event.log_likelihoods, event.first_document,
        FloatBits(std::nan("")).bits);
  if (++heard.count < ranks) {
    return std::optional<EvaluationFinished>();
  }
  std::optional<EvaluationFinished> all = std::move(heard.first);
  evaluations_.erase(key);
  return all;
}

std::optional<TokensSampled> RankAgreement::hear(const TokensSampled& event, std::size_t ranks) {
  if (tokens_.count == 0) {
    tokens_.first = {.step = event.step};
  }
  TokensSampled& all = tokens_.first;
  TRAIN_CHECK(all.step == event.step, "tokens of steps {} and {} at once", all.step, event.step);
  all.elapsed_ns = std::max(all.elapsed_ns, event.elapsed_ns);
  place(all.tokens, event.tokens, event.first_text, std::int32_t{-1});
  if (++tokens_.count < ranks) {
    return std::nullopt;
  }
  return std::exchange(tokens_, {}).first;
}

}  // namespace train::run
