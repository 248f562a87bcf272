#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "storage/inputs/record_cutter.hpp"

namespace train::storage {
namespace {

/// Values that pandas, which reads tables for `datasets`, treats as missing.
constexpr auto kMissingCells = std::to_array<std::string_view>(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
     "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"});

/// Lines examined to decide whether a quote was left open.
constexpr std::size_t kRowsAfterQuoteMost = 1000;

void append_quoted(std::string_view text, std::string& to) {
  to += '"';
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      to += '\\';
      to += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      to += fmt::format("\\u{:04x}", static_cast<unsigned char>(letter));
    } else {
      to += letter;
    }
  }
  to += '"';
}

class TableCutter : public RecordCutter {
 public:
  TableCutter(char delimiter, std::size_t limit_bytes)
      : delimiter_(delimiter), limit_bytes_(limit_bytes) {}

  Status feed(std::string_view piece, const TakeRecord& take) override {
    for (const char letter : piece) {
      // A line feed after a carriage return does not end a second row.
      const bool second_half = std::exchange(after_return_, false) && letter == '\n';
      if (letter == '\n' && !second_half) {
        ++line_;
      } else if (letter == '\r') {
        ++line_;
        after_return_ = true;
      }
      if (second_half && state_ == State::begins && cells_.empty()) {
        continue;
      }
      if (!behind_.empty() || (state_ == State::quoted && (letter == '\n' || letter == '\r'))) {
        behind_ += letter;
      }
      if (step(letter)) {
        TRAIN_RETURN_IF_ERROR(end_row(take));
      } else if (row_bytes_ > limit_bytes_ && !behind_.empty()) {
        TRAIN_RETURN_IF_ERROR(are_rows(behind_) ? reread(take) : forget_behind());
      }
    }
    return {};
  }

  Status finish(const TakeRecord& take) override {
    while (state_ == State::quoted) {
      TRAIN_RETURN_IF_ERROR(are_rows(behind_) ? reread(take) : drop_lines(take));
    }
    return end_row(take);
  }

 private:
  enum class State : std::uint8_t { begins, plain, quoted, quote_in_quoted };

  /// True: the row ends before this letter.
  bool step(char letter) {
    if (state_ == State::quoted && letter != '"') {
      add(letter);
      return false;
    }
    if (letter == '"' && state_ != State::plain) {
      is_blank_ = false;
      // A doubled quote is part of the cell.
      if (state_ == State::quote_in_quoted) {
        add(letter);
      }
      state_ = state_ == State::quoted ? State::quote_in_quoted : State::quoted;
      return false;
    }
    if (letter == delimiter_) {
      end_cell();
      is_blank_ = false;
      return false;
    }
    if (letter == '\n' || letter == '\r') {
      return true;
    }
    state_ = State::plain;
    add(letter);
    return false;
  }

  void add(char letter) {
    is_blank_ = is_blank_ && state_ == State::plain && (letter == ' ' || letter == '\t');
    if (++row_bytes_ > limit_bytes_) {
      cell_.clear();
      // An unclosed quote would swallow everything after it.
      state_ = State::plain;
      return;
    }
    cell_ += letter;
  }

  /// True if lines are rows of this table, not part of one cell: most have as many cells.
  [[nodiscard]] bool are_rows(std::string_view lines) const {
    std::size_t rows = 0;
    std::size_t full = 0;
    while (!lines.empty() && rows < kRowsAfterQuoteMost) {
      const std::string_view line = lines.substr(0, lines.find_first_of("\r\n"));
      lines.remove_prefix(std::min(line.size() + 1, lines.size()));
      if (!line.empty()) {
        const auto cells = 1 + std::count(line.begin(), line.end(), delimiter_);
        ++rows;
        full += static_cast<std::size_t>(cells) == names_.size() ? 1 : 0;
      }
    }
    return names_.size() > 1 && 2 * full > rows;
  }

