#include "run/report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numbers>
#include <span>
#include <utility>

#include "base/math/fixed_math.hpp"
#include "base/process/steady_time.hpp"
#include "base/text/log.hpp"
#include "base/text/units.hpp"
#include "engine/optimizer/exact_sum.hpp"
#include "run/report/choice_report.hpp"
#include "run/report/expert_loads.hpp"

namespace train::run {
namespace {

using Json = nlohmann::ordered_json;

// Steps between plain progress lines without a live block.
constexpr std::int64_t kPlainLines = 100;
// Number of steps in the loss curve of a live block.
constexpr std::size_t kShownLosses = 40;

/// Number of norms with a name.
std::size_t unit_norm_count(const std::vector<std::uint64_t>& norms, const ReportOptions& options) {
  return std::min(norms.size(), options.units.size());
}

std::vector<engine::OptimizerDiagnostic> diagnostics_of(const StepFinished& event,
                                                        const ReportOptions& options) {
  if (options.optimizer == nullptr) {
    return {};
  }
  return engine::diagnose(*options.optimizer, engine::sums_of(event.optimizer_sums));
}

struct RowMetric {
  const char* name;
  double value;
};

/// One line, whatever the text.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Row metrics of a step that took `seconds`.
std::vector<RowMetric> row_metrics(const engine::RowCount& rows, double seconds) {
  const auto trained = static_cast<double>(rows.trained);
  return {{"trained_tokens_per_second", std::round(trained / seconds * 10.0) / 10.0},
          {"row_fill", static_cast<double>(rows.tokens) / static_cast<double>(rows.positions)}};
}

}  // namespace

Result<std::unique_ptr<RunReport>> RunReport::open(const ReportOptions& options) {
  auto report = std::unique_ptr<RunReport>(new RunReport(options));
  RunFiles& files = *report->options_.files;
  TRAIN_RETURN_IF_ERROR(files.metrics.resume_from(options.first_step));
  if (options.tensorboard) {
    if (!files.tensorboard) {
      files.tensorboard.emplace(options.directory / "tensorboard");
    }
    // A run that is begun anew is evaluated before its first step once more.
    const std::int64_t first = options.first_step > 0 ? options.first_step + 1 : 0;
    TRAIN_RETURN_IF_ERROR(files.tensorboard->begin(first));
  }
  report->progress_.step = options.first_step;
  if (options.samples_interval > 0) {
    for (SampledText& text : sampled_texts(options.directory, options.first_step)) {
      report->sampled_before_.insert(std::move(text));
    }
  }
  return report;
}

RunReport::RunReport(const ReportOptions& options)
    : options_(options),
      rate_({.tokens_per_step = options.tokens_per_step,
             .total_steps = options.total_steps,
             .eval_interval = options.eval_interval,
             .choices_interval = options.choices_interval,
             .samples_interval = options.samples_interval}) {
  if (options_.files == nullptr) {
    options_.files = std::make_shared<RunFiles>(options.directory);
  }
  view_.step = options.first_step;
  view_.steps = options.total_steps;
  view_.ranks = options.ranks;
  if (options.saved_step > 0) {
    view_.saved = fmt::format("checkpoint at step {}", options.saved_step);
  }
  if (options.output == Output::live && options.out != nullptr) {
    block_ = std::make_unique<LiveBlock>(*options.out);
  }
}

void RunReport::append(const std::string& line) {
  if (options_.output == Output::json && options_.out != nullptr) {
    options_.out->write(line + "\n");
  }
  options_.files->metrics.append(line);
}

void RunReport::scalars(std::int64_t step,
                        std::initializer_list<std::pair<const char*, double>> values) {
  if (options_.tensorboard) {
    for (const auto& [tag, value] : values) {
      options_.files->tensorboard->scalar(tag, step, static_cast<float>(value));
    }
  }
}

void RunReport::unit_norms(const StepFinished& event) {
  const std::size_t units =
      options_.tensorboard ? unit_norm_count(event.unit_grad_norms, options_) : 0;
  for (std::size_t unit = 0; unit < units; ++unit) {
    const double norm = std::bit_cast<double>(event.unit_grad_norms[unit]);
    options_.files->tensorboard->scalar("grad_norm/" + options_.units[unit], event.step,
                                        static_cast<float>(norm));
  }
}

std::vector<std::pair<std::string, double>> RunReport::objective_metrics(
    const std::vector<std::uint64_t>& bits) const {
  std::vector<std::pair<std::string, double>> metrics;
  const std::vector<std::string>& of_blocks = options_.block_metrics;
  const std::size_t others = bits.size() - std::min(bits.size(), of_blocks.size());
  const auto add = [&](const std::vector<std::string>& names, std::size_t first, std::size_t end) {
    for (std::size_t i = 0; i < std::min(end - first, names.size()); ++i) {
      if (const auto value = std::bit_cast<double>(bits[first + i]); !std::isnan(value)) {
        metrics.emplace_back(names[i], value);
      }
    }
  };
  add(options_.objective_metrics, 0, others);
  add(of_blocks, others, bits.size());
  return metrics;
}

void RunReport::objective_scalars(std::int64_t step, const std::string& prefix,
                                  const std::vector<std::pair<std::string, double>>& metrics) {
  for (const auto& [name, value] : metrics) {
    scalars(step, {{(prefix + name).c_str(), value}});
  }
}

void RunReport::sources(std::int64_t step, Json& line) {
  for (std::size_t source = 0; source < options_.source_names.size(); ++source) {
    const std::string& name = options_.source_names[source];
    const data::SourceFacts& facts = options_.data->facts().sources[source];
    const std::uint64_t rows = facts.rows_read(step);
    const auto tokens = rows * static_cast<std::uint64_t>(options_.sequence_length);
    const double epochs = static_cast<double>(rows) / static_cast<double>(facts.rows);
    line[fmt::format("source_tokens/{}", name)] = tokens;
    line[fmt::format("source_epochs/{}", name)] = std::round(1e4 * epochs) / 1e4;
    scalars(step,
            {{fmt::format("train/source_tokens/{}", name).c_str(), static_cast<double>(tokens)},
             {fmt::format("train/source_epochs/{}", name).c_str(), epochs}});
  }
}

void RunReport::diagnostics(std::int64_t step,
                            const std::vector<engine::OptimizerDiagnostic>& values) {
  for (const engine::OptimizerDiagnostic& each : values) {
    const std::string tag = fmt::format("optimizer/{}", each.name);
    scalars(step, {{tag.c_str(), each.value}});
  }
}

bool RunReport::line_due(std::int64_t step) const {
  return step % options_.log_interval == 0 || step == options_.total_steps;
}

Json RunReport::begin_line(std::int64_t step, double loss, double grad_norm,
                           const std::vector<std::uint64_t>& unit_norms) const {
  Json line;
  line["step"] = step;
  line["loss"] = loss;
  line["grad_norm"] = grad_norm;
  for (std::size_t unit = 0; unit < unit_norm_count(unit_norms, options_); ++unit) {
    line["unit_grad_norm"][options_.units[unit]] = std::bit_cast<double>(unit_norms[unit]);
  }
  return line;
}

void RunReport::step(const StepFinished& event, std::int64_t now_ns) {
  rate_.end_step(event.step, event.trained_ns);
  {
    const std::lock_guard lock(progress_mutex_);
    progress_.step = event.step;
    progress_.tokens_per_second = rate_.tokens_per_second();
    progress_.window_s = rate_.window_seconds();
    progress_.remaining_s = rate_.remaining_seconds();
    progress_.step_ns = now_ns;
  }
  show(event);
  if (!line_due(event.step) && !event.has_digest) {
    return;
  }
  // A line covers all steps since the line before.
  const double seconds = rate_.take_step_seconds();
  const double tokens_per_second = static_cast<double>(options_.tokens_per_step) / seconds;
  Json line =
      begin_line(event.step, event.loss.value(), event.grad_norm.value(), event.unit_grad_norms);
  const auto diagnosed = diagnostics_of(event, options_);
  for (const engine::OptimizerDiagnostic& each : diagnosed) {
    line[fmt::format("optimizer/{}", each.name)] = each.value;
  }
  auto metrics = objective_metrics(event.objective_metrics);
  if (const ExpertLoads loads = take_expert_loads(metrics); !loads.empty()) {
    std::ranges::move(loads.figures(), std::back_inserter(metrics));
    line["expert_load"] = loads.rounded();
    if (!loads.biases.empty()) {
      line["expert_bias"] = loads.biases;
    }
  }
  for (const auto& [name, value] : metrics) {
    line[name] = value;
  }
  line["lr"] = event.lr.value();
  line["tokens"] = event.step * options_.tokens_per_step;
  line["tokens_per_second"] = std::round(tokens_per_second * 10.0) / 10.0;
  if (const double mfu = reached_share(); mfu > 0.0) {
    line["mfu"] = std::round(1e4 * mfu) * 1e-4;
  }
  sources(event.step, line);
  if (options_.rows) {
    const engine::RowCount rows = options_.rows(event.step - 1);
    line["trained_tokens"] = rows.trained;
    for (const RowMetric& each : row_metrics(rows, seconds)) {
      line[each.name] = each.value;

      scalars(event.step, {{fmt::format("train/{}", each.name).c_str(), each.value}});
    }
  }
  if (event.has_digest) {
    line["weights_digest"] = fmt::format("{:016x}", event.weights_digest);
  }
  append(line.dump());
  unit_norms(event);
  diagnostics(event.step, diagnosed);
  objective_scalars(event.step, "train/", metrics);
  scalars(event.step, {{"train/loss", event.loss.value()},
                       {"train/grad_norm", event.grad_norm.value()},
                       {"train/lr", event.lr.value()},
                       {"train/tokens_per_second", tokens_per_second}});
}

bool RunReport::restore(const checkpoint::StepRecord& record) {
  if (!line_due(record.step)) {
    return false;
  }
  Json line = begin_line(record.step, record.loss, record.grad_norm, record.unit_grad_norms);
  line["lr"] = record.lr;
  line["tokens"] = record.tokens;
  options_.files->metrics.append(line.dump());
  return true;
}

void RunReport::evaluation(const EvaluationFinished& event) {
  rate_.end_evaluation(event.of_choices, event.elapsed_ns);
  if (event.of_choices) {
    return choices(event);
  }
  const double nats = event.cross_entropy.value();
  Json line;
  line["event"] = "evaluation";
  line["step"] = event.step;
  line["val_loss"] = nats;
  const bool of_tokens = event.objective_metrics.size() <=
                         options_.block_metrics.size() + options_.source_names.size();
  if (of_tokens) {
    line["val_perplexity"] = fixed::exp(nats);
  }
  line["val_accuracy"] = event.accuracy.value();
  const auto metrics = objective_metrics(event.objective_metrics);
  for (const auto& [name, value] : metrics) {
    line["val_" + name] = value;
  }
  objective_scalars(event.step, "val/", metrics);
  std::string bits;
  if (options_.bytes_per_token) {
    const double bits_per_byte = nats / std::numbers::ln2 / *options_.bytes_per_token;
    line["val_bits_per_byte"] = bits_per_byte;
    bits = fmt::format(", {:.3f} bits per byte", bits_per_byte);
    scalars(event.step, {{"val/bits_per_byte", bits_per_byte}});
  }
  const std::string quality = of_tokens ? fmt::format("perplexity {:.2f}", fixed::exp(nats))
                                        : fmt::format("accuracy {:.3f}", event.accuracy.value());
  print_line(
      fmt::format("evaluation at step {}: loss {:.4f}, {}{}", event.step, nats, quality, bits));
  append(line.dump());
  note({.kind = "evaluation",
        .text = fmt::format("loss {:.4f}", nats),
        .step = event.step,
        .seconds = static_cast<double>(event.elapsed_ns) * 1e-9});
  scalars(event.step, {{"val/loss", nats}});
  if (of_tokens) {
    scalars(event.step, {{"val/perplexity", fixed::exp(nats)}});
  }
}

void RunReport::choices(const EvaluationFinished& event) {
  const ChoiceReport report = report_choices(*options_.data->facts().choices, event);
  Json line;
  line["event"] = "choices";
  line["step"] = event.step;
  line["choices"] = choices_json(report);
  append(line.dump());
  std::string text = choices_text(report);
  text.pop_back();  // The function print_line() adds the line feed.
  print_line(text);
  const data::ChoiceScore& all = report.scores.back();
  scalars(event.step, {{"choices/acc", all.acc},
                       {"choices/acc_norm", all.acc_norm},
                       {"choices/correct_prob", all.correct_prob},
                       {"choices/margin", all.margin}});
}

void RunReport::samples(const TextsSampled& event) {
  rate_.end_samples(event.elapsed_ns);
  std::span<const std::int32_t> left(event.tokens);
  const std::size_t texts = options_.samples != nullptr ? event.lengths.size() : 0;
  for (std::size_t i = 0; i < texts; ++i) {
    const auto length = static_cast<std::size_t>(event.lengths[i]);
    const std::string text = options_.samples->text(i, left.first(length));
    left = left.subspan(length);
    const std::string& prompt = options_.samples->shown()[i];
    note_sample({.kind = kSampledEvent,
                 .index = static_cast<std::int64_t>(i),
                 .prompt = prompt,
                 .text = text,
                 .step = event.step});
    print_line(fmt::format("sample at step {}: {} {}", event.step, quoted(prompt), quoted(text)));
    if (options_.tensorboard) {
      options_.files->tensorboard->text(fmt::format("samples/{}", i), event.step,
                                        fmt::format("{}\n\n---\n\n{}", prompt, text));
    }
  }
  Json line;
  line["event"] = "samples";
  line["step"] = event.step;
  line["sample_tokens"] = event.tokens.size();
  line["sample_seconds"] = static_cast<double>(event.elapsed_ns) * 1e-9;
  append(line.dump());
}

void RunReport::checkpoint(const CheckpointWritten& event) {
  {
    const std::lock_guard lock(progress_mutex_);
    progress_.saved_step = event.step;
    progress_.saved_ns = steady_now_ns();
    progress_.saved_directory = event.directory;
    progress_.save_failure.clear();
  }
  if (block_) {
    const std::lock_guard lock(view_mutex_);
    view_.saved = fmt::format("checkpoint at step {}", event.step);
    show_block();
  }
  note({.kind = "checkpoint_published",
        .text = event.directory,
        .step = event.step,
        .seconds = static_cast<double>(event.elapsed_ns) * 1e-9,
        .size_bytes = event.size_bytes});
  print_line(fmt::format("checkpoint {} ({}, {})", event.directory, format_bytes(event.size_bytes),
                         format_duration(static_cast<double>(event.elapsed_ns) * 1e-9)));
}

void RunReport::checkpoint_failed(const CheckpointFailed& event) {
  {
    const std::lock_guard lock(progress_mutex_);
    progress_.save_failure = event.text;
  }
  note({.kind = "checkpoint_failed", .text = event.text, .step = event.step});
  log_error(
      fmt::format("checkpoint_failed step={} {}; training continues, and earlier checkpoints "
                  "remain",
                  event.step, event.text));
}

void RunReport::stop_requested(int signal) { note(stop_requested_event(signal)); }

double RunReport::reached_share() const {
  const double share = options_.peak_flops > 0.0 ? reached_flops() / options_.peak_flops : 0.0;
  return share < 1.0 ? share : 0.0;
}

void RunReport::show(const StepFinished& event) {
  const double remaining = rate_.remaining_seconds();
  const double mfu = reached_share();
  if (block_) {
    const std::lock_guard lock(view_mutex_);
    view_.step = event.step;
    view_.remaining_s = remaining;
    view_.losses.push_back(event.loss.value());
    if (view_.losses.size() > kShownLosses) {
      view_.losses.pop_front();
    }
    view_.grad_norm = event.grad_norm.value();
    view_.lr = event.lr.value();
    view_.tokens_per_second = rate_.tokens_per_second();
    view_.mfu = mfu;
    show_block();
    return;
  }
  const std::int64_t every = std::max<std::int64_t>(1, options_.total_steps / kPlainLines);
  if (event.step % every == 0 || event.step == options_.total_steps ||
      event.step == options_.first_step + 1) {
    print_line(fmt::format(
        "step {}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {} tokens/s{}  ETA {}", event.step,
        options_.total_steps, event.loss.value(), event.grad_norm.value(), event.lr.value(),
        format_count(rate_.tokens_per_second()),
        mfu > 0.0 ? fmt::format("  MFU {:.0f} %", 100.0 * mfu) : "", format_duration(remaining)));
  }
}

// REQUIRES: there is a block; view_mutex_ is held.
void RunReport::show_block() {
  block_->show(progress_block(view_, LiveBlock::columns(*options_.out)));
}

void RunReport::stalled(const std::string& text) {
  if (!block_) {
    return;
  }
  const std::lock_guard lock(view_mutex_);
  view_.stalled = text;
  show_block();
}

void RunReport::print_line(const std::string& text) {
  if (block_) {
    block_->print(text);
  } else if (options_.out != nullptr && options_.output == Output::lines) {
    options_.out->write(text + "\n");
  }
}

void RunReport::note(const RunEvent& event) {
  options_.files->events.note(event);
  if (options_.output == Output::json && options_.out != nullptr) {
    options_.out->write(event_line(event));
  }
}

void RunReport::note_sample(const RunEvent& event) {
  if (!sampled_before_.contains({*event.step, event.index, *event.prompt, event.text})) {
    note(event);
  }
}

RunProgress RunReport::progress() const {
  const std::lock_guard lock(progress_mutex_);
  return progress_;
}

void RunReport::close() {
  if (block_) {
    block_->leave();
  }
  constexpr double kLeastSeconds = 1.0;
  if (options_.keep_rate && options_.peak_flops > 0.0 && progress().window_s > kLeastSeconds) {
    options_.keep_rate(reached_flops());
  }
}

}  // namespace train::run
