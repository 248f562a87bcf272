#include "run/program/run_program.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "run/prepared_run.hpp"

namespace train::run {
namespace {

engine::PassList list_of(engine::Compared first, engine::Compared second) {
  return engine::PassList({{.compared = first}, {.compared = second}});
}
const engine::PassList kOnePass;
const engine::PassList kTwoPasses = list_of(engine::Compared::nothing, engine::Compared::nothing);
const engine::PassList kSecondCompared =
    list_of(engine::Compared::nothing, engine::Compared::head_inputs);
const engine::PassList kCounted({engine::Pass{}}, false, /*step_sums=*/true);
const engine::PassList kBothCompared =
    list_of(engine::Compared::layer_outputs, engine::Compared::head_inputs);

std::string name_of(const Command& command, const engine::PassList& passes) {
  static const std::map<std::string_view, const char*> kNames = {
      {"train_step", "train"},    {"evaluate", "eval"},     {"find_nonfinite", "find"},
      {"reference", "reference"}, {"gradient", "gradient"}, {"find_nonfinite_first", "find-first"},
      {"score", "answer"},        {"block_sums", "count"},  {"sample", "sample"}};
  return command.kind == engine::CommandKind::pass ? kNames.at(passes.at(command.pass).name.trace)
         : command.kind == engine::CommandKind::snapshot ? "save"
                                                         : "stop";
}

std::string take(RunProgram& program, int count = 1000, const engine::PassList& passes = kOnePass) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto command = program.next();
    if (!command) {
      break;
    }
    text +=
        fmt::format("{}{}{}", text.empty() ? "" : " ", name_of(*command, passes), command->step);
  }
  return text;
}

std::string all(const RunProgram::Options& options) {
  RunProgram program(options);
  return take(program, 1000, options.passes);
}

TEST_CASE("a run evaluates and saves at its intervals and at the end", "[run][EX-1]") {
  CHECK(all({.total_steps = 5, .eval_interval = 2, .checkpoint_interval = 3}) ==
        "eval0 train0 train1 eval2 train2 save3 train3 eval4 train4 eval5 save5 stop5");
  CHECK(all({.total_steps = 4, .eval_interval = 2, .checkpoint_interval = 2}) ==
        "eval0 train0 train1 eval2 save2 train2 train3 eval4 save4 stop4");
  CHECK(all({.total_steps = 2}) == "train0 train1 save2 stop2");
  CHECK(all({.total_steps = 0}) == "stop0");
}

TEST_CASE("a run whose evaluations stop improving ends as after its last step", "[run][EX-1]") {
  const RunProgram::Options options{
      .total_steps = 8, .eval_interval = 2, .early_stop = EarlyStop({.patience = 2})};
  const auto evaluation = [](double loss) {
    EvaluationFinished event;
    event.cross_entropy = FloatBits(loss);
    return event;
  };
  RunProgram program(options);
  CHECK(take(program) == "eval0");  // What follows is not known yet.
  CHECK(program.evaluated(0, evaluation(3.0)));
  CHECK(take(program) == "train0 train1 eval2");
  program.evaluated(2, evaluation(3.5));
  CHECK(take(program) == "train2 train3 eval4");
  CHECK(program.early_end().empty());
  program.evaluated(4, evaluation(3.0));  // Equal is not better.
  CHECK(take(program) == "save4 stop4");
  CHECK(program.complete());
  CHECK(program.early_end() == "val_loss is not below 3 of step 0 in 2 evaluations");

  // A start that resumes has heard what came before it.
  RunProgram::Options resumed = options;
  resumed.first_step = 2;
  resumed.early_stop.hear(0, 3.0);
  resumed.early_stop.hear(2, 3.5);
  RunProgram second(resumed);
  CHECK(take(second) == "train2 train3 eval4");
  second.evaluated(4, evaluation(3.0));
  CHECK(take(second) == "save4 stop4");
  RunProgram better(resumed);
  take(better);
  better.evaluated(4, evaluation(2.0));
  CHECK(take(better) == "train4 train5 eval6");

  // Signals and values that are not finite are served as ever.
  RunProgram stopped(options);
  take(stopped);
  stopped.stop_early();
  stopped.evaluated(0, evaluation(3.0));
  CHECK(take(stopped) == "stop0");
  RunProgram lost(options);
  CHECK(take(lost, 1) == "eval0");
  lost.evaluated(0, evaluation(3.0));
  CHECK(take(lost, 3) == "train0 train1 eval2");
  lost.stop_nonfinite(1);
  CHECK(take(lost) == "find1 stop2");
}

