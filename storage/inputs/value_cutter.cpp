#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "storage/inputs/record_cutter.hpp"

namespace train::storage {
namespace {

bool is_json_space(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
}

/// Longer values are checked for an unclosed bracket.
constexpr std::size_t kCheckedBytes = std::size_t{1} << 16;

/// A value with this many nested candidates is accepted as one.
constexpr std::size_t kWithinMost = 64;

/// Values end where their brackets are closed; words and numbers at the next comma, bracket or
/// space. The text between brackets is left to the parser.
class ValueCutter : public RecordCutter {
 public:
  explicit ValueCutter(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  Status feed(std::string_view piece, const TakeRecord& take) override {
    for (std::size_t at = 0; at < piece.size(); at += kCheckedBytes) {
      TRAIN_RETURN_IF_ERROR(scan(piece.substr(at, kCheckedBytes), take));
      TRAIN_RETURN_IF_ERROR(leave_open_value(check_at_, take));
    }
    return {};
  }

  Status finish(const TakeRecord& take) override {
    TRAIN_RETURN_IF_ERROR(leave_open_value(0, take));
    const bool whole = state_ == State::between || state_ == State::word;
    if (state_ != State::between) {
      TRAIN_RETURN_IF_ERROR(
          give(whole ? std::optional<LineFault>() : std::optional(LineFault::cut_off), take));
    }
    if (whole && inside_array_) {
      // All elements were complete, but more may have followed.
      return take({.text = {}, .line = line_, .fault = LineFault::cut_off});
    }
    return {};
  }

 private:
  enum class State : std::uint8_t { between, value, text, escape, word };

  Status scan(std::string_view piece, const TakeRecord& take) {
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

  /// An unclosed bracket costs only its own value, not everything after it: if the value is invalid
  /// JSON before its end, the next value that begins like the others is searched.
  Status leave_open_value(std::size_t least_bytes, const TakeRecord& take) {
    while (state_ != State::between && state_ != State::word && value_.size() >= least_bytes) {
      const std::size_t next = next_value();
      if (next == std::string::npos) {
        check_at_ = 2 * value_.size();
        return {};
      }
      const std::string values = value_.substr(next);
      line_ = first_line_ +
              static_cast<std::uint64_t>(std::count(
                  value_.begin(), value_.end() - static_cast<std::ptrdiff_t>(values.size()), '\n'));
      TRAIN_RETURN_IF_ERROR(give(json_fault(value_), take));
      TRAIN_RETURN_IF_ERROR(scan(values, take));
    }
    return {};
  }

  /// Begin of the next value after the open one.
  [[nodiscard]] std::size_t next_value() const {
    const auto mistake = json_mistake(value_);
    return mistake ? beginning_behind(std::max<std::size_t>(*mistake, 2) - 2) : std::string::npos;
  }

  /// Position in the value, after `at`, at which an object begins like the other values.
  [[nodiscard]] std::size_t beginning_behind(std::size_t at) const {
    // If the first value is the broken one, it defines how values begin.
    const std::string_view wanted = first_key_.empty() ? first_key(value_) : first_key_;
    while (!wanted.empty() && at != std::string::npos) {
      at = value_.find('{', at + 1);
      if (at != std::string::npos && first_key(std::string_view(value_).substr(at)) == wanted) {
        return at;
      }
    }
    return std::string::npos;
  }

  /// Name of an object's first member, with quotes; empty: it has none.
  static std::string_view first_key(std::string_view object) {
    const std::size_t begin = object.find_first_not_of(" \t\r\n", 1);
    if (!object.starts_with('{') || begin == std::string_view::npos || object[begin] != '"') {
      return {};
    }
    const std::size_t end = object.find('"', begin + 1);
    return end == std::string_view::npos ? std::string_view()
                                         : object.substr(begin, end - begin + 1);
  }

  /// Updates the state after a letter of a string.
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
    // The bracket may close the enclosing array; or a surplus quote hides the end of the value, and
    // another quote in the next value shows that value's.
    const bool doubtful = value_.starts_with('{') &&
                          (!value_.ends_with('}') || beginning_behind(0) != std::string::npos);
    if (doubtful && within_ < kWithinMost) {
      ++within_;
      const Status left = leave_open_value(0, take);
      --within_;
      TRAIN_RETURN_IF_ERROR(left);
      kept_to_ = end;
      if (state_ != State::value || value_.empty()) {
        return {};
      }
    }
    return give(std::nullopt, take);
  }

  Status give(std::optional<LineFault> fault, const TakeRecord& take) {
    state_ = State::between;
    if (std::exchange(too_long_, false)) {
      fault = LineFault::too_long;
    }
    if (first_key_.empty() && !fault) {
      first_key_ = first_key(value_);
    }
    check_at_ = kCheckedBytes;
    Status status = take({.text = value_, .line = first_line_, .fault = fault});
    value_.clear();
    return status;
  }

  std::size_t limit_bytes_;
  std::size_t check_at_ = kCheckedBytes;  ///< In bytes of the value.
  std::string first_key_;                 ///< First key of the first value, with its quotes.
  State state_ = State::between;
  bool inside_array_ = false;  ///< The records are elements of an array.
  std::size_t depth_ = 0;      ///< Open brackets within the value.
  std::string value_;          ///< Part of the value from earlier pieces.
  std::size_t kept_to_ = 0;    ///< Start of its rest in this piece.
  bool too_long_ = false;
  std::uint64_t line_ = 1;
  std::uint64_t first_line_ = 1;
  std::size_t within_ = 0;  ///< Values examined inside a broken one.
};

}  // namespace

std::unique_ptr<RecordCutter> make_value_cutter(std::size_t limit_bytes) {
  return std::make_unique<ValueCutter>(limit_bytes);
}

}  // namespace train::storage
