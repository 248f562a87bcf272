#include "storage/inputs/line_fault.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/text/one_line.hpp"

namespace train::storage {
namespace {

constexpr std::array<std::string_view, kLineFaultCount> kFaultTexts = {
    "a line of more than 32 MiB",
    "JSON that is cut off",
    "half a surrogate pair, which is no character",
    "NaN or Infinity, which JSON does not have",
    "a number beyond what a double holds",
    "a byte that is no UTF-8",
    "a control character that is not escaped",
    "not JSON",
    "JSON, but no object",
    "more fields than the header has",
    "a quote that nothing closes",
    "no member \"text\"",
    "\"text\" is null",
    "\"text\" is no string",
    "an empty text"};

/// Stops at the first error and keeps the parser's message.
class FaultHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    said_ = error.what();
    return false;
  }

  /// Number of bytes read when the error was found; 0: none.
  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] bool says(std::string_view words) const {
    return said_.find(words) != std::string::npos;
  }

 private:
  std::size_t position_ = 0;
  std::string said_;
};

/// True if the parser stopped at a word that Python writes for a number (NaN, Infinity).
bool stops_at_no_number(std::string_view line, std::size_t position) {
  // The parser stops within the word, after at most its sign and two letters.
  const std::size_t from = position > 3 ? position - 3 : 0;
  const std::string_view near = line.substr(from, 12);
  return near.find("NaN") < 4 || near.find("Infinity") < 4;
}

}  // namespace

std::string_view line_fault_text(LineFault fault) {
  return kFaultTexts.at(static_cast<std::size_t>(fault));
}

std::optional<std::size_t> json_mistake(std::string_view text) {
  // The parser reports an end within a character or a word as an error near it.
  constexpr std::size_t end_bytes = 12;
  FaultHandler handler;
  const bool sound = nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  if (sound || handler.position() + end_bytes > text.size()) {
    return std::nullopt;
  }
  return handler.position();
}

LineFault json_fault(std::string_view line) {
  FaultHandler handler;
  if (nlohmann::json::sax_parse(line.begin(), line.end(), &handler)) {
    return LineFault::no_object;
  }
  if (handler.says("surrogate")) {
    return LineFault::half_surrogate;
  }
  if (handler.says("UTF-8")) {
    return LineFault::bad_byte;
  }
  if (handler.says("unexpected end of input") || handler.says("missing closing quote")) {
    return LineFault::cut_off;
  }
  if (handler.says("number overflow")) {
    return LineFault::huge_number;
  }
  if (handler.says("control character")) {
    return LineFault::control;
  }
  // The parser reports an end within true, null, a number or an escape as a wrong letter after the
  // last.
  if (handler.position() > line.size()) {
    return LineFault::cut_off;
  }
  return stops_at_no_number(line, handler.position()) ? LineFault::no_number : LineFault::not_json;
}

std::string dropped_text(const DropReasons& reasons) {
  std::vector<std::string> parts;
  for (const auto& [tally, reason] : reasons) {
    parts.push_back(
        fmt::format("{} dropped: {}, the first at {}", tally.lines, reason, one_line(tally.first)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> dropped_table(const DropReasons& reasons) {
  std::size_t widest = 0;
  for (const auto& [tally, reason] : reasons) {
    widest = std::max(widest, reason.size());
  }
  std::vector<std::string> lines;
  for (const auto& [tally, reason] : reasons) {
    if (lines.empty()) {
      lines.push_back(fmt::format("{:>9}  {:<{}}  {}", "DROPPED", "REASON", widest, "FIRST AT"));
    }
    lines.push_back(
        fmt::format("{:>9}  {:<{}}  {}", tally.lines, reason, widest, one_line(tally.first)));
  }
  return lines;
}

Status check_dropped(const LineTally& tally, double most, const std::string& reasons) {
  const auto lines = static_cast<double>(tally.lines);
  const auto dropped = static_cast<double>(tally.dropped);
  if (dropped <= most * lines) {
    return {};
  }
  return user_error(
      fmt::format("{} of {} lines ({:.1f} %) were dropped, more than {:g} %; {}; fix the data, or "
                  "raise --max-dropped",
                  tally.dropped, tally.lines, 100.0 * dropped / lines, 100.0 * most, reasons));
}

}  // namespace train::storage