TEST_CASE("early stop: accuracies rise, and NaN is never better", "[run][early_stop]") {
  EarlyStop stop({.metric = "val_accuracy", .patience = 2});
  stop.hear(0, 0.5);
  stop.hear(2, 0.6);
  stop.hear(4, std::nan(""));
  stop.hear(4, 0.9);  // Known already.
  CHECK_FALSE(stop.over());
  stop.hear(6, 0.6);
  CHECK(stop.over());
  CHECK(stop.text() == "val_accuracy is not above 0.6 of step 2 in 2 evaluations");
  EarlyStop never;
  never.hear(0, 1.0);
  never.hear(1, 2.0);
  CHECK_FALSE(never.over());
}

TEST_CASE("a run counts a step before it takes it, and before it searches it", "[run][EX-1]") {
  const RunProgram::Options options{
      .total_steps = 3, .passes = kCounted, .eval_interval = 2, .checkpoint_interval = 2};
  CHECK(all(options) ==
        "eval0 count0 train0 count1 train1 eval2 save2 count2 train2 eval3 save3 stop3");
  RunProgram stopped(options);
  CHECK(take(stopped, 2, kCounted) == "eval0 count0");
  stopped.stop_early();
  CHECK(take(stopped, 100, kCounted) == "train0 save1 stop1");
  RunProgram lost(options);
  CHECK(take(lost, 3, kCounted) == "eval0 count0 train0");
  lost.stop_nonfinite(0);
  CHECK(take(lost, 100, kCounted) == "count0 find0 stop1");
}

TEST_CASE("a run answers its questions at an interval of their own and at the end", "[run][EX-1]") {
  CHECK(all({.total_steps = 4, .eval_interval = 2, .choices_interval = 3}) ==
        "eval0 answer0 train0 train1 eval2 train2 answer3 train3 eval4 answer4 save4 stop4");
  CHECK(all({.total_steps = 2, .choices_interval = 1}) ==
        "answer0 train0 answer1 train1 answer2 save2 stop2");
  // Resumed: what a stop left out is made up for.
  const RunProgram::Options resumed{.first_step = 2,
                                    .total_steps = 3,
                                    .eval_interval = 2,
                                    .choices_interval = 2,
                                    .choices_missed = true};
  CHECK(all(resumed) == "answer2 train2 eval3 answer3 save3 stop3");
  RunProgram stopped({.total_steps = 2, .eval_interval = 1, .choices_interval = 1});
  CHECK(take(stopped, 3) == "eval0 answer0 train0");
  stopped.stop_early();
  CHECK(take(stopped) == "save1 stop1");
  RunProgram finished({.total_steps = 1, .choices_interval = 1});
  CHECK(take(finished, 2) == "answer0 train0");
  CHECK_FALSE(finished.complete());
  CHECK(take(finished, 1) == "answer1");
  CHECK(finished.complete());
}

TEST_CASE("a run samples its texts token by token, and nothing comes between", "[run][EX-1]") {
  const RunProgram::Options options{
      .total_steps = 3,
      .eval_interval = 2,
      .samples_interval = 2,
      .sampling = {.prompts = {{1}, {2}}, .tokens = 2, .ends = {0}, .vocab = 9, .context = 8}};
  const auto tokens = [](std::int64_t step, std::vector<std::int32_t> of_texts) {
    return TokensSampled{.step = step, .tokens = std::move(of_texts), .elapsed_ns = 5};
  };
  RunProgram program(options);
  CHECK(take(program) == "eval0 sample0");
  CHECK_FALSE(program.sampled(tokens(0, {3, 0})));
  const auto command = program.next();
  REQUIRE(command);
  CHECK(command->text_lengths == std::vector<std::int64_t>{2, 1});
  CHECK(command->text_tokens == std::vector<std::int32_t>{1, 3, 2});
  CHECK(take(program).empty());
  const auto texts = program.sampled(tokens(0, {4, 7}));
  REQUIRE(texts);
  CHECK(texts->lengths == std::vector<std::int64_t>{2, 0});
  CHECK(texts->tokens == std::vector<std::int32_t>{3, 4});
  CHECK(texts->elapsed_ns == 10);
  CHECK(take(program) == "train0 train1 eval2 sample2");
  CHECK(program.sampled(tokens(2, {0, 0})));  // Each begins anew.
  CHECK(take(program) == "train2 eval3 sample3");
  CHECK_FALSE(program.complete());
  CHECK(program.sampled(tokens(3, {0, 0})));
  CHECK(take(program) == "save3 stop3");
  CHECK(program.complete());

  // A signal leaves the texts to the next start, which begins them anew.
  RunProgram stopped(options);
  CHECK(take(stopped) == "eval0 sample0");
  stopped.stop_early();
  CHECK_FALSE(stopped.sampled(tokens(0, {3, 4})));
  CHECK(take(stopped) == "stop0");
  RunProgram::Options resumed = options;
  resumed.first_step = 2;
  CHECK(take(*std::make_unique<RunProgram>(resumed)) == "train2 eval3 sample3");
  resumed.samples_missed = true;
  RunProgram again(resumed);
  CHECK(take(again) == "sample2");
  CHECK(again.sampled(tokens(2, {0, 0})));
  CHECK(take(again) == "train2 eval3 sample3");

  // A value that is not finite does not wait for tokens.
  RunProgram lost(options);
  CHECK(take(lost) == "eval0 sample0");
  lost.stop_nonfinite(0);
  CHECK(take(lost) == "find0 stop0");
}

