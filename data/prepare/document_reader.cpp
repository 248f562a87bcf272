#include "data/prepare/document_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "storage/inputs/input_reader.hpp"

namespace train::data {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

/// Source read sequentially in pieces.
class SequentialFile {
 public:
  explicit SequentialFile(storage::ByteSource& source) : source_(source) {}

  /// Appends the next piece to `buffer`; returns its size, 0 at the end.
  Result<std::size_t> append_to(std::string& buffer) {
    const std::size_t old_size = buffer.size();
    buffer.resize(old_size + kChunkBytes);
    auto size = source_.read(std::span(buffer).subspan(old_size));
    buffer.resize(old_size + (size ? *size : 0));
    return size;
  }

 private:
  storage::ByteSource& source_;
};

/// Reports to the sink how far the file was read.
class Consumption {
 public:
  Consumption(const storage::ByteSource& source, const DocumentSink& sink)
      : source_(source), sink_(sink) {}
  void report() {
    const std::uint64_t before = std::exchange(reported_, source_.consumed());
    if (reported_ > before) {
      sink_.consumed(reported_ - before);
    }
  }

 private:
  const storage::ByteSource& source_;
  const DocumentSink& sink_;
  std::uint64_t reported_ = 0;
};

/// Splits a stream at a separator that may cross pieces.
class Cutter {
 public:
  Cutter(std::string_view separator, const DocumentSink& sink)
      : separator_(separator), sink_(sink) {}

  /// Consumes the decidable part of `buffer`; the rest waits for the next call.
  Status feed(std::string& buffer, bool at_end) {
    std::size_t done = 0;
    while (!separator_.empty()) {
      const std::size_t found = buffer.find(separator_, done);
      if (found == std::string::npos) {
        break;
      }
      TRAIN_RETURN_IF_ERROR(emit(std::string_view(buffer).substr(done, found - done)));
      TRAIN_RETURN_IF_ERROR(finish());
      done = found + separator_.size();
    }
    // A separator may begin at the end of the buffer.
    const std::size_t undecided =
        at_end || separator_.empty() ? 0 : std::min(separator_.size() - 1, buffer.size() - done);
    TRAIN_RETURN_IF_ERROR(
        emit(std::string_view(buffer).substr(done, buffer.size() - done - undecided)));
    buffer.erase(0, buffer.size() - undecided);
    return at_end ? finish() : Status{};
  }

 private:
  Status emit(std::string_view text) {
    if (text.empty()) {
      return {};
    }
    open_ = true;
    return sink_.text(std::as_bytes(std::span(text)));
  }
  Status finish() { return std::exchange(open_, false) ? sink_.end() : Status{}; }

  std::string_view separator_;
  const DocumentSink& sink_;
  bool open_ = false;
};

Status read_text(storage::ByteSource& bytes, std::string_view separator, const DocumentSink& sink) {
  SequentialFile file(bytes);
  Consumption consumption(bytes, sink);
  Cutter cutter(separator, sink);
  std::string buffer;
  while (true) {
    const auto got = TRAIN_TRY(file.append_to(buffer));
    TRAIN_RETURN_IF_ERROR(cutter.feed(buffer, got == 0));
    if (got == 0) {
      return {};
    }
    consumption.report();
  }
}

/// Keeps only the top-level member "text" of an object, so that a line takes no more memory than
/// its text, whatever other members it has.
class TextHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override {
    if (at_member()) {
      text_.reset();
      fault_ = storage::LineFault::null_text;
    }
    return depth_ > 0;
  }
  bool boolean(bool) override { return other_member(); }
  bool number_integer(number_integer_t) override { return other_member(); }
  bool number_unsigned(number_unsigned_t) override { return other_member(); }
  bool number_float(number_float_t, const string_t&) override { return other_member(); }
  bool binary(binary_t&) override { return other_member(); }
  bool string(string_t& value) override {
    if (at_member()) {
      text_ = std::move(value);
    }
    return depth_ > 0;
  }
  bool start_object(std::size_t) override {
    other_member();
    return enter();
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return other_member() && enter(); }
  bool end_array() override { return leave(); }
  bool key(string_t& value) override {
    if (depth_ == 1) {
      at_text_ = value == "text";
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  [[nodiscard]] const std::optional<std::string>& text() const { return text_; }
  /// Reason why there is no text.
  [[nodiscard]] storage::LineFault fault() const { return fault_; }

 private:
  [[nodiscard]] bool at_member() const { return depth_ == 1 && at_text_; }
  /// Handles a value that is not text. False: it is outside an object, where nothing is wanted.
  bool other_member() {
    if (at_member()) {
      text_.reset();
      fault_ = storage::LineFault::other_text;
    }
    return depth_ > 0;
  }
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::size_t depth_ = 0;
  bool at_text_ = false;
  std::optional<std::string> text_;
  storage::LineFault fault_ = storage::LineFault::no_text;
};

Status emit_record(const storage::InputRecord& record, const DocumentSink& sink) {
  if (record.fault) {
    return sink.dropped(*record.fault, record);
  }
  TextHandler handler;
  if (!nlohmann::json::sax_parse(record.text.begin(), record.text.end(), &handler)) {
    return sink.dropped(storage::json_fault(record.text), record);
  }
  if (!handler.text() || handler.text()->empty()) {
    return sink.dropped(handler.text() ? storage::LineFault::empty_text : handler.fault(), record);
  }
  TRAIN_RETURN_IF_ERROR(sink.text(std::as_bytes(std::span(*handler.text()))));
  return sink.end();
}

std::string_view record_name(storage::InputLayout layout) {
  return layout == storage::InputLayout::json_lines || layout == storage::InputLayout::json_values
             ? "records of JSON"
             : "rows of a table";
}

}  // namespace

Status read_documents(const std::filesystem::path& path, std::string_view separator,
                      storage::SaidLayout said, const DocumentSink& sink) {
  auto input = TRAIN_TRY(storage::InputReader::open(path, said));
  if (input.layout() == storage::InputLayout::text) {
    return read_text(input.bytes(), separator, sink);
  }
  if (!separator.empty()) {
    return user_error(
        fmt::format("{}: holds {}, each of which is a document of its own, and "
                    "--document-separator cuts texts; leave it out, or use --input-format text",
                    path.string(), record_name(input.layout())));
  }
  Consumption consumption(input.bytes(), sink);
  return input.read_records([&](const storage::InputRecord& record) {
    consumption.report();
    return emit_record(record, sink);
  });
}

}  // namespace train::data
