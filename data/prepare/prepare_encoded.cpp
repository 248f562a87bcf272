#include "data/prepare/prepare_encoded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "data/prepare/document_reader.hpp"
#include "data/prepare/prepare_parts.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "storage/files/file_lock.hpp"
#include "storage/inputs/input_reader.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

using TokenList = std::vector<std::uint32_t>;

/// Bytes of documents encoded at a time, by all threads.
constexpr std::size_t kBatchBytes = std::size_t{8} << 20;
constexpr std::int64_t kShortTokenLimit = 65536;

/// Tokens of a document with its end-of-text, and the bytes of its text.
using TakeDocument = std::function<Status(const TokenList& tokens, std::uint64_t text_bytes)>;

/// Reads all inputs and passes every document to `take`, in order.
class EncodedReading {
 public:
  EncodedReading(const PrepareRequest& request, const Tokenizer& tokenizer,
                 std::uint32_t end_of_text, ReadProgress& progress)
      : request_(request),
        encoder_(tokenizer, static_cast<unsigned>(request.threads)),
        end_of_text_(end_of_text),
        progress_(progress) {}

  Status run(const TakeDocument& take) {
    drops_ = std::make_unique<DropCount>(request_);
    replaced_ = text_bytes_ = documents_ = 0;
    const DocumentSink sink{
        .text = [&](std::span<const std::byte> piece) { return add(piece); },
        .end = [&] { return end(take); },
        .dropped =
            [&](storage::LineFault fault, const storage::InputRecord& record) {
              return drops_->add(fault, input_, record, documents_);
            },
        .consumed = [&](std::uint64_t bytes) { progress_.advance(bytes); },
    };
    for (const fs::path& input : request_.inputs) {
      input_ = input;
      TRAIN_RETURN_IF_ERROR(
          read_documents(input, request_.document_separator, request_.layout, sink));
    }
    TRAIN_RETURN_IF_ERROR(flush(take));
    return drops_->check(documents_);
  }

  // Counts of the last pass.
  /// Breaks in UTF-8 that were read as U+FFFD.
  [[nodiscard]] std::uint64_t replaced() const { return replaced_; }
  [[nodiscard]] const DropCount& drops() const { return *drops_; }

 private:
  Status add(std::span<const std::byte> piece) {
    if (document_.size() + piece.size() > kDocumentLimitBytes) {
      return user_error(
          fmt::format("{}: a document of more than {} bytes; cut it with --document-separator",
                      input_.string(), kDocumentLimitBytes));
    }
    document_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }

  Status end(const TakeDocument& take) {
    ++documents_;
    waiting_bytes_ += document_.size();
    text_bytes_ += document_.size();
    waiting_.push_back(std::exchange(document_, {}));
    return waiting_bytes_ >= kBatchBytes ? flush(take) : Status{};
  }

  Status flush(const TakeDocument& take) {
    const std::vector<std::string_view> texts(waiting_.begin(), waiting_.end());
    auto encoded = TRAIN_TRY(encoder_.encode(texts, /*add_special_tokens=*/true));
    replaced_ += encoded.replaced_count;
    // An input that begins as text may continue as something else.
    const double unreadable = static_cast<double>(replaced_) / static_cast<double>(text_bytes_);
    if (text_bytes_ > 0 && unreadable > storage::kUnreadableShareMost &&
        request_.layout != storage::SaidLayout::text) {
      return storage::no_text_error(input_, unreadable);
    }
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      TokenList& tokens = encoded.ids[i];
      if (tokens.empty() || tokens.back() != end_of_text_) {
        tokens.push_back(end_of_text_);
      }
      TRAIN_RETURN_IF_ERROR(take(tokens, waiting_[i].size()));
    }
    waiting_.clear();
    waiting_bytes_ = 0;
    return {};
  }

  const PrepareRequest& request_;
  DocumentEncoder encoder_;
  std::uint32_t end_of_text_;
  ReadProgress& progress_;
  fs::path input_;
  std::string document_;
  std::vector<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::unique_ptr<DropCount> drops_;
  std::uint64_t documents_ = 0;
  std::uint64_t text_bytes_ = 0;
  std::uint64_t replaced_ = 0;
};

/// Sends every token to its split, and counts.
class EncodedSplitter {
 public:
  EncodedSplitter(const PrepareRequest& request, const SplitPlan& plan, const Tokenizer& tokenizer,
                  TokenWriters& writers)
      : request_(request), plan_(plan), tokenizer_(tokenizer), writers_(writers) {}

