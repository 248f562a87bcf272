#include "data/examples/example_reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/examples/prepare_key.hpp"
#include "storage/inputs/member_list.hpp"

namespace train::data {
namespace {

constexpr std::size_t kWaitingLimitBytes = std::size_t{4} << 20;
constexpr std::size_t kWaitingLimitLines = 4096;

/// Advice for an object that is not an example: how to rename its members.
std::string rename_advice(const nlohmann::ordered_json& line) {
  return fmt::format(
      "rename its {}, for example with `jq -c '{{prompt: .KEY, chosen: .KEY, rejected: .KEY}}' "
      "FILE` or '{{prompt: .KEY, completion: .KEY}}'",
      storage::member_list(line));
}

/// Advice for an object that is not an example but holds a list of objects.
std::string wrapped_hint(const nlohmann::ordered_json& line) {
  for (const auto& [name, value] : line.items()) {
    if (value.is_array() && !value.empty() && value.front().is_object()) {
      return fmt::format(
          ", but a list \"{0}\" of objects: if those are the examples, give that list alone, as "
          "`jq '.[\"{0}\"]' FILE` prints it",
          name);
    }
  }
  return {};
}

}  // namespace

ExampleReading::ExampleReading(const PrepareRowsRequest& request, const Tokenizer& tokenizer)
    : request_(request),
      tokenizer_(tokenizer),
      workers_(static_cast<unsigned>(std::max(1, request.threads))),
      encoders_(static_cast<std::size_t>(std::max(1, request.threads))) {
  parsing_.train_on_last = request.train_on_last;
  parsing_.source_key = request.source_key;
}

std::string ExampleReading::where(const LinePlace& place) const {
  return fmt::format("{}:{}", request_.inputs[place.input].string(), place.line);
}

Status ExampleReading::run(const Take& take, const PrepareProgress& progress) {
  progress_ = &progress;
  for (const auto& input : request_.inputs) {
    std::error_code ignored;  // Opening the file reports the error.
    const auto size = std::filesystem::file_size(input, ignored);
    total_bytes_ += ignored ? 0 : size;
  }
  for (std::size_t input = 0; input < request_.inputs.size(); ++input) {
    TRAIN_RETURN_IF_ERROR(read_input(input, take));
    std::error_code ignored;
    done_bytes_ += std::filesystem::file_size(request_.inputs[input], ignored);
  }
  return flush(take);
}

Status ExampleReading::read_input(std::size_t input, const Take& take) {
  auto reader = TRAIN_TRY(storage::InputReader::open(request_.inputs[input], request_.layout));
  return reader.read_records([&](const storage::InputRecord& record) -> Status {
    waiting_.push_back({std::string(record.text), {input, record.line}, record.fault});
    waiting_bytes_ += record.text.size();
    if (waiting_bytes_ < kWaitingLimitBytes && waiting_.size() < kWaitingLimitLines) {
      return {};
    }
    if (*progress_) {
      (*progress_)(std::min(total_bytes_, done_bytes_ + reader.bytes().consumed()), total_bytes_);
    }
    return flush(take);
  });
}

Result<ExampleKind> ExampleReading::kind_of(const Waiting& line) const {
  const auto unknown = [&](const std::string& why) {
    return user_error(fmt::format("{}: cannot tell which kind of example this is: it {}",
                                  where(line.place), why));
  };
  if (line.fault) {
    return unknown(fmt::format("is {}; use --kind", storage::line_fault_text(*line.fault)));
  }
  const auto json = nlohmann::ordered_json::parse(line.text, nullptr, false);
  if (!json.is_object()) {
    return unknown(
        fmt::format("is {}; use --kind", storage::line_fault_text(storage::json_fault(line.text))));
  }
  const auto kind = example_kind_of(json);
  return kind ? Result<ExampleKind>(*kind)
              : unknown(fmt::format("has none of {}{}; {}", example_kinds_help(),
                                    wrapped_hint(json), rename_advice(json)));
}

/// Uses the first line that determines a kind; broken lines are counted like any other.
Result<ExampleKind> ExampleReading::kind_of_first() const {
  std::array<storage::DropTally, kDropReasonCount> tallies = {};
  for (const Waiting& line : waiting_) {
    if (auto kind = kind_of(line)) {
      return kind;
    }
    const bool object = !line.fault && nlohmann::json::parse(line.text, nullptr, false).is_object();
    const DropReason reason =
        object ? DropReason::members
               : drop_reason_of(line.fault.value_or(storage::json_fault(line.text)));
    storage::DropTally& tally = tallies.at(static_cast<std::size_t>(reason));
    tally.first = tally.lines++ == 0 ? where(line.place) : tally.first;
  }
  const Error first = kind_of(waiting_.front()).error();
  const auto reasons = storage::drop_reasons(tallies, drop_reason_text);
  return waiting_.size() == 1
             ? first
             : user_error(fmt::format("{}; {}", first.message, storage::dropped_text(reasons)));
}

Status ExampleReading::begin() {
  parsing_.kind = request_.kind.value_or(ExampleKind::text);
  if (!request_.kind) {
    parsing_.kind = TRAIN_TRY(kind_of_first());
  }
  packing_ = request_.packing.value_or(parsing_.kind == ExampleKind::text ? Packing::bfd_split
                                                                          : Packing::bfd);
  const bool together =
      parsing_.kind == ExampleKind::preference || parsing_.kind == ExampleKind::kto;
  if (together && cuts_documents(packing_)) {
    return user_error(
        fmt::format("--packing {} cuts documents, but those of --kind {} must stay whole; use bfd, "
                    "greedy or none",
                    packing_name(packing_), example_kind_name(parsing_.kind)));
  }
  if (!request_.keywords.empty()) {
    if (parsing_.kind != ExampleKind::text) {
      return user_error(fmt::format("--keywords are for texts, not for --kind {}; leave them out",
                                    example_kind_name(parsing_.kind)));
    }
    auto keywords = TRAIN_TRY(KeywordMask::read(request_.keywords));
    keywords_ = std::make_shared<const KeywordMask>(std::move(keywords));
  }
  return {};
}

Status ExampleReading::encode(unsigned worker, const Waiting& line, EncodedLine& to) {
  if (line.fault) {
    to = Dropped{drop_reason_of(*line.fault), {}};
    return {};
  }
  auto parsed = parse_example(line.text, parsing_);
  if (auto* const dropped = std::get_if<Dropped>(&parsed)) {
    if (dropped->reason == DropReason::not_json && dropped->detail.empty()) {
      dropped->reason = drop_reason_of(storage::json_fault(line.text));
    }
    to = std::move(*dropped);
    return {};
  }
  auto& encoder = encoders_[worker];
  if (!encoder) {
    encoder = std::make_unique<ExampleEncoder>(
        tokenizer_, EncoderSettings{.chat_template = template_of(request_),
                                    .chat = chat_settings_of(request_),
                                    .row_length = static_cast<std::uint32_t>(request_.row_length),
                                    .truncates = !cuts_documents(packing_),
                                    .part = request_.part,
                                    .keywords = keywords_});
  }
  to = TRAIN_TRY(encoder->encode(std::get<Example>(std::move(parsed))));
  return {};
}

Status ExampleReading::flush(const Take& take) {
  if (!waiting_.empty() && !std::exchange(begun_, true)) {
    TRAIN_RETURN_IF_ERROR(begin());
  }
  std::vector<EncodedLine> encoded(waiting_.size());
  std::vector<Status> statuses(waiting_.size());
  workers_.run(waiting_.size(), [&](unsigned worker, std::size_t i) {
    statuses[i] = encode(worker, waiting_[i], encoded[i]);
  });
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    TRAIN_RETURN_IF_ERROR(statuses[i]);
    TRAIN_RETURN_IF_ERROR(take(std::move(encoded[i]), waiting_[i].place));
  }
  waiting_.clear();
  waiting_bytes_ = 0;
  return {};
}

}  // namespace train::data
