#include "data/examples/prepare_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "base/text/paths.hpp"
#include "data/chat/template_files.hpp"
#include "data/examples/example_reading.hpp"
#include "data/examples/prepare_key.hpp"
#include "data/prepare/prepare_parts.hpp"
#include "data/rows/row_writer.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_lock.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kShortIds = 65536;
constexpr std::int64_t kRowLengthMost = std::int64_t{1} << 24;
constexpr std::size_t kSourcesMost = 65536;
/// Turn ends rarer than one in this many answers belong to single answers.
constexpr std::uint64_t kOneInMost = 100;

Status check_rows_request(const PrepareRowsRequest& request) {
  if (request.inputs.empty() || request.out.empty()) {
    return user_error("rows need --input FILE and --out DIR");
  }
  if (request.tokenizer.empty() || request.tokenizer == "bytes") {
    return user_error(
        "--row-length makes rows, which need a model's tokenizer: give its directory by "
        "--tokenizer DIR");
  }
  if (request.row_length < 2 || request.row_length > kRowLengthMost) {
    return user_error(fmt::format("--row-length {} must be between 2 and {}", request.row_length,
                                  kRowLengthMost));
  }
  if (!(request.val_fraction >= 0.0 && request.val_fraction < 1.0)) {
    return user_error(
        fmt::format("--val-fraction {} must be 0, or above 0 and below 1", request.val_fraction));
  }
  return {};
}

/// Name of the template in `meta.json`.
std::string template_name(const PrepareRowsRequest& request) {
  const fs::path name = without_slash(request.chat_template).filename();
  return name.empty() ? "tokenizer" : name.string();
}