TEST_CASE("a step of two passes is whole, whatever comes between them", "[run][EX-1]") {
  CHECK(all({.total_steps = 2, .passes = kTwoPasses, .eval_interval = 2}) ==
        "eval0 gradient0 train0 gradient1 train1 eval2 save2 stop2");
  RunProgram program({.total_steps = 4, .passes = kTwoPasses, .checkpoint_interval = 1});
  CHECK(take(program, 1, kTwoPasses) == "gradient0");
  program.stop_early();
  CHECK(take(program, 9, kTwoPasses) == "train0 save1 stop1");
  RunProgram failing({.total_steps = 4, .passes = kTwoPasses});
  CHECK(take(failing, 3, kTwoPasses) == "gradient0 train0 gradient1");
  failing.stop_nonfinite(0);
  CHECK(take(failing, 9, kTwoPasses) == "find-first0 find0 stop1");
}

TEST_CASE("a frozen copy comes right before each pass that is compared with it", "[run]") {
  CHECK(all({.total_steps = 2, .passes = kBothCompared, .eval_interval = 2}) ==
        "eval0 reference0 gradient0 reference0 train0 reference1 gradient1 reference1 train1 eval2 "
        "save2 stop2");
  RunProgram program({.first_step = 3, .total_steps = 5, .passes = kSecondCompared});
  CHECK(take(program, 2, kSecondCompared) == "gradient3 reference3");
  program.stop_early();
  CHECK(take(program, 9, kSecondCompared) == "train3 save4 stop4");
  // The search of what was not finite reads the same copy's.
  RunProgram failing({.total_steps = 4, .passes = kBothCompared});
  CHECK(take(failing, 6, kBothCompared) ==
        "reference0 gradient0 reference0 train0 reference1 gradient1");
  failing.stop_nonfinite(0);
  CHECK(take(failing, 9, kBothCompared) == "reference0 find-first0 reference0 find0 stop1");
}

TEST_CASE("a run computes its reference before all else, and a resumed one reads it", "[run]") {
  CHECK(all({.total_steps = 2, .reference_commands = 3, .eval_interval = 1}) ==
        "reference0 reference1 reference2 eval0 train0 eval1 train1 eval2 save2 stop2");
  CHECK(all({.total_steps = 1, .reference_commands = 3, .references_done = 2}) ==
        "reference2 train0 save1 stop1");
  CHECK(all({.first_step = 1, .total_steps = 2, .reference_commands = 3}) == "train1 save2 stop2");
  // A live reference: before each step, and those of validation before the first evaluation.
  const RunProgram::LiveReference live{.used = true, .first_of_validation = 3, .of_validation = 2};
  CHECK(all({.total_steps = 3, .live_reference = live, .eval_interval = 2}) ==
        "reference3 reference4 eval0 reference0 train0 reference1 train1 eval2 "
        "reference2 train2 eval3 save3 stop3");
  CHECK(all({.first_step = 2, .total_steps = 3, .live_reference = live}) ==
        "reference2 train2 save3 stop3");
  RunProgram program({.total_steps = 2, .reference_commands = 3});
  CHECK(take(program, 1) == "reference0");
  program.stop_early();
  CHECK(take(program) == "stop0");
}

TEST_CASE("a replay neither evaluates nor saves", "[run]") {
  CHECK(all({.first_step = 3, .total_steps = 5, .saves = false}) == "train3 train4 stop5");
  RunProgram program({.total_steps = 5, .checkpoint_interval = 1, .saves = false});
  CHECK(take(program, 2) == "train0 train1");
  program.stop_early();
  CHECK(take(program) == "stop2");
}

