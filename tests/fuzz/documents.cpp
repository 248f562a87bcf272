// Texts that people want prepared: lines of JSON, or documents between separators.
#include "data/prepare/document_reader.hpp"

#include "tests/fuzz/scratch_directory.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

struct Read {
  Status status;
  std::size_t bytes = 0;
  std::size_t documents = 0;
};

Read read(const std::filesystem::path& path, std::string_view separator, storage::SaidLayout said) {
  Read result;
  std::size_t open = 0;
  const data::DocumentSink sink = {
      .text = [&](std::span<const std::byte> piece) -> Status {
        require(!piece.empty(), "a piece is never empty");
        open += piece.size();
        return {};
      },
      .end = [&]() -> Status {
        require(open > 0, "an empty document is not reported");
        result.bytes += open;
        open = 0;
        ++result.documents;
        return {};
      },
      .dropped = [](storage::LineFault, const storage::InputRecord& record) -> Status {
        require(record.line > 0, "lines count from 1");
        return {};
      },
      .consumed = [](std::uint64_t) {}};
  result.status = data::read_documents(path, separator, said, sink);
  require(!result.status || open == 0, "every document ends");
  return result;
}

/// The first line is the separator; "jsonl" for lines of JSON.
void run(std::string_view input) {
  static const ScratchDirectory directory;
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view first = input.substr(0, end);
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  const bool json = first == "jsonl";
  const auto path = directory.put(json ? "text.jsonl" : "text.txt", text);
  const Read all = read(path, json ? std::string_view() : first, storage::SaidLayout::nothing);
  if (!all.status) {
    require_readable(all.status.error());
    return;
  }
  require(all.bytes <= text.size(), "documents hold no more than their file");
  if (!json && first.empty()) {  // Whatever the text looks like, where it is said to be one.
    const Read whole = read(path, first, storage::SaidLayout::text);
    require(!whole.status || whole.bytes == text.size(),
            "without a separator all of the file is a document");
  }
}

std::vector<std::string> seeds() {
  return {"\nOne document.\n", "--\nOne--Two----Three--",
          "jsonl\n{\"text\": \"One\\n\\u00e4\\ud83d\\ude00\", \"id\": 1}\n\n{\"text\":\"\"}\n"};
}

}  // namespace

Target documents_target() {
  return {"documents",
          run,
          seeds,
          {"jsonl\n", "{\"text\":\"", "\"}\n", "\"text\"", "\\ud800", "\\u0000",
           "{\"a\":{\"text\":\"b\"}}", "[[[[", "1e400"}};
}

}  // namespace train::fuzz