/// Writes examples to a hidden directory, and counts them.
class RowsJob {
 public:
  RowsJob(const PrepareRowsRequest& request, const Tokenizer& tokenizer, fs::path staging)
      : request_(request),
        tokenizer_(tokenizer),
        staging_(std::move(staging)),
        reading_(request, tokenizer) {
    report_.facts.vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size());
    report_.facts.token_bytes = report_.facts.vocab_size <= kShortIds ? 2 : 4;
    report_.notes = tokenizer.notes();
    if (request.source_key.empty()) {
      for (const fs::path& input : request.inputs) {
        report_.facts.sources.push_back(input.filename().string());
      }
      report_.sources.resize(request.inputs.size());
    }
  }

  Result<RowReport> run(const PrepareProgress& progress) {
    TRAIN_RETURN_IF_ERROR(reading_.run(
        [this](EncodedLine line, const LinePlace& place) { return take(std::move(line), place); },
        progress));
    RowFacts& facts = report_.facts;
    facts.kind = example_kind_name(reading_.kind());
    facts.packing = packing_name(reading_.packing());
    facts.tokenizer = fs::path(request_.tokenizer).filename().string();
    facts.end_of_text = tokenizer_.end_of_text();
    facts.turn_ends = turn_ends();
    const bool rendered = std::any_of(report_.masks.begin(), report_.masks.end(),
                                      [](std::uint64_t count) { return count > 0; });
    facts.chat_template = rendered ? template_name(request_) : "";
    note_endless_turns();
    note_plain_texts();
    facts.row_length = request_.row_length;
    TRAIN_RETURN_IF_ERROR(check_report(report_, request_.most_dropped));
    TRAIN_RETURN_IF_ERROR(open_writers());
    facts.has_weights = train_->has_weights() || val_->has_weights();
    for (const auto& [writer, counts] :
         {std::pair(&*train_, &facts.train), std::pair(&*val_, &facts.val)}) {
      if (facts.has_weights) {
        TRAIN_RETURN_IF_ERROR(writer->keep_weights());
      }
      TRAIN_RETURN_IF_ERROR(writer->finish());
      *counts = writer->counts();
    }
    if (facts.train.rows == 0) {
      return user_error(
          "all lines went to the validation split; give more lines, or lower --val-fraction");
    }
    facts.report = report_.json();
    return std::move(report_);
  }

 private:
  Status open_writers() {
    if (train_) {
      return {};
    }
    const RowLayout layout{.token_bytes = report_.facts.token_bytes,
                           .row_length = static_cast<std::uint32_t>(request_.row_length),
                           .packing = reading_.packing(),
                           .seed = request_.seed};
    auto train = TRAIN_TRY(RowSplitWriter::create(staging_, "train", layout));
    auto val = TRAIN_TRY(RowSplitWriter::create(staging_, "val", layout));
    train_.emplace(std::move(train));
    val_.emplace(std::move(val));
    return {};
  }

  Result<std::size_t> source_of(const EncodedLine& line, const LinePlace& place) {
    if (request_.source_key.empty()) {
      return place.input;
    }
    const auto* const encoded = std::get_if<EncodedExample>(&line);
    const std::string name = encoded == nullptr ? "(dropped)" : encoded->example.source;
    const auto [found, added] = source_numbers_.emplace(name, source_numbers_.size());
    if (added) {
      if (source_numbers_.size() > kSourcesMost) {
        return user_error(fmt::format(
            "{}:{}: more than {} sources; \"{}\" does not name a source: use another --source-key",
            request_.inputs[place.input].string(), place.line, kSourcesMost, request_.source_key));
      }
      report_.facts.sources.push_back(name);
      report_.sources.emplace_back();
    }
    return found->second;
  }

  Status take(EncodedLine line, const LinePlace& place) {
    TRAIN_RETURN_IF_ERROR(open_writers());
    const auto source = TRAIN_TRY(source_of(line, place));
    const std::array<RowTally*, 2> tallies = {&report_.total, &report_.sources[source]};
    for (RowTally* const tally : tallies) {
      ++tally->lines;
    }
    if (const auto* const dropped = std::get_if<Dropped>(&line)) {
      for (RowTally* const tally : tallies) {
        ++tally->dropped;
      }
      count_dropped(*dropped, place);
      return {};
    }
    const auto& encoded = std::get<EncodedExample>(line);
    count_encoded(encoded, tallies);
    return write(encoded, static_cast<std::uint32_t>(source));
  }

  void count_dropped(const Dropped& dropped, const LinePlace& place) {
    storage::DropTally& tally = report_.dropped.at(static_cast<std::size_t>(dropped.reason));
    if (tally.lines++ == 0) {
      tally.first = fmt::format("{}:{}{}{}", request_.inputs[place.input].string(), place.line,
                                dropped.detail.empty() ? "" : ": ", dropped.detail);
    }
  }

  void count_encoded(const EncodedExample& encoded, std::span<RowTally* const> tallies) {
    const bool pair = encoded.example.kind == ExampleKind::preference;
    const auto trained = [](const RowText& text) {
      return static_cast<std::uint64_t>(std::count(text.trained.begin(), text.trained.end(), true));
    };
    for (RowTally* const tally : tallies) {
      tally->documents += pair ? 2 : 1;
      tally->truncated += encoded.truncated ? 1 : 0;
      tally->tokens += encoded.text.tokens.size() + encoded.worse.tokens.size();
      tally->trained_tokens += trained(encoded.text) + trained(encoded.worse);
    }
    if (encoded.example.kind == ExampleKind::kto) {
      ++(encoded.example.desirable ? report_.desirable : report_.undesirable);
    }
    for (const Remark& remark : encoded.remarks) {
      NameTally& names = report_.remarks.at(static_cast<std::size_t>(remark.kind));
      const bool counted = names.size() < kTallyNamesMost || names.contains(remark.name);
      ++names[counted ? remark.name : "others"];
    }
    if (encoded.method) {
      count_turn_ends(encoded.text, encoded.truncated);
      count_turn_ends(encoded.worse, encoded.truncated);
      ++report_.masks.at(static_cast<std::size_t>(*encoded.method));
    } else if (encoded.example.kind != ExampleKind::text) {
      ++report_.prompts;
      report_.merged += encoded.merged ? 1 : 0;
    }
  }

  void count_turn_ends(const RowText& text, bool truncated) {
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      const bool ends = text.trained[i] && (i + 1 == text.tokens.size() || !text.trained[i + 1]);
      if (!ends) {
        continue;
      }
      const bool special = tokenizer_.is_special(text.tokens[i]);
      if (special) {
        ++turn_ends_[text.tokens[i]];
      }
      if (!truncated) {
        ++turns_;
        turns_ended_ += special || text.tokens[i] == tokenizer_.end_of_text() ? 1 : 0;
      }
    }
  }

  /// If turns end like plain text, nothing makes the model stop.
  void note_endless_turns() {
    if (turns_ > 0 && turns_ended_ * kOneInMost < turns_) {
      report_.notes.emplace_back(
          "the template does not end answers with a special token of the tokenizer, so the model "
          "will not stop in `generate --chat`; use a --template that does, with its eos_token");
    }
  }

  /// Prompts and answers that are texts are tokenized as they stand, also for a model that expects
  /// its chat template, as TRL does.
  void note_plain_texts() {
    if (report_.prompts == 0 || !read_template_files(request_.tokenizer)) {
      return;
    }
    constexpr std::string_view prompt = R"("prompt": [{"role": "user", "content": "..."}])";
    constexpr std::string_view answer = R"([{"role": "assistant", "content": "..."}])";
    report_.notes.push_back(fmt::format(
        "{} {} texts, not messages: taken without the chat template that the tokenizer has. With "
        "it: {{{}, {}}}",
        report_.prompts, report_.prompts == 1 ? "example has" : "examples have", prompt,
        reading_.kind() == ExampleKind::preference
            ? fmt::format(R"("chosen": {0}, "rejected": {0})", answer)
            : fmt::format(R"("completion": {})", answer)));
  }

  /// Excludes those of a few answers that end with a special token of their own.
  [[nodiscard]] std::vector<std::uint32_t> turn_ends() const {
    std::uint64_t total = 0;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> counts;
    for (const auto& [id, count] : turn_ends_) {
      total += count;
      counts.emplace_back(count, id);
    }
    std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    std::vector<std::uint32_t> ids;
    for (const auto& [count, id] : counts) {
      if (count * kOneInMost >= total) {
        ids.push_back(id);
      }
    }
    return ids;
  }

  Status write(const EncodedExample& encoded, std::uint32_t source) {
    const std::uint64_t digest =
        storage::short_digest(std::as_bytes(std::span(encoded.text.tokens))) +
        storage::short_digest(std::as_bytes(std::span(encoded.worse.tokens)));
    RowSplitWriter& split =
        document_hash(request_.seed, digest) < request_.val_fraction ? *val_ : *train_;
    switch (encoded.example.kind) {
      case ExampleKind::preference:
        return split.add_pair(encoded.text, encoded.worse, source);
      case ExampleKind::kto:
        return split.add_labelled(encoded.text, source, encoded.example.desirable);
      case ExampleKind::chat:
      case ExampleKind::prompt:
      case ExampleKind::text:
        break;
    }
    return split.add(encoded.text, source);
  }

  const PrepareRowsRequest& request_;
  const Tokenizer& tokenizer_;
  fs::path staging_;
  ExampleReading reading_;
  RowReport report_;
  std::optional<RowSplitWriter> train_;
  std::optional<RowSplitWriter> val_;
  std::map<std::string, std::size_t> source_numbers_;
  std::map<std::uint32_t, std::uint64_t> turn_ends_;
  std::uint64_t turns_ = 0;        ///< Complete conversations,
  std::uint64_t turns_ended_ = 0;  ///< and those that end with a special token.
};

