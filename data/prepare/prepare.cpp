#include "data/prepare/prepare.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "data/prepare/document_reader.hpp"
#include "data/prepare/prepare_encoded.hpp"
#include "data/prepare/prepare_parts.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_lock.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

Status read_all(const PrepareRequest& request, DocumentSink sink, DropCount& drops,
                const std::uint64_t& documents) {
  for (const fs::path& input : request.inputs) {
    sink.dropped = [&](storage::LineFault fault, const storage::InputRecord& record) {
      return drops.add(fault, input, record, documents);
    };
    TRAIN_RETURN_IF_ERROR(read_documents(input, request.document_separator, request.layout, sink));
  }
  return drops.check(documents);
}

/// `utf8_breaks`: invalid sequences in all documents.
Result<TokenCensus> take_census(const PrepareRequest& request, DropCount& drops,
                                ReadProgress& progress, std::uint64_t& utf8_breaks) {
  TokenCensus census;
  std::uint64_t length = 0;
  storage::Utf8Breaks breaks;
  const DocumentSink sink{
      .text = [&](std::span<const std::byte> piece) -> Status {
        length += piece.size();
        breaks.add({reinterpret_cast<const char*>(piece.data()), piece.size()});
        return {};
      },
      .end = [&]() -> Status {
        breaks.finish();
        const std::uint64_t tokens = std::exchange(length, 0) + 1;
        census.tokens += tokens;
        if (document_hash(request.seed, census.documents++) < request.val_fraction) {
          census.hashed_tokens += tokens;
        }
        return {};
      },
      .consumed = [&](std::uint64_t bytes) { progress.advance(bytes); },
  };
  TRAIN_RETURN_IF_ERROR(read_all(request, sink, drops, census.documents));
  utf8_breaks = breaks.count();
  return census;
}

/// Second pass: sends every token to its split.
class Splitter {
 public:
  Splitter(const PrepareRequest& request, const SplitPlan& plan, TokenWriter& train,
           TokenWriter& val)
      : request_(request), plan_(plan), train_(train), val_(val) {
    choose();
  }

  Status text(std::span<const std::byte> piece) {
    if (plan_.whole_documents) {
      return target_->add(piece);
    }
    const std::uint64_t before_tail =
        plan_.tail_begin > position() ? plan_.tail_begin - position() : 0;
    const std::size_t head = std::min<std::size_t>(piece.size(), before_tail);
    TRAIN_RETURN_IF_ERROR(train_.add(piece.first(head)));
    return val_.add(piece.subspan(head));
  }

  Status end() {
    if (!plan_.whole_documents) {
      target_ = position() < plan_.tail_begin ? &train_ : &val_;
    }
    TRAIN_RETURN_IF_ERROR(target_->add_token(static_cast<std::uint32_t>(kBytesEndOfText)));
    ++documents_;
    choose();
    return {};
  }

  [[nodiscard]] const std::uint64_t& documents() const { return documents_; }

 private:
  [[nodiscard]] std::uint64_t position() const { return train_.tokens() + val_.tokens(); }
  void choose() {
    target_ = document_hash(request_.seed, documents_) < request_.val_fraction ? &val_ : &train_;
  }

  const PrepareRequest& request_;
  SplitPlan plan_;
  TokenWriter& train_;
  TokenWriter& val_;
  TokenWriter* target_ = nullptr;
  std::uint64_t documents_ = 0;
};

Result<std::uint64_t> input_bytes(const PrepareRequest& request) {
  std::uint64_t total = 0;
  for (const fs::path& input : request.inputs) {
    std::error_code code;
    if (!fs::is_regular_file(input, code)) {
      return code ? storage::os_error(storage::Access::read, input, code.value())
                  : user_error(fmt::format(
                        "input {}: {}; give text or .jsonl files", input.string(),
                        fs::exists(input, code) ? "not a regular file" : "no such file"));
    }
    total += fs::file_size(input, code);
    if (code) {
      return storage::os_error(storage::Access::read, input, code.value());
    }
  }
  return total;
}

