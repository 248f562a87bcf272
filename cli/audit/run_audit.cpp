#include "cli/audit/run_audit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "cli/report/untrusted_json.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "engine/state_view.hpp"
#include "storage/files/line_tail.hpp"

namespace train::cli {
namespace {

using checkpoint::TensorRecord;

std::size_t row_bytes_of(const TensorRecord& record) {
  std::size_t bytes = sizeof(float);
  for (std::size_t i = 1; i < record.shape.size(); ++i) {
    bytes *= static_cast<std::size_t>(record.shape[i]);
  }
  return bytes;
}

/// Digests of tensors, from pieces of their records.
class Digests {
 public:
  void add(const TensorRecord& record, std::span<const std::byte> piece) {
    if (record_ != &record) {
      record_ = &record;
      next_row_ = record.first_row;
      rest_.clear();
    }
    rest_.insert(rest_.end(), piece.begin(), piece.end());
    const std::size_t row_bytes = row_bytes_of(record);
    const auto rows = static_cast<std::int64_t>(rest_.size() / row_bytes);
    const engine::StateView view{.name = record.name,
                                 .global_shape = record.shape,
                                 .first_row = next_row_,
                                 .rows = rows,
                                 .data = rest_.data(),
                                 .size_bytes = static_cast<std::size_t>(rows) * row_bytes};
    by_name_[record.name] += engine::tensor_digests({&view, 1}, {&view.name, 1}).front();
    next_row_ += rows;
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(view.size_bytes));
  }

  /// 0 for a tensor without bytes or rows.
  [[nodiscard]] std::uint64_t of(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? 0 : found->second;
  }

 private:
  const TensorRecord* record_ = nullptr;
  std::int64_t next_row_ = 0;
  std::vector<std::byte> rest_;  ///< Part of a row whose end has not been read.
  std::map<std::string, std::uint64_t> by_name_;
};

}  // namespace

Result<CheckpointContent> read_content(const std::filesystem::path& directory) {
  Digests digests;
  auto found = checkpoint::verify_checkpoint(
      directory, [&](const TensorRecord& record, std::span<const std::byte> piece) {
        digests.add(record, piece);
      });
  TRAIN_RETURN_IF_ERROR(found);
  CheckpointContent content{.found = std::move(found).value(), .tensors = {}, .digests = {}};
  if (content.found.whole()) {
    for (const TensorRecord& tensor : content.found.manifest->tensors) {  // Sorted by name.
      if (content.tensors.empty() || content.tensors.back() != tensor.name) {
        content.tensors.push_back(tensor.name);
        content.digests.push_back(digests.of(tensor.name));
      }
    }
  }
  return content;
}

std::vector<std::string> audit_journal(const checkpoint::StepJournal& journal,
                                       std::int64_t tokens_per_step) {
  std::vector<std::string> problems;
  problems.reserve(journal.unreadable.size());
  for (const std::int64_t step : journal.unreadable) {
    problems.push_back(fmt::format("journal: the record of step {} cannot be read", step));
  }
  std::int64_t before = journal.steps.empty() ? 0 : journal.steps.begin()->first - 1;
  for (const auto& [step, record] : journal.steps) {
    if (step == before + 2) {
      problems.push_back(fmt::format("journal: step {} is missing", before + 1));
    } else if (step > before + 1) {
      problems.push_back(fmt::format("journal: steps {} to {} are missing", before + 1, step - 1));
    }
    before = step;
    if (record.tokens != step * tokens_per_step) {
      problems.push_back(fmt::format("journal: step {} has read {} tokens, not {}", step,
                                     record.tokens, step * tokens_per_step));
    }
  }
  return problems;
}

std::vector<std::string> audit_checkpoint(const CheckpointFacts& facts,
                                          const checkpoint::StepJournal& journal) {
  std::vector<std::string> problems;
  const auto problem = [&](const std::string& what) {
    problems.push_back(fmt::format("{}: {}", facts.name, what));
  };
  const std::string weights =
      fmt::format("{:016x}", engine::weights_digest(facts.digests, facts.tensors));
  if (!facts.weights_digest.empty() && facts.weights_digest != weights) {
    problem(fmt::format("its weights have the digest {}, its manifest says {}", weights,
                        facts.weights_digest));
  }
  const auto& steps = journal.steps;
  const auto record = steps.find(facts.step);
  if (record == steps.end()) {
    if (steps.empty() || facts.step > steps.rbegin()->first) {
      problem(
          fmt::format("the journal ends at step {}", steps.empty() ? 0 : steps.rbegin()->first));
    }
    return problems;  // A missing record in between is reported for the journal; the oldest ones
                      // are dropped.
  }
  if (record->second.tokens != facts.tokens) {
    problem(fmt::format("the checkpoint says {} tokens read, the journal {}", facts.tokens,
                        record->second.tokens));
  }
  const auto& digests = record->second.tensor_digests;
  if (!digests.empty() && digests.size() != facts.digests.size()) {
    problem(fmt::format("the checkpoint has {} tensors, the journal digests of {}",
                        facts.digests.size(), digests.size()));
  }
  for (std::size_t i = 0; i < std::min(digests.size(), facts.digests.size()); ++i) {
    if (digests.size() == facts.digests.size() && digests[i] != facts.digests[i]) {
      problem(fmt::format("tensor {} is not the one that the journal has the digest of",
                          facts.tensors[i]));
    }
  }
  return problems;
}

namespace {

using Json = nlohmann::ordered_json;
using checkpoint::StepRecord;

/// JSON has no NaN or infinity: such a value reads as null.
bool same(const Json& value, double wanted) {
  if (!value.is_number()) {
    return value.is_null() && !std::isfinite(wanted);
  }
  return std::bit_cast<std::uint64_t>(value.get<double>()) == std::bit_cast<std::uint64_t>(wanted);
}

class Audit {
 public:
  Audit(std::string file, const MetricsFacts& facts) : file_(std::move(file)), facts_(facts) {}

