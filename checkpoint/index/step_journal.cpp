#include "checkpoint/index/step_journal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/text_fields.hpp"

namespace train::checkpoint {

std::string digests_text(const std::vector<std::uint64_t>& digests) {
  std::string text;
  text.reserve(digests.size() * 17);
  for (const std::uint64_t digest : digests) {
    fmt::format_to(std::back_inserter(text), "{}{:016x}", text.empty() ? "" : " ", digest);
  }
  return text;
}

std::optional<std::vector<std::uint64_t>> parse_digests(std::string_view text) {
  std::vector<std::uint64_t> digests;
  while (!text.empty()) {
    const auto digest = number_in<std::uint64_t>(next_field(text), 16);
    if (!digest) {
      return std::nullopt;
    }
    digests.push_back(*digest);
  }
  return digests;
}

std::string step_text(const StepRecord& record) {
  std::string text = fmt::format("{:016x} {:016x} {:016x} {}", bits_of(record.loss),
                                 bits_of(record.grad_norm), bits_of(record.lr), record.tokens);
  return record.unit_grad_norms.empty() ? text : text + " " + digests_text(record.unit_grad_norms);
}

std::optional<StepRecord> parse_step(std::int64_t step, std::string_view text) {
  const auto loss = double_of(next_field(text));
  const auto grad_norm = double_of(next_field(text));
  const auto lr = double_of(next_field(text));
  const auto tokens = number_in<std::int64_t>(next_field(text));
  auto units = parse_digests(text);
  if (!loss || !grad_norm || !lr || !tokens || !units) {
    return std::nullopt;
  }
  return StepRecord{.step = step,
                    .loss = *loss,
                    .grad_norm = *grad_norm,
                    .lr = *lr,
                    .tokens = *tokens,
                    .unit_grad_norms = *std::move(units)};
}

void put_step(storage::WriteBatch& batch, const StepRecord& record) {
  batch.put(index_keys::of(index_keys::kStep, record.step), step_text(record));
  if (!record.tensor_digests.empty()) {
    batch.put(index_keys::of(index_keys::kDigest, record.step),
              digests_text(record.tensor_digests));
  }
}

Result<StepJournal> read_step_journal(storage::KvStore& store) {
  StepJournal journal;
  std::set<std::int64_t> unreadable;
  TRAIN_RETURN_IF_ERROR(store.scan(index_keys::kStep, [&](std::string_view key, auto value) {
    const std::int64_t step = index_keys::number_of(index_keys::kStep, key).value_or(0);
    auto record = parse_step(step, value);
    if (step > 0 && record) {
      journal.steps.emplace(step, *std::move(record));
    } else {
      unreadable.insert(step);
    }
    return true;
  }));
  TRAIN_RETURN_IF_ERROR(store.scan(index_keys::kDigest, [&](std::string_view key, auto value) {
    const std::int64_t step = index_keys::number_of(index_keys::kDigest, key).value_or(0);
    auto digests = parse_digests(value);
    const auto record = journal.steps.find(step);
    if (!digests) {
      unreadable.insert(step);
    } else if (record != journal.steps.end()) {
      record->second.tensor_digests = *std::move(digests);
    }
    return true;
  }));
  journal.unreadable.assign(unreadable.begin(), unreadable.end());
  return journal;
}

Result<std::vector<StepRecord>> read_steps(storage::KvStore& store, std::int64_t first,
                                           std::int64_t last) {
  std::vector<StepRecord> records;
  const auto visit = [&](std::string_view key, std::string_view value) {
    const auto step = index_keys::number_of(index_keys::kStep, key);
    if (!step || *step > last) {
      return false;
    }
    if (auto record = parse_step(*step, value)) {
      records.push_back(*std::move(record));
    }
    return true;
  };
  TRAIN_RETURN_IF_ERROR(
      store.scan_from(index_keys::of(index_keys::kStep, first), index_keys::kStep, visit));
  return records;
}

Result<bool> has_steps(storage::KvStore& store) {
  bool found = false;
  TRAIN_RETURN_IF_ERROR(store.scan(index_keys::kStep, [&found](std::string_view, std::string_view) {
    found = true;
    return false;
  }));
  return found;
}

}  // namespace train::checkpoint
