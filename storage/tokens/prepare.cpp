#include "storage/tokens/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <system_error>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/file_lock.hpp"
#include "storage/tokens/dataset_facts.hpp"
#include "storage/tokens/document_reader.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

/// A number in [0, 1) that depends on the document's number and the seed alone.
double document_hash(std::uint64_t seed, std::uint64_t document) {
  std::uint64_t value = seed * 0x9ddfea08eb382d69U + document + 0x2545f4914f6cdd1dU;
  for (int round = 0; round < 3; ++round) {
    value ^= value >> 31U;
    value *= 0xd1342543de82ef95U;
  }
  value ^= value >> 32U;
  return static_cast<double>(value >> 11U) * 0x1p-53;
}

/// What the first reading finds out.
struct Census {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t hashed_tokens = 0;  ///< Of the documents that the hash gives to validation.

  bool operator==(const Census&) const = default;
};

struct Plan {
  bool whole_documents = true;
  std::uint64_t tail_begin = 0;  ///< If not: the first validation token of all.
};

Plan make_plan(const Census& census, double val_fraction) {
  const double wanted = val_fraction * static_cast<double>(census.tokens);
  const auto hashed = static_cast<double>(census.hashed_tokens);
  if (census.hashed_tokens > 0 && census.hashed_tokens < census.tokens && hashed >= 0.5 * wanted &&
      hashed <= 2.0 * wanted) {
    return {};
  }
  const auto rounded = static_cast<std::uint64_t>(std::llround(wanted));
  const std::uint64_t tail = std::clamp<std::uint64_t>(rounded, 1, census.tokens - 1);
  return {.whole_documents = false, .tail_begin = census.tokens - tail};
}

/// Turns bytes into uint16 tokens, little-endian, and writes them in large pieces.
class TokenWriter {
 public:
  explicit TokenWriter(AtomicFile file) : file_(std::move(file)) { buffer_.reserve(buffer_bytes); }

  Status add(std::span<const std::byte> text) {
    for (const std::byte byte : text) {
      TRAIN_RETURN_IF_ERROR(add_token(std::to_integer<unsigned>(byte)));
    }
    text_bytes_ += text.size();
    return {};
  }
  Status add_end_of_text() { return add_token(static_cast<unsigned>(bytes_end_of_text)); }

  /// All bytes durable under the hidden name.
  Status finish() {
    TRAIN_RETURN_IF_ERROR(flush());
    return file_.sync();
  }
  Status commit() { return file_.commit(); }

  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
  [[nodiscard]] std::uint64_t text_bytes() const { return text_bytes_; }
  /// Of all bytes of the file. REQUIRES: finish() before.
  [[nodiscard]] std::string digest() const { return digest_.finish(); }

 private:
  Status add_token(unsigned token) {
    buffer_.push_back(static_cast<char>(token & 0xffU));
    buffer_.push_back(static_cast<char>(token >> 8U));
    ++tokens_;
    return buffer_.size() >= buffer_bytes ? flush() : Status{};
  }
  Status flush() {
    TRAIN_RETURN_IF_ERROR(file_.write(buffer_));
    digest_.update(buffer_);
    buffer_.clear();
    return {};
  }

  AtomicFile file_;
  StreamingDigest digest_;
  std::string buffer_;
  std::uint64_t tokens_ = 0;
  std::uint64_t text_bytes_ = 0;
};

/// Counts progress over both readings.
class Progress {
 public:
  Progress(const PrepareProgress& callback, std::uint64_t total)
      : callback_(callback), total_(total) {}
  void advance(std::uint64_t bytes) {
    done_ += bytes;
    if (callback_) {
      callback_(std::min(done_, total_), total_);
    }
  }

 private:
  const PrepareProgress& callback_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
};

Status read_all(const PrepareRequest& request, const DocumentSink& sink) {
  for (const fs::path& input : request.inputs) {
    TRAIN_RETURN_IF_ERROR(read_documents(input, request.document_separator, sink));
  }
  return {};
}

Result<Census> take_census(const PrepareRequest& request, Progress& progress) {
  Census census;
  std::uint64_t length = 0;
  const DocumentSink sink{
      .text = [&](std::span<const std::byte> piece) -> Status {
        length += piece.size();
        return {};
      },
      .end = [&]() -> Status {
        const std::uint64_t tokens = std::exchange(length, 0) + 1;
        census.tokens += tokens;
        if (document_hash(request.seed, census.documents++) < request.val_fraction) {
          census.hashed_tokens += tokens;
        }
        return {};
      },
      .consumed = [&](std::uint64_t bytes) { progress.advance(bytes); },
  };
  TRAIN_RETURN_IF_ERROR(read_all(request, sink));
  return census;
}

/// The second reading: sends every token to its split.
class Splitter {
 public:
  Splitter(const PrepareRequest& request, const Plan& plan, TokenWriter& train, TokenWriter& val)
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
    TRAIN_RETURN_IF_ERROR(target_->add_end_of_text());
    ++documents_;
    choose();
    return {};
  }

  [[nodiscard]] std::uint64_t documents() const { return documents_; }

 private:
  [[nodiscard]] std::uint64_t position() const { return train_.tokens() + val_.tokens(); }
  void choose() {
    target_ = document_hash(request_.seed, documents_) < request_.val_fraction ? &val_ : &train_;
  }

  const PrepareRequest& request_;
  Plan plan_;
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
      return code ? os_error(Access::read, input, code.value())
                  : user_error(fmt::format(
                        "input {}: {}; give text or .jsonl files", input.string(),
                        fs::exists(input, code) ? "not a regular file" : "no such file"));
    }
    total += fs::file_size(input, code);
    if (code) {
      return os_error(Access::read, input, code.value());
    }
  }
  return total;
}