TEST_CASE("a resumed run repeats neither evaluation nor save", "[run]") {
  CHECK(all({.first_step = 2, .total_steps = 4, .eval_interval = 2, .checkpoint_interval = 2}) ==
        "train2 train3 eval4 save4 stop4");
  CHECK(all({.first_step = 4, .total_steps = 4, .eval_interval = 2, .checkpoint_interval = 2}) ==
        "stop4");
}

TEST_CASE("a start from memory saves what no checkpoint has", "[run][P3]") {
  RunProgram::Options memory{
      .first_step = 5, .total_steps = 7, .checkpoint_interval = 3, .first_step_saved = false};
  CHECK(all(memory) == "train5 save6 train6 save7 stop7");
  RunProgram stopped(memory);
  stopped.stop_early();
  CHECK(take(stopped) == "save5 stop5");
  memory.save_missed = true;  // that of step 3 was under way
  CHECK(all(memory) == "save5 train5 save6 train6 save7 stop7");
  memory.first_step = 6;
  CHECK(all(memory) == "save6 train6 save7 stop7");
  memory.save_missed = false;
  CHECK(all(memory) == "save6 train6 save7 stop7");
}

TEST_CASE("a start that does part of the run saves and stops there", "[run]") {
  RunProgram::Options part{
      .total_steps = 5, .steps_per_job = 2, .eval_interval = 2, .checkpoint_interval = 3};
  CHECK(all(part) == "eval0 train0 train1 eval2 save2 stop2");
  part.first_step = 2;
  CHECK(all(part) == "train2 save3 train3 eval4 save4 stop4");
  part.first_step = 4;
  CHECK(all(part) == "train4 eval5 save5 stop5");
  part.first_step = 3;  // saved by an interval, or on a signal
  RunProgram last(part);
  CHECK(take(last) == "train3 eval4 train4 eval5 save5 stop5");
  CHECK_FALSE(last.job_over());
  part.first_step = 0;
  RunProgram first(part);
  take(first);
  CHECK(first.job_over());
}

TEST_CASE("a start that has nothing left of its part saves what is not saved, and stops", "[run]") {
  RunProgram::Options part{.first_step = 4,
                           .total_steps = 9,
                           .steps_per_job = 0,
                           .checkpoint_interval = 3,
                           .first_step_saved = false};
  CHECK(all(part) == "save4 stop4");
  part.first_step_saved = true;
  CHECK(all(part) == "stop4");
  RunProgram over(part);
  CHECK(over.job_over());
  part.steps_per_job = {};
  CHECK(all(part) == "train4 train5 save6 train6 train7 train8 save9 stop9");
}

TEST_CASE("a job whose ranks are lost as its part ends has no step left, not all of them",
          "[run][P4]") {
  CHECK(steps_left_of_job(0, 3, 5) == std::nullopt);
  CHECK(steps_left_of_job(2, 3, 3) == 2);
  CHECK(steps_left_of_job(2, 3, 4) == 1);
  CHECK(steps_left_of_job(2, 3, 5) == 0);
  CHECK(steps_left_of_job(2, 3, 6) == 0);
}

TEST_CASE("commands are numbered without a gap", "[run][EX-1]") {
  RunProgram program({.total_steps = 3, .eval_interval = 1, .checkpoint_interval = 1});
  std::uint64_t expected = 0;
  while (const auto command = program.next()) {
    CHECK(command->sequence == expected++);
  }
  CHECK(expected == 3 + 4 + 3 + 1);
}

TEST_CASE("a signal ends the steps; what is done is saved once", "[run][P3]") {
  const RunProgram::Options options{
      .total_steps = 100, .eval_interval = 2, .checkpoint_interval = 2};
  RunProgram program(options);
  const int before = GENERATE(0, 1, 2, 3, 4, 5, 6);
  const std::string first = take(program, before);
  program.stop_early();
  const std::string rest = take(program);
  // eval0 train0 train1 eval2 save2 train2 ...
  const char* expected[] = {"stop0",       "stop0", "save1 stop1", "save2 stop2",
                            "save2 stop2", "stop2", "save3 stop3"};
  INFO("after: " << first);
  CHECK(rest == expected[before]);
  CHECK_FALSE(program.finished_all_steps());
}

TEST_CASE("a non-finite run looks for the origin and saves nothing more", "[run]") {
  RunProgram program({.total_steps = 10, .checkpoint_interval = 2});
  CHECK(take(program, 2) == "train0 train1");
  program.stop_nonfinite(1);
  program.stop_nonfinite(2);  // the steps after it are not finite either
  program.stop_early();
  CHECK(take(program) == "find1 stop2");
}

}  // namespace
}  // namespace train::run