  /// An unclosed quote costs only its own line, not everything after it.
  Status reread(const TakeRecord& take) {
    TRAIN_RETURN_IF_ERROR(take({.text = {}, .line = first_line_, .fault = LineFault::open_quote}));
    const std::string lines = std::exchange(behind_, {});
    line_ = first_line_;
    after_return_ = false;
    begin_row();
    return feed(lines, take);
  }

  /// Drops the lines of a row whose quote is open at the table's end.
  Status drop_lines(const TakeRecord& take) {
    const bool ends_line = behind_.ends_with('\n') || behind_.ends_with('\r');
    const std::uint64_t end = line_ + (ends_line ? 0 : 1);
    for (std::uint64_t line = first_line_; line < end; ++line) {
      TRAIN_RETURN_IF_ERROR(take({.text = {}, .line = line, .fault = LineFault::open_quote}));
    }
    begin_row();
    return {};
  }

  /// Forgets the lines of a row that is too long.
  Status forget_behind() {
    behind_.clear();
    return {};
  }

  void end_cell() {
    cells_.push_back(std::exchange(cell_, {}));
    state_ = State::begins;
  }

  void begin_row() {
    cells_.clear();
    cell_.clear();
    behind_.clear();
    row_bytes_ = 0;
    is_blank_ = true;
    state_ = State::begins;
    first_line_ = line_;
  }

  Status end_row(const TakeRecord& take) {
    if (is_blank_ && state_ != State::quote_in_quoted) {
      begin_row();
      return {};
    }
    end_cell();
    Status status;
    if (row_bytes_ > limit_bytes_) {
      status = take({.text = {}, .line = first_line_, .fault = LineFault::too_long});
    } else if (names_.empty()) {
      take_names();
    } else if (cells_.size() > names_.size()) {
      status = take({.text = {}, .line = first_line_, .fault = LineFault::fields});
    } else {
      write_row();
      status = take({.text = row_, .line = first_line_});
    }
    begin_row();
    return status;
  }

  /// Names unnamed and duplicate columns as pandas does.
  void take_names() {
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      const std::string base = cells_[i].empty() ? fmt::format("Unnamed: {}", i) : cells_[i];
      std::string name = base;
      for (int copy = 1; std::find(seen.begin(), seen.end(), name) != seen.end(); ++copy) {
        name = fmt::format("{}.{}", base, copy);
      }
      seen.push_back(name);
      std::string member;
      append_quoted(name, member);
      names_.push_back(member + ": ");
    }
  }

  void write_row() {
    row_.assign(1, '{');
    for (std::size_t i = 0; i < names_.size(); ++i) {
      row_ += i == 0 ? "" : ", ";
      row_ += names_[i];
      if (i >= cells_.size() || is_missing(cells_[i])) {
        row_ += "null";
      } else {
        append_quoted(cells_[i], row_);
      }
    }
    row_ += '}';
  }

  static bool is_missing(std::string_view cell) {
    return cell.size() <= 8 &&
           std::find(kMissingCells.begin(), kMissingCells.end(), cell) != kMissingCells.end();
  }

  char delimiter_;
  std::size_t limit_bytes_;
  std::vector<std::string> names_;  ///< As JSON, with the colon.
  std::vector<std::string> cells_;  ///< Cells of this row.
  std::string cell_;
  std::string behind_;  ///< End of this row's first line, and everything since.
  std::string row_;     ///< Row as JSON.
  State state_ = State::begins;
  std::size_t row_bytes_ = 0;
  bool is_blank_ = true;
  bool after_return_ = false;
  std::uint64_t line_ = 1;
  std::uint64_t first_line_ = 1;
};

}  // namespace

std::unique_ptr<RecordCutter> make_table_cutter(char delimiter, std::size_t limit_bytes) {
  return std::make_unique<TableCutter>(delimiter, limit_bytes);
}

}  // namespace train::storage
