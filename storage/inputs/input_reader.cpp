#include "storage/inputs/input_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "storage/inputs/binary_content.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kHeadBytes = std::size_t{256} << 10;
constexpr std::size_t kRecordPieceBytes = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Source whose beginning was already read.
class HeadedSource : public ByteSource {
 public:
  HeadedSource(std::string head, std::unique_ptr<ByteSource> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}

  Result<std::size_t> read(std::span<char> out) override {
    if (given_ == head_.size()) {
      return rest_->read(out);
    }
    const std::size_t size = std::min(out.size(), head_.size() - given_);
    std::copy_n(head_.data() + given_, size, out.data());
    given_ += size;
    return size;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return rest_->consumed(); }

 private:
  std::string head_;
  std::unique_ptr<ByteSource> rest_;
  std::size_t given_ = 0;
};

/// Reads up to `kHeadBytes`; less at the end of the source.
Result<std::string> read_head(ByteSource& source) {
  std::string head(kHeadBytes, '\0');
  std::size_t size = 0;
  while (size < head.size()) {
    const auto got = TRAIN_TRY(source.read(std::span(head).subspan(size)));
    if (got == 0) {
      break;
    }
    size += got;
  }
  head.resize(size);
  return head;
}

std::unique_ptr<RecordCutter> cutter_of(InputLayout layout) {
  switch (layout) {
    case InputLayout::json_values:
      return make_value_cutter(kRecordLimitBytes);
    case InputLayout::csv:
      return make_table_cutter(',', kRecordLimitBytes);
    case InputLayout::tsv:
      return make_table_cutter('\t', kRecordLimitBytes);
    case InputLayout::semicolons:
      return make_table_cutter(';', kRecordLimitBytes);
    case InputLayout::pipes:
      return make_table_cutter('|', kRecordLimitBytes);
    case InputLayout::text:
    case InputLayout::json_lines:
      break;
  }
  return make_line_cutter(kRecordLimitBytes);
}

}  // namespace

Error no_text_error(const std::filesystem::path& path, double unreadable) {
  return user_error(
      fmt::format("{}: {:.0f} % of its characters are invalid UTF-8 or control characters: it is "
                  "not text, or in another encoding; convert it to UTF-8 (`iconv -f ENCODING -t "
                  "UTF-8`), or use --input-format text to take its bytes as they are",
                  path.string(), 100.0 * unreadable));
}

Result<InputReader> InputReader::open(const std::filesystem::path& path, SaidLayout said) {
  auto source = TRAIN_TRY(open_byte_source(path));
  auto head = TRAIN_TRY(read_head(*source));
  const bool marked = head.starts_with(kByteOrderMark);
  const InputHead seen{.text = std::string_view(head).substr(marked ? kByteOrderMark.size() : 0),
                       .is_all = head.size() < kHeadBytes,
                       .ending = content_ending(path)};
  const InputLayout layout = layout_of(seen, said);
  if (said != SaidLayout::text) {
    if (const std::string binary = binary_content(head); !binary.empty()) {
      return user_error(fmt::format("{}: holds {}", path.string(), binary));
    }
    const double unreadable = layout == InputLayout::text ? unreadable_share(head) : 0.0;
    if (unreadable > kUnreadableShareMost) {
      return no_text_error(path, unreadable);
    }
  }
  if (marked && layout != InputLayout::text) {
    head.erase(0, kByteOrderMark.size());
  }
  return InputReader(std::make_unique<HeadedSource>(std::move(head), std::move(source)), layout);
}

Status InputReader::read_records(const TakeRecord& take) {
  const auto cutter = cutter_of(layout_);
  std::vector<char> piece(kRecordPieceBytes);
  while (true) {
    const auto size = TRAIN_TRY(bytes_->read(piece));
    if (size == 0) {
      return cutter->finish(take);
    }
    TRAIN_RETURN_IF_ERROR(cutter->feed({piece.data(), size}, take));
  }
}

}  // namespace train::storage
