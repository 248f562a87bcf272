#include "data/rows/row_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "data/rows/row_files.hpp"
#include "data/tokens/lane_order.hpp"
#include "storage/files/input_file.hpp"

namespace train::data {
namespace {

Result<Mapping> mapped_file(const std::filesystem::path& path) {
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  return file.map();
}

/// Writes the index of rows, for documents already written.
class RowIndexWriter {
 public:
  RowIndexWriter(RowFiles files, RowPartWriter segments, RowPartWriter rows, bool in_pairs)
      : files_(std::move(files)),
        segments_(std::move(segments)),
        rows_(std::move(rows)),
        in_pairs_(in_pairs) {}

  Status add(const PackedRow& packed) {
    RowRecord row{.first_segment = segment_count_};
    for (const PackItem& item : packed) {
      if (in_pairs_) {
        for (const std::uint64_t side : {2 * item.group, 2 * item.group + 1}) {
          TRAIN_RETURN_IF_ERROR(add_segment(
              {.document = side, .start = 0, .length = files_.documents[side].length}, row));
        }
      } else {
        TRAIN_RETURN_IF_ERROR(
            add_segment({.document = item.group, .start = item.start, .length = item.length}, row));
      }
    }
    ++row_count_;
    trained_tokens_ += row.trained;
    return rows_.write_record(row);
  }

  Status commit() {
    TRAIN_RETURN_IF_ERROR(segments_.commit());
    return rows_.commit();
  }
  [[nodiscard]] std::uint64_t segments() const { return segment_count_; }
  [[nodiscard]] std::uint64_t rows() const { return row_count_; }
  [[nodiscard]] std::uint64_t trained_tokens() const { return trained_tokens_; }
  [[nodiscard]] std::string digests() const { return segments_.digest() + rows_.digest(); }

 private:
  Status add_segment(SegmentRecord segment, RowRecord& row) {
    const DocumentRecord document = files_.documents[segment.document];
    double weight = document.trained;
    segment.trained = document.trained;
    if (segment.length != document.length || files_.weights) {
      measure(document, segment, weight);
    }
    row.tokens += segment.length;
    row.trained += segment.trained;
    row.weight_sum += weight;
    ++segment_count_;
    return segments_.write_record(segment);
  }

  /// Counts a piece's trained targets, the first token after it included, and sums their weights.
  void measure(const DocumentRecord& document, SegmentRecord& segment, double& weight) const {
    const std::uint32_t end = std::min(segment.start + segment.length + 1, document.length);
    segment.trained = 0;
    weight = 0.0;
    for (std::uint32_t i = segment.start + 1; i < end; ++i) {
      if (files_.trained(document.first_token + i)) {
        ++segment.trained;
        weight += static_cast<double>(files_.weight(document.first_token + i));
      }
    }
  }