  void line(std::int64_t number, std::string_view text) {
    number_ = number;
    const auto read = parse_untrusted_json(text, kLineLimits);
    if (!read) {
      return problem(fmt::format("not a JSON object with a step ({})", read.error().message));
    }
    const Json& entry = *read;
    if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) {
      return problem("not a JSON object with a step");
    }
    const auto step = entry["step"].get<std::int64_t>();
    const std::string event = entry.value("event", "");
    if (event != "choices" && event != "samples") {  // The journal has neither.
      entry.contains("val_loss") ? evaluation(step, entry) : training(step, entry);
    }
  }

  [[nodiscard]] MetricsAudit take() { return std::move(found_); }

 private:
  void problem(const std::string& what) {
    found_.problems.push_back(fmt::format("{}:{}: {}", file_, number_, what));
  }

  void compare(std::int64_t step, const Json& entry, const char* key, double journal) {
    if (!entry.contains(key) || !same(entry[key], journal)) {
      problem(fmt::format("{} of step {} is {}, in the journal {}", key, step,
                          entry.contains(key) ? entry[key].dump() : "missing", journal));
    }
  }

  void evaluation(std::int64_t step, const Json& entry) {
    const auto known = facts_.validation_losses.find(step);
    if (known != facts_.validation_losses.end() && !same(entry["val_loss"], known->second)) {
      problem(fmt::format("val_loss of step {} is {}, in the index {}", step,
                          entry["val_loss"].dump(), known->second));
    }
  }

  void training(std::int64_t step, const Json& entry) {
    if (step <= last_) {
      problem(fmt::format("step {} comes after step {}", step, last_));
    }
    last_ = step;
    const auto record = facts_.steps->find(step);
    if (record == facts_.steps->end()) {
      const bool newer = facts_.steps->empty() || step > facts_.steps->rbegin()->first;
      // The journal drops old steps.
      const bool older = !newer && step < facts_.steps->begin()->first;
      found_.newer += newer ? 1 : 0;
      if (!newer && !older) {
        problem(fmt::format("step {} is not in the journal", step));
      }
      return;
    }
    ++found_.steps;
    const StepRecord& journal = record->second;
    compare(step, entry, "loss", journal.loss);
    compare(step, entry, "grad_norm", journal.grad_norm);
    compare(step, entry, "lr", journal.lr);
    if (!entry.contains("tokens") || entry["tokens"] != journal.tokens) {
      problem(fmt::format("tokens of step {} are not the journal's {}", step, journal.tokens));
    }
    compare_units(step, entry, journal);
    compare_digest(step, entry, journal);
  }

  void compare_units(std::int64_t step, const Json& entry, const StepRecord& journal) {
    if (!entry.contains("unit_grad_norm") || journal.unit_grad_norms.empty()) {
      return;
    }
    std::size_t unit = 0;
    for (const auto& [name, norm] : entry["unit_grad_norm"].items()) {
      if (unit >= journal.unit_grad_norms.size() ||
          !same(norm, std::bit_cast<double>(journal.unit_grad_norms[unit]))) {
        problem(fmt::format("unit_grad_norm of {} of step {} is not the journal's", name, step));
      }
      ++unit;
    }
  }

  void compare_digest(std::int64_t step, const Json& entry, const StepRecord& journal) {
    const auto& digests = journal.tensor_digests;
    if (facts_.weights == 0 || digests.size() < facts_.weights) {
      return;
    }
    const auto weights = std::accumulate(
        digests.begin(), digests.begin() + static_cast<std::ptrdiff_t>(facts_.weights),
        std::uint64_t{0});
    const std::string wanted = fmt::format("{:016x}", weights);
    if (!entry.contains("weights_digest") || entry["weights_digest"] != wanted) {
      problem(fmt::format("weights_digest of step {} is not {}, as in the journal", step, wanted));
    }
  }

  std::string file_;
  const MetricsFacts& facts_;
  std::int64_t number_ = 0;
  std::int64_t last_ = 0;  ///< Last step.
  MetricsAudit found_;
};

}  // namespace

MetricsAudit audit_metrics(const std::filesystem::path& file, const MetricsFacts& facts) {
  storage::LineTail lines({.folder = file.parent_path(), .below = file.filename()},
                          {.newest_bytes = std::numeric_limits<std::uint64_t>::max()});
  const std::string name = file.filename().string();
  std::optional<Audit> audit(std::in_place, name, facts);
  std::int64_t number = 0;
  const storage::LineTail::Reader reader = {
      .restart =
          [&] {
            audit.emplace(name, facts);
            number = 0;
          },
      .line = [&](std::string_view line) { audit->line(++number, line); }};
  auto more = lines.next(reader);
  while (more == storage::LineTail::More::yes) {
    more = lines.next(reader);
  }
  if (more == storage::LineTail::More::no_file) {  // Or it has gone meanwhile.
    MetricsAudit found;
    if (!facts.steps->empty() || !lines.problem().empty()) {
      found.problems.push_back(
          lines.problem().empty()
              ? fmt::format("{}: cannot be read, but the journal has steps", file.string())
              : lines.problem());
    }
    return found;
  }
  if (!lines.unfinished().empty()) {
    audit->line(++number, lines.unfinished());
  }
  MetricsAudit found = audit->take();
  if (lines.skipped_lines() > 0) {
    found.problems.push_back(fmt::format("{}: {} lines are longer than any that a run writes",
                                         file.string(), lines.skipped_lines()));
  }
  return found;
}

}  // namespace train::cli
