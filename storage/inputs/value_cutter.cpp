#include <string>
#include <utility>

#include "storage/inputs/record_cutter.hpp"

namespace train::storage {
namespace {

bool is_json_space(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
}

/// Values end where the brackets that they open are closed; words and numbers at the next comma,
/// bracket or space. What is between the brackets is judged by who parses it.
class ValueCutter : public RecordCutter {
 public:
  explicit ValueCutter(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  Status feed(std::string_view piece, const TakeRecord& take) override {
    kept_to_ = 0;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const char letter = piece[i];
      line_ += letter == '\n' ? 1 : 0;
      if (state_ == State::text || state_ == State::escape) {
        in_text(letter);
        if (state_ == State::value && depth_ == 0) {
          TRAIN_RETURN_IF_ERROR(end_value(piece, i + 1, take));
        }
        continue;
      }
      if (state_ == State::word) {
        if (!is_json_space(letter) && letter != ',' && letter != ']') {
          continue;
        }
        TRAIN_RETURN_IF_ERROR(end_value(piece, i, take));
      }
      if (state_ == State::between) {
        between(letter, i);
        continue;
      }
      if (in_value(letter)) {
        TRAIN_RETURN_IF_ERROR(end_value(piece, i + 1, take));
      }
    }
    if (state_ != State::between) {
      keep(piece.substr(kept_to_));
    }
    return {};
  }

  Status finish(const TakeRecord& take) override {
    const bool whole = state_ == State::between || state_ == State::word;
    if (state_ != State::between) {
      TRAIN_RETURN_IF_ERROR(
          give(whole ? std::optional<LineFault>() : std::optional(LineFault::cut_off), take));
    }
    if (whole && inside_array_) {
      // All elements were whole, but there may have been more.
      return take({.text = {}, .line = line_, .fault = LineFault::cut_off});
    }
    return {};
  }

 private:
  enum class State : std::uint8_t { between, value, text, escape, word };

  /// The state behind a letter of a text.
  void in_text(char letter) {
    if (state_ == State::escape) {
      state_ = State::text;
    } else if (letter == '\\') {
      state_ = State::escape;
    } else if (letter == '"') {
      state_ = State::value;
    }
  }

  void between(char letter, std::size_t at) {
    if (is_json_space(letter) || letter == ',') {
      return;
    }
    if (!inside_array_ && letter == '[') {
      inside_array_ = true;
      return;
    }
    if (inside_array_ && letter == ']') {
      inside_array_ = false;
      return;
    }
    kept_to_ = at;
    first_line_ = line_;
    depth_ = 0;
    if (letter == '"') {
      state_ = State::text;
    } else if (letter == '{' || letter == '[') {
      state_ = State::value;
      depth_ = 1;
    } else {
      state_ = State::word;
    }
  }

  /// True: the value ends with this letter.
  bool in_value(char letter) {
    if (letter == '"') {
      state_ = State::text;
    } else if (letter == '{' || letter == '[') {
      ++depth_;
    } else if (letter == '}' || letter == ']') {
      return --depth_ == 0;
    }
    return false;
  }

  void keep(std::string_view text) {
    too_long_ = too_long_ || value_.size() + text.size() > limit_bytes_;
    too_long_ ? value_.clear() : static_cast<void>(value_.append(text));
  }

  Status end_value(std::string_view piece, std::size_t end, const TakeRecord& take) {
    keep(piece.substr(kept_to_, end - kept_to_));
    kept_to_ = end;
    return give(std::nullopt, take);
  }

  Status give(std::optional<LineFault> fault, const TakeRecord& take) {
    state_ = State::between;
    if (std::exchange(too_long_, false)) {
      fault = LineFault::too_long;
    }
    const Status status = take({.text = value_, .line = first_line_, .fault = fault});
    value_.clear();
    return status;
  }

  std::size_t limit_bytes_;
  State state_ = State::between;
  bool inside_array_ = false;  ///< Of the records.
  std::size_t depth_ = 0;      ///< Of brackets within the value.
  std::string value_;          ///< Its part from earlier pieces.
  std::size_t kept_to_ = 0;    ///< Where the rest of it begins in this piece.
  bool too_long_ = false;
  std::uint64_t line_ = 1;
  std::uint64_t first_line_ = 1;
};

}  // namespace

std::unique_ptr<RecordCutter> make_value_cutter(std::size_t limit_bytes) {
  return std::make_unique<ValueCutter>(limit_bytes);
}

}  // namespace train::storage