  RowFiles files_;
  RowPartWriter segments_;
  RowPartWriter rows_;
  bool in_pairs_;
  std::uint64_t segment_count_ = 0;
  std::uint64_t row_count_ = 0;
  std::uint64_t trained_tokens_ = 0;
};

}  // namespace

Result<RowPartWriter> RowPartWriter::create(const std::filesystem::path& path) {
  auto file = TRAIN_TRY(storage::AtomicFile::create(path));
  return RowPartWriter(std::move(file));
}

Status RowPartWriter::write(std::string_view bytes) {
  digest_.update(bytes);
  return file_.write(bytes);
}

Result<RowPartWriter> RowSplitWriter::part(std::string_view name) const {
  return RowPartWriter::create(directory_ / row_file_name(split_, name));
}

Result<RowSplitWriter> RowSplitWriter::create(const std::filesystem::path& directory,
                                              const std::string& split, const RowLayout& layout) {
  TRAIN_CHECK(layout.row_length >= 1 && (layout.token_bytes == 2 || layout.token_bytes == 4));
  RowSplitWriter writer(directory, split, layout);
  const std::pair<std::string_view, std::optional<RowPartWriter>*> parts[] = {
      {kTokenPart, &writer.tokens_},
      {kMaskPart, &writer.mask_},
      {kDocumentPart, &writer.documents_}};
  for (const auto& [name, to] : parts) {
    auto made = TRAIN_TRY(writer.part(name));
    to->emplace(std::move(made));
  }
  return writer;
}

Status RowSplitWriter::add(const RowText& text, std::uint32_t source) {
  TRAIN_CHECK(!in_pairs_);
  lengths_.push_back(static_cast<std::uint32_t>(text.tokens.size()));
  return add_document(text, {.source = source});
}

RowText mismatched_text(const RowText& prompt, const RowText& answer, std::size_t length_most) {
  const auto trained_from = [](const RowText& text) {
    return std::find(text.trained.begin(), text.trained.end(), true) - text.trained.begin();
  };
  const std::ptrdiff_t before = trained_from(prompt);
  const std::ptrdiff_t from = trained_from(answer);
  const auto end = static_cast<std::ptrdiff_t>(answer.tokens.size());
  TRAIN_CHECK(before < static_cast<std::ptrdiff_t>(length_most) && from < end,
              "a prompt of {} tokens leaves no room in {}", before, length_most);
  const std::ptrdiff_t until =
      std::min(end, from + static_cast<std::ptrdiff_t>(length_most) - before);
  RowText text{.tokens = {prompt.tokens.begin(), prompt.tokens.begin() + before},
               .trained = std::vector<bool>(static_cast<std::size_t>(before), false)};
  text.tokens.insert(text.tokens.end(), answer.tokens.begin() + from,
                     answer.tokens.begin() + until);
  text.trained.insert(text.trained.end(), answer.trained.begin() + from,
                      answer.trained.begin() + until);
  return text;
}

Status RowSplitWriter::add_labelled(const RowText& text, std::uint32_t source, bool desirable) {
  TRAIN_CHECK(in_pairs_ || lengths_.empty());
  TRAIN_CHECK(2 * text.tokens.size() <= layout_.row_length, "{} tokens are above half a row",
              text.tokens.size());
  in_pairs_ = true;
  if (!first_labelled_) {
    first_labelled_ = text;
  } else {
    TRAIN_RETURN_IF_ERROR(add_waiting(text));
  }
  waiting_ = Labelled{text, source, desirable};
  return {};
}

Status RowSplitWriter::add_waiting(const RowText& next) {
  const Labelled example = std::move(*std::exchange(waiting_, std::nullopt));
  const RowText mismatched =
      mismatched_text(example.text, next, layout_.row_length - example.text.tokens.size());
  lengths_.push_back(
      static_cast<std::uint32_t>(example.text.tokens.size() + mismatched.tokens.size()));
  const auto number = static_cast<std::int64_t>(counts_.pairs++);
  TRAIN_RETURN_IF_ERROR(add_document(
      example.text,
      {.pair = number, .source = example.source, .side = example.desirable ? 0U : 1U}));
  return add_document(mismatched, {.pair = number, .source = example.source, .side = 2});
}

Status RowSplitWriter::add_pair(const RowText& chosen, const RowText& rejected,
                                std::uint32_t source) {
  TRAIN_CHECK(in_pairs_ || lengths_.empty());
  in_pairs_ = true;
  lengths_.push_back(static_cast<std::uint32_t>(chosen.tokens.size() + rejected.tokens.size()));
  const auto number = static_cast<std::int64_t>(counts_.pairs++);
  TRAIN_RETURN_IF_ERROR(add_document(chosen, {.pair = number, .source = source, .side = 0}));
  return add_document(rejected, {.pair = number, .source = source, .side = 1});
}

Status RowSplitWriter::add_document(const RowText& text, const DocumentRecord& described) {
  const std::size_t length = text.tokens.size();
  TRAIN_CHECK(length >= 1 && text.trained.size() == length && !text.trained.front() &&
              (text.weights.empty() || text.weights.size() == length));
  DocumentRecord record = described;
  record.first_token = counts_.tokens;
  record.length = static_cast<std::uint32_t>(length);
  record.trained =
      static_cast<std::uint32_t>(std::count(text.trained.begin(), text.trained.end(), true));
  if (!text.weights.empty()) {
    TRAIN_RETURN_IF_ERROR(keep_weights());
  }
  piece_.clear();
  const auto width = static_cast<std::size_t>(layout_.token_bytes);
  for (const std::uint32_t token : text.tokens) {
    piece_.append(reinterpret_cast<const char*>(&token), width);
  }
  TRAIN_RETURN_IF_ERROR(tokens_->write(piece_));
  if (weights_) {
    const std::vector<float> ones(text.weights.empty() ? length : 0, 1.0F);
    const std::vector<float>& weights = text.weights.empty() ? ones : text.weights;
    TRAIN_RETURN_IF_ERROR(weights_->write(
        {reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)}));
  }
  TRAIN_RETURN_IF_ERROR(add_mask(text.trained));
  ++counts_.documents;
  return documents_->write_record(record);
}

