#include "storage/tokens/prepare_encoded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "storage/files/copy_file.hpp"
#include "storage/files/file_lock.hpp"
#include "storage/tokenizer/file_names.hpp"
#include "storage/tokenizer/text_encoder.hpp"
#include "storage/tokenizer/tokenizer.hpp"
#include "storage/tokens/document_reader.hpp"
#include "storage/tokens/prepare_parts.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

using TokenList = std::vector<std::uint32_t>;

/// Documents are encoded so many bytes at a time, by all threads.
constexpr std::size_t batch_bytes = std::size_t{8} << 20;
constexpr std::int64_t short_token_limit = 65536;
constexpr const char* tokenizer_folder = "tokenizer";

/// A document's tokens, its end-of-text among them, and the bytes of its text.
using TakeDocument = std::function<Status(const TokenList& tokens, std::uint64_t text_bytes)>;

/// Reads all inputs and gives every document to `take`, in order.
class EncodedReading {
 public:
  EncodedReading(const PrepareRequest& request, const Tokenizer& tokenizer,
                 std::uint32_t end_of_text, ReadProgress& progress)
      : request_(request),
        encoder_(tokenizer, static_cast<unsigned>(request.threads)),
        end_of_text_(end_of_text),
        progress_(progress) {}

  Status run(const TakeDocument& take) {
    const DocumentSink sink{
        .text = [&](std::span<const std::byte> piece) { return add(piece); },
        .end = [&] { return end(take); },
        .consumed = [&](std::uint64_t bytes) { progress_.advance(bytes); },
    };
    for (const fs::path& input : request_.inputs) {
      input_ = input;
      TRAIN_RETURN_IF_ERROR(read_documents(input, request_.document_separator, sink));
    }
    return flush(take);
  }

  /// Breaks in UTF-8 that were read as U+FFFD in all readings so far.
  [[nodiscard]] std::uint64_t replaced() const { return replaced_; }

 private:
  Status add(std::span<const std::byte> piece) {
    if (document_.size() + piece.size() > document_limit_bytes) {
      return user_error(
          fmt::format("{}: a document of more than {} bytes; cut it with --document-separator",
                      input_.string(), document_limit_bytes));
    }
    document_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return {};
  }

  Status end(const TakeDocument& take) {
    waiting_bytes_ += document_.size();
    waiting_.push_back(std::exchange(document_, {}));
    return waiting_bytes_ >= batch_bytes ? flush(take) : Status{};
  }

  Status flush(const TakeDocument& take) {
    const std::vector<std::string_view> texts(waiting_.begin(), waiting_.end());
    auto encoded = encoder_.encode(texts, /*add_special_tokens=*/true);
    TRAIN_RETURN_IF_ERROR(encoded);
    replaced_ += encoded->replaced_count;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      TokenList& tokens = encoded->ids[i];
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
  std::uint64_t replaced_ = 0;
};

/// Sends every token to its split.
class EncodedSplitter {
 public:
  EncodedSplitter(const PrepareRequest& request, const SplitPlan& plan, const Tokenizer& tokenizer,
                  TokenWriter& train, TokenWriter& val)
      : request_(request), plan_(plan), tokenizer_(tokenizer), train_(train), val_(val) {}

  Status add(const TokenList& tokens, std::uint64_t text_bytes) {
    const bool hashed = document_hash(request_.seed, documents_++) < request_.val_fraction;
    if (plan_.whole_documents) {
      TokenWriter& target = hashed ? val_ : train_;
      target.count_text(text_bytes);
      return write(tokens, target);
    }
    const std::uint64_t position = train_.tokens() + val_.tokens();
    const std::uint64_t before = plan_.tail_begin > position ? plan_.tail_begin - position : 0;
    const auto head = std::min<std::size_t>(tokens.size(), before);
    const std::span<const std::uint32_t> all(tokens);
    const auto tail = all.subspan(head);
    val_.count_text(head == 0 ? text_bytes : tokenizer_.decode(tail, /*skip_special=*/true).size());
    TRAIN_RETURN_IF_ERROR(write(all.first(head), train_));
    return write(tail, val_);
  }

