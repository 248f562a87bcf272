#include "storage/tokens/document_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "storage/files/byte_source.hpp"

namespace train::storage {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

/// A source read front to back in pieces.
class SequentialFile {
 public:
  explicit SequentialFile(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  /// Appends the next piece to `buffer`; returns its size, 0 at the end.
  Result<std::size_t> append_to(std::string& buffer) {
    const std::size_t old_size = buffer.size();
    buffer.resize(old_size + chunk_bytes);
    const auto size = source_->read(std::span(buffer).subspan(old_size));
    buffer.resize(old_size + (size ? *size : 0));
    return size;
  }
  /// Bytes of the file since the last call.
  std::uint64_t newly_consumed() {
    const std::uint64_t before = std::exchange(reported_, source_->consumed());
    return reported_ - before;
  }

 private:
  std::unique_ptr<ByteSource> source_;
  std::uint64_t reported_ = 0;
};

/// Cuts a stream at a separator that may lie across pieces.
class Cutter {
 public:
  Cutter(std::string_view separator, const DocumentSink& sink)
      : separator_(separator), sink_(sink) {}

  /// Consumes what can be decided of `buffer`; the rest stays for the next call.
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
    // A separator may have begun at the end of the buffer.
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

Status read_text(SequentialFile& file, std::string_view separator, const DocumentSink& sink) {
  Cutter cutter(separator, sink);
  std::string buffer;
  while (true) {
    const auto got = file.append_to(buffer);
    TRAIN_RETURN_IF_ERROR(got);
    TRAIN_RETURN_IF_ERROR(cutter.feed(buffer, *got == 0));
    if (*got == 0) {
      return {};
    }
    sink.consumed(file.newly_consumed());
  }
}

/// Keeps the top-level member "text" of an object and nothing else, so that a line costs no more
/// memory than its text, whatever other members it has.
class TextHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (depth_ == 1 && at_text_) {
      text_ = std::move(value);
    }
    return depth_ > 0;
  }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return depth_ > 0 && enter(); }
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

 private:
  [[nodiscard]] bool other() const { return depth_ > 0; }  // Outside an object nothing is found.
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
};

Status emit_line(std::string_view line, const std::string& place, const DocumentSink& sink) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
    return {};
  }
  TextHandler handler;
  if (!nlohmann::json::sax_parse(line.begin(), line.end(), &handler)) {
    return user_error(fmt::format(
        "{}: not a JSON object; each line of a .jsonl file has to be one with a member \"text\"",
        place));
  }
  if (!handler.text()) {
    return user_error(fmt::format(
        "{}: no member \"text\" that is a string; add it, or say --row-length T for conversations, "
        "prompts or pairs",
        place));
  }
  if (handler.text()->empty()) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(sink.text(std::as_bytes(std::span(*handler.text()))));
  return sink.end();
}

Status read_lines(SequentialFile& file, const std::string& name, const DocumentSink& sink) {
  std::string buffer;
  std::uint64_t line = 1;
  while (true) {
    const auto got = file.append_to(buffer);
    TRAIN_RETURN_IF_ERROR(got);
    const bool at_end = *got == 0;
    std::size_t done = 0;
    std::size_t search_from = buffer.size() - *got;  // What is older holds no end of line.
    std::size_t end = 0;
    while ((end = buffer.find('\n', search_from)) != std::string::npos) {
      TRAIN_RETURN_IF_ERROR(emit_line(std::string_view(buffer).substr(done, end - done),
                                      fmt::format("{}:{}", name, line++), sink));
      done = search_from = end + 1;
    }
    buffer.erase(0, done);
    if (buffer.size() > jsonl_line_limit_bytes) {
      return user_error(
          fmt::format("{}:{}: a line of more than {} MiB; give so long a document as a text file",
                      name, line, jsonl_line_limit_bytes >> 20U));
    }
    if (at_end) {
      return emit_line(buffer, fmt::format("{}:{}", name, line), sink);
    }
    sink.consumed(file.newly_consumed());
  }
}

}  // namespace

Status read_documents(const std::filesystem::path& path, std::string_view separator,
                      const DocumentSink& sink) {
  auto source = open_byte_source(path);
  TRAIN_RETURN_IF_ERROR(source);
  SequentialFile file(std::move(*source));
  return holds_json_lines(path) ? read_lines(file, path.string(), sink)
                                : read_text(file, separator, sink);
}

}  // namespace train::storage