Status RowSplitWriter::add_mask(const std::vector<bool>& trained) {
  piece_.clear();
  for (const bool bit : trained) {
    mask_byte_ |= static_cast<unsigned>(bit) << (counts_.tokens % 8);
    if (++counts_.tokens % 8 == 0) {
      piece_.push_back(static_cast<char>(std::exchange(mask_byte_, 0U)));
    }
  }
  return mask_->write(piece_);
}

Status RowSplitWriter::keep_weights() {
  if (weights_) {
    return {};
  }
  auto made = TRAIN_TRY(part(kWeightPart));
  weights_.emplace(std::move(made));
  constexpr std::size_t kPiece = 16384;
  const std::vector<float> ones(kPiece, 1.0F);
  for (std::uint64_t left = counts_.tokens; left > 0;) {
    const std::uint64_t now = std::min<std::uint64_t>(left, kPiece);
    TRAIN_RETURN_IF_ERROR(
        weights_->write({reinterpret_cast<const char*>(ones.data()), now * sizeof(float)}));
    left -= now;
  }
  return {};
}

Status RowSplitWriter::commit_documents() {
  if (counts_.tokens % 8 != 0) {
    const auto last = static_cast<char>(mask_byte_);
    TRAIN_RETURN_IF_ERROR(mask_->write({&last, 1}));
  }
  for (std::optional<RowPartWriter>* part : {&tokens_, &mask_, &weights_, &documents_}) {
    if (*part) {
      TRAIN_RETURN_IF_ERROR((*part)->commit());
      digests_ += (*part)->digest();
    }
  }
  return {};
}

Status RowSplitWriter::pack() {
  RowFiles files;
  files.mask = TRAIN_TRY(mapped_file(directory_ / row_file_name(split_, kMaskPart)));
  if (weights_) {
    files.weights = TRAIN_TRY(mapped_file(directory_ / row_file_name(split_, kWeightPart)));
  }
  auto documents = TRAIN_TRY(mapped_file(directory_ / row_file_name(split_, kDocumentPart)));
  files.documents =
      RecordFile<DocumentRecord>(std::move(documents), counts_.documents * sizeof(DocumentRecord));
  auto segments = TRAIN_TRY(part(kSegmentPart));
  auto rows = TRAIN_TRY(part(kRowPart));
  RowIndexWriter index(std::move(files), std::move(segments), std::move(rows), in_pairs_);
  std::vector<std::uint64_t> window;
  std::vector<std::uint32_t> lengths;
  for (std::uint64_t position = 0; position < lengths_.size(); ++position) {
    window.push_back(shuffled_index(layout_.seed, 0, position, lengths_.size()));
    lengths.push_back(lengths_[window.back()]);
    if (window.size() == kPackWindowGroups || position + 1 == lengths_.size()) {
      for (const PackedRow& row :
           pack_window(layout_.packing, window, lengths, layout_.row_length)) {
        TRAIN_RETURN_IF_ERROR(index.add(row));
      }
      window.clear();
      lengths.clear();
    }
  }
  TRAIN_RETURN_IF_ERROR(index.commit());
  counts_.rows = index.rows();
  counts_.segments = index.segments();
  counts_.trained_tokens = index.trained_tokens();
  digests_ += index.digests();
  return {};
}

Status RowSplitWriter::finish() {
  if (waiting_) {
    TRAIN_RETURN_IF_ERROR(add_waiting(*first_labelled_));
  }
  TRAIN_RETURN_IF_ERROR(commit_documents());
  TRAIN_RETURN_IF_ERROR(pack());
  counts_.digest = storage::digest_text(digests_);
  return {};
}

}  // namespace train::data
