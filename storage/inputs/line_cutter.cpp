#include <string>

#include "storage/inputs/record_cutter.hpp"

namespace train::storage {
namespace {

class LineCutter : public RecordCutter {
 public:
  explicit LineCutter(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  Status feed(std::string_view piece, const TakeRecord& take) override {
    std::size_t end = 0;
    while ((end = piece.find('\n')) != std::string_view::npos) {
      TRAIN_RETURN_IF_ERROR(give(piece.substr(0, end), take));
      piece.remove_prefix(end + 1);
    }
    keep(piece);
    return {};
  }
  Status finish(const TakeRecord& take) override { return give({}, take); }

 private:
  void keep(std::string_view text) {
    too_long_ = too_long_ || before_.size() + text.size() > limit_bytes_;
    too_long_ ? before_.clear() : static_cast<void>(before_.append(text));
  }

  Status give(std::string_view rest, const TakeRecord& take) {
    InputRecord record{.text = rest, .line = line_++};
    if (!before_.empty() || too_long_ || rest.size() > limit_bytes_) {
      keep(rest);
      record.text = before_;
    }
    Status status;
    if (std::exchange(too_long_, false)) {
      record.fault = LineFault::too_long;
      status = take(record);
    } else if (record.text.find_first_not_of(" \t\r") != std::string_view::npos) {
      status = take(record);
    }
    before_.clear();
    return status;
  }

  std::size_t limit_bytes_;
  std::string before_;  ///< Part of the line from earlier pieces.
  bool too_long_ = false;
  std::uint64_t line_ = 1;
};

}  // namespace

std::unique_ptr<RecordCutter> make_line_cutter(std::size_t limit_bytes) {
  return std::make_unique<LineCutter>(limit_bytes);
}

}  // namespace train::storage