  Status add(const TokenList& tokens, std::uint64_t text_bytes) {
    const bool hashed = document_hash(request_.seed, census_.documents++) < request_.val_fraction;
    const std::uint64_t position = census_.tokens;
    census_.tokens += tokens.size();
    census_.hashed_tokens += hashed ? tokens.size() : 0;
    if (plan_.whole_documents) {
      TokenWriter& target = hashed ? writers_.val : writers_.train;
      target.count_text(text_bytes);
      return write(tokens, target);
    }
    const std::uint64_t before = plan_.tail_begin > position ? plan_.tail_begin - position : 0;
    const auto head = std::min<std::size_t>(tokens.size(), before);
    const std::span<const std::uint32_t> all(tokens);
    const auto tail = all.subspan(head);
    writers_.val.count_text(head == 0 ? text_bytes
                                      : tokenizer_.decode(tail, /*skip_special=*/true).size());
    TRAIN_RETURN_IF_ERROR(write(all.first(head), writers_.train));
    return write(tail, writers_.val);
  }

  [[nodiscard]] const TokenCensus& census() const { return census_; }

 private:
  static Status write(std::span<const std::uint32_t> tokens, TokenWriter& target) {
    for (const std::uint32_t token : tokens) {
      TRAIN_RETURN_IF_ERROR(target.add_token(token));
    }
    return {};
  }

  const PrepareRequest& request_;
  SplitPlan plan_;
  const Tokenizer& tokenizer_;
  TokenWriters& writers_;
  TokenCensus census_;
};

/// Files written by one pass, under hidden names.
struct EncodedTokens {
  TokenWriters writers;
  TokenCensus census;
};

Result<EncodedTokens> write_encoded(const PrepareRequest& request, const SplitPlan& plan,
                                    const Tokenizer& tokenizer, EncodedReading& reading) {
  auto writers = TRAIN_TRY(TokenWriters::create(
      request.out, tokenizer.vocab_size() <= static_cast<std::uint32_t>(kShortTokenLimit) ? 2 : 4));
  EncodedSplitter splitter(request, plan, tokenizer, writers);
  TRAIN_RETURN_IF_ERROR(reading.run([&](const TokenList& tokens, std::uint64_t text_bytes) {
    return splitter.add(tokens, text_bytes);
  }));
  return EncodedTokens{std::move(writers), splitter.census()};
}

/// One pass suffices if the hash gives validation its share. Otherwise, with few or uneven
/// documents, everything is read again.
Result<EncodedTokens> split_encoded(const PrepareRequest& request, const Tokenizer& tokenizer,
                                    EncodedReading& reading, SplitPlan& plan) {
  auto written = TRAIN_TRY(write_encoded(request, plan, tokenizer, reading));
  const TokenCensus census = written.census;
  plan = make_split_plan(census, request.val_fraction);
  if (plan.whole_documents) {
    return written;
  }
  auto again = TRAIN_TRY(write_encoded(request, plan, tokenizer, reading));
  if (!(again.census == census)) {
    return failure("the input changed while it was read; prepare again");
  }
  return again;
}

}  // namespace

Result<PrepareReport> prepare_encoded(const PrepareRequest& request, std::uint64_t input_bytes,
                                      const PrepareProgress& callback) {
  const auto tokenizer = TRAIN_TRY(Tokenizer::load(request.tokenizer));
  const auto end_of_text = TRAIN_TRY(end_of_text_of(tokenizer, request.tokenizer));
  TRAIN_RETURN_IF_ERROR(storage::make_directory(request.out));
  const auto lock = storage::FileLock::acquire(request.out, ".prepare.lock");
  TRAIN_RETURN_IF_ERROR(lock);
  TRAIN_RETURN_IF_ERROR(remove_hidden(request.out));
  ReadProgress progress(callback, input_bytes);
  EncodedReading reading(request, tokenizer, end_of_text, progress);
  SplitPlan plan;
  auto written = TRAIN_TRY(split_encoded(request, tokenizer, reading, plan));
  TRAIN_RETURN_IF_ERROR(
      publish_tokens(request,
                     {.tokenizer = fs::path(request.tokenizer).filename().string(),
                      .vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size()),
                      .end_of_text = static_cast<std::int64_t>(end_of_text)},
                     written.writers));
  PrepareReport report = token_report(written.census, plan, written.writers);
  report.input_bytes = input_bytes;
  report.notes = tokenizer.notes();
  report.replaced = reading.replaced();
  report.dropped = reading.drops().by_fault();
  return report;
}

}  // namespace train::data