Status check_request(const PrepareRequest& request) {
  if (request.inputs.empty()) {
    return user_error("no input; say --input FILE");
  }
  if (request.tokenizer != "bytes") {
    return user_error(
        fmt::format("tokenizer \"{}\" is unknown; say --tokenizer bytes", request.tokenizer));
  }
  if (request.out.empty()) {
    return user_error("no output directory; say --out DIR");
  }
  if (!(request.val_fraction > 0.0 && request.val_fraction < 1.0)) {
    return user_error(
        fmt::format("--val-fraction {} has to lie above 0 and below 1", request.val_fraction));
  }
  return {};
}

/// Token files of an earlier run in `directory`, meta.json first.
Result<std::vector<fs::path>> earlier_files(const fs::path& directory) {
  const auto names = entry_names(directory);
  TRAIN_RETURN_IF_ERROR(names);
  std::vector<fs::path> found;
  for (const std::string& name : *names) {
    const bool tokens = name.ends_with(".bin") && (name.starts_with("train") || name == "val.bin");
    if (name == facts_file_name) {
      // First: a crash in between must not leave facts about files that are gone.
      found.insert(found.begin(), directory / name);
    } else if (tokens) {
      found.push_back(directory / name);
    }
  }
  return found;
}

/// Hidden files of a run that was killed. REQUIRES: the lock is held.
Status remove_hidden(const fs::path& directory) {
  const auto names = entry_names(directory);
  TRAIN_RETURN_IF_ERROR(names);
  for (const std::string& name : *names) {
    if (name.starts_with(".train.bin.tmp-") || name.starts_with(".val.bin.tmp-")) {
      TRAIN_RETURN_IF_ERROR(remove_tree(directory / name));
    }
  }
  return {};
}

/// Old facts go first and new ones come last, so facts never describe other files (ST-6).
Status publish(const PrepareRequest& request, TokenWriter& train, TokenWriter& val) {
  TRAIN_RETURN_IF_ERROR(train.finish());
  TRAIN_RETURN_IF_ERROR(val.finish());
  const auto earlier = earlier_files(request.out);
  TRAIN_RETURN_IF_ERROR(earlier);
  for (const fs::path& path : *earlier) {
    TRAIN_RETURN_IF_ERROR(remove_tree(path));
    TRAIN_RETURN_IF_ERROR(fsync_directory(request.out));
  }
  TRAIN_RETURN_IF_ERROR(train.commit());
  TRAIN_RETURN_IF_ERROR(val.commit());
  return write_dataset_facts(request.out,
                             {.tokenizer = request.tokenizer,
                              .vocab_size = bytes_vocab_size,
                              .end_of_text = bytes_end_of_text,
                              .train_tokens = static_cast<std::int64_t>(train.tokens()),
                              .val_tokens = static_cast<std::int64_t>(val.tokens()),
                              .val_bytes = static_cast<std::int64_t>(val.text_bytes()),
                              .train_digest = train.digest(),
                              .val_digest = val.digest(),
                              .token_bytes = 2});
}

Result<PrepareReport> write_tokens(const PrepareRequest& request, const Census& census,
                                   Progress& progress) {
  auto train_file = AtomicFile::create(request.out / "train.bin");
  auto val_file = AtomicFile::create(request.out / "val.bin");
  if (!train_file || !val_file) {
    return train_file ? val_file.error() : train_file.error();
  }
  TokenWriter train(std::move(*train_file));
  TokenWriter val(std::move(*val_file));
  const Plan plan = make_plan(census, request.val_fraction);
  Splitter splitter(request, plan, train, val);
  const DocumentSink sink{
      .text = [&](std::span<const std::byte> piece) { return splitter.text(piece); },
      .end = [&] { return splitter.end(); },
      .consumed = [&](std::uint64_t bytes) { progress.advance(bytes); },
  };
  TRAIN_RETURN_IF_ERROR(read_all(request, sink));
  if (splitter.documents() != census.documents || train.tokens() + val.tokens() != census.tokens) {
    return failure("the input changed while it was read; prepare again");
  }
  TRAIN_RETURN_IF_ERROR(publish(request, train, val));
  PrepareReport report;
  report.documents = census.documents;
  report.train_tokens = train.tokens();
  report.val_tokens = val.tokens();
  report.val_bytes = val.text_bytes();
  report.whole_documents = plan.whole_documents;
  return report;
}

}  // namespace

Result<PrepareReport> prepare_dataset(const PrepareRequest& request,
                                      const PrepareProgress& callback) {
  TRAIN_RETURN_IF_ERROR(check_request(request));
  const auto total = input_bytes(request);
  TRAIN_RETURN_IF_ERROR(total);
  const auto earlier = earlier_files(request.out);
  TRAIN_RETURN_IF_ERROR(earlier);
  if (!earlier->empty() && !request.force) {
    return user_error(
        fmt::format("{} already holds data ({}); say --force to replace it, or "
                    "another --out",
                    request.out.string(), earlier->front().filename().string()));
  }
  Progress progress(callback, 2 * *total);
  const auto census = take_census(request, progress);
  TRAIN_RETURN_IF_ERROR(census);
  if (census->documents == 0) {
    return user_error(fmt::format("{}: no text in the input{}; give a file that is not empty",
                                  request.inputs.front().string(),
                                  request.inputs.size() > 1 ? "s" : ""));
  }
  TRAIN_RETURN_IF_ERROR(make_directory(request.out));
  const auto lock = FileLock::acquire(request.out, ".prepare.lock");
  TRAIN_RETURN_IF_ERROR(lock);
  TRAIN_RETURN_IF_ERROR(remove_hidden(request.out));
  auto report = write_tokens(request, *census, progress);
  if (report) {
    report->input_bytes = *total;
  }
  return report;
}

}  // namespace train::storage