Status check_request(const PrepareRequest& request) {
  if (request.inputs.empty()) {
    return user_error("no input; use --input FILE");
  }
  if (request.out.empty()) {
    return user_error("no output directory; use --out DIR");
  }
  if (!(request.val_fraction > 0.0 && request.val_fraction < 1.0)) {
    return user_error(
        fmt::format("--val-fraction {} must be above 0 and below 1", request.val_fraction));
  }
  return {};
}

/// Checks that `out` can be written or made, and makes nothing: before the text is read, which may
/// take long, and may be refused.
Status check_writable(const fs::path& out) {
  std::error_code unknown;
  fs::path nearest = TRAIN_TRY(storage::absolute_path(out));
  while (nearest.has_relative_path() && !fs::exists(nearest, unknown)) {
    nearest = nearest.parent_path();
  }
  if (!fs::is_directory(nearest, unknown)) {
    return storage::make_directory(out);  // A file is in the way.
  }
  return ::access(nearest.c_str(), W_OK | X_OK) == 0
             ? Status()
             : storage::os_error(storage::Access::write, out / "meta.json", errno);
}

Result<PrepareReport> write_tokens(const PrepareRequest& request, const TokenCensus& census,
                                   ReadProgress& progress) {
  auto writers = TRAIN_TRY(TokenWriters::create(request.out, 2));
  TokenWriter& train = writers.train;
  TokenWriter& val = writers.val;
  const SplitPlan plan = make_split_plan(census, request.val_fraction);
  Splitter splitter(request, plan, train, val);
  const DocumentSink sink{
      .text = [&](std::span<const std::byte> piece) { return splitter.text(piece); },
      .end = [&] { return splitter.end(); },
      .consumed = [&](std::uint64_t bytes) { progress.advance(bytes); },
  };
  DropCount drops(request);
  TRAIN_RETURN_IF_ERROR(read_all(request, sink, drops, splitter.documents()));
  if (splitter.documents() != census.documents || train.tokens() + val.tokens() != census.tokens) {
    return failure("the input changed while it was read; prepare again");
  }
  TRAIN_RETURN_IF_ERROR(publish_tokens(request,
                                       {.tokenizer = request.tokenizer,
                                        .vocab_size = kBytesVocabSize,
                                        .end_of_text = kBytesEndOfText},
                                       writers));
  return token_report(census, plan, writers);
}

}  // namespace

Result<PrepareReport> prepare_dataset(const PrepareRequest& request,
                                      const PrepareProgress& callback) {
  TRAIN_RETURN_IF_ERROR(check_request(request));
  const auto total = TRAIN_TRY(input_bytes(request));
  const auto earlier = TRAIN_TRY(earlier_files(request.out));
  if (holds_data(request.out, earlier) && !request.force) {
    return user_error(
        fmt::format("{} already holds data ({}); use --force to replace it, or another --out",
                    request.out.string(), earlier.front().filename().string()));
  }
  TRAIN_RETURN_IF_ERROR(check_writable(request.out));
  if (request.tokenizer != "bytes") {
    return prepare_encoded(request, total, callback);
  }
  ReadProgress progress(callback, 2 * total);
  DropCount drops(request);
  std::uint64_t utf8_breaks = 0;
  const auto census = TRAIN_TRY(take_census(request, drops, progress, utf8_breaks));
  TRAIN_RETURN_IF_ERROR(storage::make_directory(request.out));
  const auto lock = storage::FileLock::acquire(request.out, ".prepare.lock");
  TRAIN_RETURN_IF_ERROR(lock);
  TRAIN_RETURN_IF_ERROR(remove_hidden(request.out));
  auto report = write_tokens(request, census, progress);
  if (report) {
    report->input_bytes = total;
    report->dropped = drops.by_fault();
    report->kept_breaks = utf8_breaks;
  }
  return report;
}

}  // namespace train::data