/// Template of the rendered conversations. Empty: there are none.
Result<TemplateSources> rendered_with(const PrepareRowsRequest& request, const RowFacts& facts) {
  if (facts.chat_template.empty()) {
    return TemplateSources{};
  }
  const auto found = TRAIN_TRY(ChatTemplate::find(template_of(request), chat_settings_of(request)));
  TRAIN_RETURN_IF_ERROR(check_template_names(found.sources()));
  return found.sources();
}

/// Stores the conversations' template beside the tokenizer's copy, so that generation uses the
/// template of training.
Status publish_rows(const fs::path& staging, const PrepareRowsRequest& request,
                    const RowFacts& facts) {
  const auto sources = TRAIN_TRY(rendered_with(request, facts));
  const auto place = [&]() -> Status {
    if (!sources.empty()) {
      TRAIN_RETURN_IF_ERROR(write_template_files(sources, kept_tokenizer_folder(request.out)));
    }
    const auto names = TRAIN_TRY(storage::entry_names(staging));
    for (const std::string& name : names) {
      TRAIN_RETURN_IF_ERROR(storage::rename_durably(staging / name, request.out / name));
    }
    return {};
  };
  return publish_data(request.out, request.tokenizer, place,
                      [&] { return write_row_facts(request.out, facts); });
}

/// Removes the hidden directory, however preparing ends.
class Staging {
 public:
  explicit Staging(fs::path path) : path_(std::move(path)) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    // A failure leaves hidden files, which the next run removes or reports.
    static_cast<void>(storage::remove_tree(path_).ok());
  }

 private:
  fs::path path_;
};

}  // namespace

Result<RowReport> prepare_rows(const PrepareRowsRequest& request, const PrepareProgress& progress) {
  TRAIN_RETURN_IF_ERROR(check_rows_request(request));
  const auto tokenizer = TRAIN_TRY(Tokenizer::load(request.tokenizer));
  TRAIN_RETURN_IF_ERROR(end_of_text_of(tokenizer, request.tokenizer));
  auto key = TRAIN_TRY(prepare_key(request));
  const auto earlier = TRAIN_TRY(earlier_files(request.out));
  if (!request.force && holds_data(request.out, earlier)) {
    auto facts = read_row_facts(request.out);
    if (facts && facts->key == key) {
      return RowReport{.up_to_date = true, .facts = std::move(*facts)};
    }
    return user_error(
        fmt::format("{} already holds other data ({}); use --force to replace it, or another --out",
                    request.out.string(), earlier.front().filename().string()));
  }
  const fs::path staging = request.out / kRowsStagingFolder;
  TRAIN_RETURN_IF_ERROR(storage::make_directory(request.out));
  const auto lock = storage::FileLock::acquire(request.out, ".prepare.lock");
  TRAIN_RETURN_IF_ERROR(lock);
  TRAIN_RETURN_IF_ERROR(remove_hidden(request.out));
  TRAIN_RETURN_IF_ERROR(storage::make_directory(staging));
  const Staging hidden(staging);
  auto report = TRAIN_TRY(RowsJob(request, tokenizer, staging).run(progress));
  report.facts.key = std::move(key);
  TRAIN_RETURN_IF_ERROR(publish_rows(staging, request, report.facts));
  return report;
}

}  // namespace train::data
