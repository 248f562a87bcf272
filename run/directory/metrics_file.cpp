#include "run/directory/metrics_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text/log.hpp"
#include "storage/files/input_file.hpp"

namespace train::run {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 10U;

/// Reads the lines of a file backwards.
class LinesFromEnd {
 public:
  explicit LinesFromEnd(const storage::InputFile& file)
      : file_(file), begin_(file.size_bytes()), end_(file.size_bytes()) {}

  /// Returns a line without its line feed, which is at `end()`; nullopt at the start of the file.
  /// Skips a partial last line.
  Result<std::optional<std::string>> next() {
    using Line = std::optional<std::string>;
    if (!whole_) {
      TRAIN_RETURN_IF_ERROR(cut_half_line());
      whole_ = true;
    }
    end_ = begin_ + text_.size();
    // The block doubles each time, so that a line of any length is searched a few times.
    for (std::uint64_t block = kBlockBytes;; block *= 2) {
      const std::size_t feed =
          text_.size() < 2 ? std::string::npos : text_.rfind('\n', text_.size() - 2);
      if (feed == std::string::npos && begin_ > 0) {
        TRAIN_RETURN_IF_ERROR(read_block(block));
        continue;
      }
      if (text_.empty()) {
        return Line();
      }
      const std::size_t first = feed == std::string::npos ? 0 : feed + 1;
      std::string line = text_.substr(first, text_.size() - first - 1);
      text_.resize(first);
      return Line(std::move(line));
    }
  }

  /// Offset behind the line that next() has returned, its line feed included.
  [[nodiscard]] std::uint64_t end() const { return end_; }

 private:
  /// Prepends up to `most` bytes to `text_`, as many as there are.
  Status read_block(std::uint64_t most) {
    const std::uint64_t size = std::min(most, begin_);
    std::string block(size, '\0');
    TRAIN_RETURN_IF_ERROR(
        file_.read(begin_ - size, std::as_writable_bytes(std::span(block.data(), block.size()))));
    begin_ -= size;
    text_.insert(0, block);
    return {};
  }

  Status cut_half_line() {
    while (begin_ > 0) {
      TRAIN_RETURN_IF_ERROR(read_block(kBlockBytes));
      const std::size_t feed = text_.rfind('\n');
      if (feed != std::string::npos) {
        text_.resize(feed + 1);
        return {};
      }
      text_.clear();
    }
    return {};
  }

  const storage::InputFile& file_;
  std::uint64_t begin_;  // Offset of text_.
  std::uint64_t end_;
  std::string text_;
  bool whole_ = false;
};

/// Step of a line; nullopt: unreadable.
std::optional<std::int64_t> step_of(const nlohmann::json& line) {
  const auto step = line.is_object() ? line.find("step") : line.end();
  return step != line.end() && step->is_number_integer() ? std::optional(step->get<std::int64_t>())
                                                         : std::nullopt;
}

nlohmann::json parse(std::string_view line) {
  return nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
}

/// Merges a line about `step` into `found`.
void take_news(const nlohmann::json& line, MetricsEnd& found) {
  found.evaluated = found.evaluated || line.contains("val_loss");
  found.answered = found.answered || line.contains("choices");
  found.sampled = found.sampled || line.contains("sample_seconds");
}

std::filesystem::path metrics_path(const std::filesystem::path& directory) {
  return directory / "metrics.jsonl";
}

}  // namespace

Result<MetricsEnd> find_metrics_end(const std::filesystem::path& directory, std::int64_t step) {
  std::error_code code;
  const std::filesystem::path path = metrics_path(directory);
  if (!std::filesystem::exists(path, code) && !code) {
    return MetricsEnd{};
  }
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  LinesFromEnd lines(file);
  MetricsEnd found;
  bool kept = false;
  while (true) {
    const auto text = TRAIN_TRY(lines.next());
    if (!text) {
      return found;
    }
    const nlohmann::json line = parse(*text);
    const auto of_step = step_of(line);
    found.unreadable = found.unreadable || !of_step;
    if (!of_step || *of_step > step) {
      continue;
    }
    if (!std::exchange(kept, true)) {
      found.kept_bytes = lines.end();
      found.newest_step = *of_step;
    }
    if (*of_step < step) {
      return found;
    }
    take_news(line, found);
  }
}

MetricsFile::MetricsFile(const std::filesystem::path& directory)
    : directory_(directory), file_(metrics_path(directory)) {}

Status MetricsFile::resume_from(std::int64_t first_step) {
  file_.drop_waiting([first_step](std::string_view line) {
    return first_step == 0 || step_of(parse(line)).value_or(0) > first_step;
  });
  const auto end =
      first_step == 0 ? Result(MetricsEnd()) : find_metrics_end(directory_, first_step);
  if (end) {
    file_.cut(end->kept_bytes);
  } else {
    log_warning(fmt::format("metrics_not_read {}; lines of steps after {} may come twice",
                            end.error().message, first_step));
  }
  const auto failed = file_.open();
  return failed && failed->kind == ErrorKind::user ? Status(*failed) : Status();
}

Result<std::vector<EvaluatedValue>> MetricsFile::evaluated(const std::string& key,
                                                           std::int64_t last_step) const {
  std::vector<EvaluatedValue> values;
  const auto take = [&](std::string_view text) {
    if (text.find(key) == std::string_view::npos) {
      return;
    }
    const nlohmann::json line = parse(text);
    const auto step = step_of(line);
    const auto value = line.is_object() ? line.find(key) : line.end();
    // JSON has null for a number that is not finite.
    if (step && *step <= last_step && value != line.end() &&
        (value->is_number() || value->is_null())) {
      values.push_back({*step, value->is_null() ? std::nan("") : value->get<double>()});
    }
  };
  std::error_code code;
  const std::filesystem::path path = metrics_path(directory_);
  if (std::filesystem::exists(path, code) || code) {
    const auto file = TRAIN_TRY(storage::InputFile::open(path));
    LinesFromEnd lines(file);
    while (const auto text = TRAIN_TRY(lines.next())) {
      take(*text);
    }
    std::reverse(values.begin(), values.end());
  }
  file_.each_waiting(take);
  return values;
}

MetricsEnd MetricsFile::end_at(std::int64_t step) const {
  const auto read = find_metrics_end(directory_, step);
  MetricsEnd end = read ? *read : MetricsEnd{};
  file_.each_waiting([&](std::string_view line) {
    const nlohmann::json json = parse(line);
    const auto of_step = step_of(json);
    if (of_step && *of_step <= step) {
      end.newest_step = *of_step;
    }
    if (of_step == step) {
      take_news(json, end);
    }
  });
  return end;
}

void MetricsFile::append(std::string_view line) { file_.append(std::string(line) + "\n"); }

}  // namespace train::run