  [[nodiscard]] std::uint64_t documents() const { return documents_; }

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
  TokenWriter& train_;
  TokenWriter& val_;
  std::uint64_t documents_ = 0;
};

/// The tokenizer's files, so that the data says what its tokens mean.
Status keep_tokenizer(const fs::path& tokenizer, const fs::path& out) {
  const fs::path to = out / tokenizer_folder;
  TRAIN_RETURN_IF_ERROR(remove_tree(to));
  TRAIN_RETURN_IF_ERROR(make_directory(to));
  std::error_code ignored;
  if (!fs::is_directory(tokenizer, ignored)) {
    return storage::copy_file(tokenizer, to / tokenizer.filename());
  }
  std::vector<fs::path> names(tokenizer_file_names.begin(), tokenizer_file_names.end());
  names.emplace_back("config.json");  // It may name the end-of-text.
  for (const auto& entry : fs::directory_iterator(tokenizer, ignored)) {
    if (entry.path().extension() == ".tiktoken") {
      names.push_back(entry.path().filename());
    }
  }
  for (const fs::path& name : names) {
    if (fs::is_regular_file(tokenizer / name, ignored)) {
      TRAIN_RETURN_IF_ERROR(storage::copy_file(tokenizer / name, to / name));
    }
  }
  return {};
}

Result<TokenCensus> take_encoded_census(const PrepareRequest& request, EncodedReading& reading) {
  TokenCensus census;
  TRAIN_RETURN_IF_ERROR(reading.run([&](const TokenList& tokens, std::uint64_t) -> Status {
    census.tokens += tokens.size();
    if (document_hash(request.seed, census.documents++) < request.val_fraction) {
      census.hashed_tokens += tokens.size();
    }
    return {};
  }));
  if (census.documents == 0) {
    return user_error(fmt::format("{}: no text in the input{}; give a file that is not empty",
                                  request.inputs.front().string(),
                                  request.inputs.size() > 1 ? "s" : ""));
  }
  return census;
}

}  // namespace

fs::path kept_tokenizer(const fs::path& data) {
  const fs::path folder = data / tokenizer_folder;
  std::error_code ignored;
  if (holds_tokenizer(folder)) {
    return folder;
  }
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    return entry.path();
  }
  return {};
}

Result<PrepareReport> prepare_encoded(const PrepareRequest& request, std::uint64_t input_bytes,
                                      const PrepareProgress& callback) {
  const auto tokenizer = Tokenizer::load(request.tokenizer);
  TRAIN_RETURN_IF_ERROR(tokenizer);
  const auto end_of_text = tokenizer->end_of_text();
  if (!end_of_text) {
    return user_error(fmt::format(
        "{}: it names no end-of-text token, which ends every document; name it as eos_token in "
        "tokenizer_config.json",
        request.tokenizer));
  }
  ReadProgress progress(callback, 2 * input_bytes);
  EncodedReading reading(request, *tokenizer, *end_of_text, progress);
  const auto census = take_encoded_census(request, reading);
  TRAIN_RETURN_IF_ERROR(census);
  TRAIN_RETURN_IF_ERROR(make_directory(request.out));
  const auto lock = FileLock::acquire(request.out, ".prepare.lock");
  TRAIN_RETURN_IF_ERROR(lock);
  TRAIN_RETURN_IF_ERROR(remove_hidden(request.out));
  auto train_file = AtomicFile::create(request.out / "train.bin");
  auto val_file = AtomicFile::create(request.out / "val.bin");
  if (!train_file || !val_file) {
    return train_file ? val_file.error() : train_file.error();
  }
  const auto vocab = static_cast<std::int64_t>(tokenizer->vocab_size());
  const std::int64_t token_bytes = vocab <= short_token_limit ? 2 : 4;
  TokenWriter train(std::move(*train_file), token_bytes);
  TokenWriter val(std::move(*val_file), token_bytes);
  const SplitPlan plan = make_split_plan(*census, request.val_fraction);
  EncodedSplitter splitter(request, plan, *tokenizer, train, val);
  TRAIN_RETURN_IF_ERROR(reading.run([&](const TokenList& tokens, std::uint64_t text_bytes) {
    return splitter.add(tokens, text_bytes);
  }));
  if (splitter.documents() != census->documents ||
      train.tokens() + val.tokens() != census->tokens) {
    return failure("the input changed while it was read; prepare again");
  }
  TRAIN_RETURN_IF_ERROR(keep_tokenizer(request.tokenizer, request.out));
  TRAIN_RETURN_IF_ERROR(
      publish_tokens(request.out,
                     {.tokenizer = fs::path(request.tokenizer).filename().string(),
                      .vocab_size = vocab,
                      .end_of_text = static_cast<std::int64_t>(*end_of_text)},
                     train, val));
  PrepareReport report;
  report.documents = census->documents;
  report.input_bytes = input_bytes;
  report.train_tokens = train.tokens();
  report.val_tokens = val.tokens();
  report.val_bytes = val.text_bytes();
  report.whole_documents = plan.whole_documents;
  report.replaced = reading.replaced() / 2;  // read twice
  return report;
}

}  // namespace train::storage
