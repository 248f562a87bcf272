#include "data/examples/row_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/text/one_line.hpp"

namespace train::data {
namespace {

using ReportJson = nlohmann::ordered_json;

constexpr std::array<const char*, kMaskMethodCount> kMaskMethodNames = {"markers", "placeholders"};

constexpr std::array<const char*, kRemarkKindCount> kRemarkNames = {"not_read", "left_out",
                                                                    "unknown_roles"};
constexpr std::array<const char*, kRemarkKindCount> kRemarkTexts = {
    "not read", "changed or omitted by the template", "unknown roles, left to the template"};

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

ReportJson tally_json(const RowTally& tally) {
  return {{"lines", tally.lines},         {"dropped", tally.dropped},
          {"truncated", tally.truncated}, {"documents", tally.documents},
          {"tokens", tally.tokens},       {"trained_tokens", tally.trained_tokens}};
}

std::string tally_line(const std::string& name, const RowTally& tally) {
  return fmt::format(
      "{}: {} lines, {} dropped, {} documents ({} truncated), {} tokens, {} trained ({:.1f} %)",
      name, tally.lines, tally.dropped, tally.documents, tally.truncated, tally.tokens,
      tally.trained_tokens, percent(tally.trained_tokens, tally.tokens));
}

std::string remark_line(const NameTally& tally, const char* text) {
  std::vector<std::string> names;
  for (const auto& [name, lines] : tally) {
    names.push_back(fmt::format("{} ({} lines)", one_line(name), lines));
  }
  return fmt::format("{}: {}", text, fmt::join(names, ", "));
}

}  // namespace

double row_fill(const RowCounts& counts, std::int64_t row_length) {
  const double room = static_cast<double>(counts.rows) * static_cast<double>(row_length);
  return room > 0.0 ? static_cast<double>(counts.tokens) / room : 0.0;
}

std::string RowReport::json() const {
  ReportJson object = tally_json(total);
  ReportJson reasons = ReportJson::object();
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i].lines > 0) {
      reasons[std::string(drop_reason_text(static_cast<DropReason>(i)))] = {
          {"lines", dropped[i].lines}, {"first", one_line(dropped[i].first)}};
    }
  }
  object["dropped_by_reason"] = reasons;
  ReportJson methods = ReportJson::object();
  for (std::size_t i = 0; i < masks.size(); ++i) {
    if (masks[i] > 0) {
      methods[kMaskMethodNames[i]] = masks[i];
    }
  }
  object["masks"] = methods;
  for (std::size_t i = 0; i < remarks.size(); ++i) {
    if (!remarks[i].empty()) {
      object[kRemarkNames[i]] = remarks[i];
    }
  }
  object["prompts_merged"] = merged;
  if (facts.kind == "kto") {
    object["labels"] = {{"true", desirable}, {"false", undesirable}};
  }
  object["utf8_breaks"] = replaced;
  object["fill"] = {{"train", row_fill(facts.train, facts.row_length)},
                    {"val", row_fill(facts.val, facts.row_length)}};
  ReportJson by_source = ReportJson::object();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    by_source[facts.sources[i]] = tally_json(sources[i]);
  }
  object["sources"] = by_source;
  return object.dump(-1, ' ', false, ReportJson::error_handler_t::replace);
}

std::vector<std::string> RowReport::lines() const {
  std::vector<std::string> all;
  for (std::size_t i = 0; sources.size() > 1 && i < sources.size(); ++i) {
    all.push_back(tally_line(one_line(facts.sources[i]), sources[i]));
  }
  all.push_back(tally_line("all", total));
  const auto table = storage::dropped_table(storage::drop_reasons(dropped, drop_reason_text));
  all.insert(all.end(), table.begin(), table.end());
  for (std::size_t i = 0; i < remarks.size(); ++i) {
    if (!remarks[i].empty()) {
      all.push_back(remark_line(remarks[i], kRemarkTexts[i]));
    }
  }
  for (const char* const split : {"train", "val"}) {
    const RowCounts& counts = facts.of(split);
    all.push_back(fmt::format(
        "{}: {} row{} of {} tokens, {:.2f} % filled, {} trained{}", split, counts.rows,
        counts.rows == 1 ? "" : "s", facts.row_length, 100.0 * row_fill(counts, facts.row_length),
        counts.trained_tokens,
        counts.pairs > 0
            ? fmt::format(", {} {}", counts.pairs, facts.kind == "kto" ? "examples" : "pairs")
            : ""));
  }
  if (facts.kind == "kto") {
    all.push_back(fmt::format(
        "labels: {} true, {} false; each example has a second document, its prompt with the next "
        "one's answer",
        desirable, undesirable));
  }
  if (merged > 0) {
    all.push_back(
        fmt::format("in {} of {} prompts ({:.1f} %) the tokenizer merges the prompt's last token "
                    "with the answer's first one; end prompts where it splits, for example before "
                    "a space or after a new line",
                    merged, prompts, percent(merged, prompts)));
  }
  if (replaced > 0) {
    all.push_back(fmt::format("{} places were not UTF-8 and became U+FFFD", replaced));
  }
  all.insert(all.end(), notes.begin(), notes.end());
  return all;
}

Status check_report(const RowReport& report, double most_dropped) {
  const RowTally& total = report.total;
  if (total.lines == 0) {
    return user_error("no lines in the input; give a file that is not empty");
  }
  const std::string reasons =
      storage::dropped_text(storage::drop_reasons(report.dropped, drop_reason_text));
  if (total.documents == 0) {
    return user_error(
        fmt::format("all {} lines were dropped; {}; fix the data", total.lines, reasons));
  }
  TRAIN_RETURN_IF_ERROR(
      storage::check_dropped({total.lines, total.dropped}, most_dropped, reasons));
  if (total.trained_tokens == 0) {
    return user_error("no token is trained; fix the data, or use another --kind or --template");
  }
  if (report.facts.kind == "chat" && total.trained_tokens + total.documents >= total.tokens) {
    return user_error(
        "every token of the conversations is trained; use another --template, or --kind text to "
        "train on all of them");
  }
  if (report.facts.kind == "kto" && (report.desirable == 0 || report.undesirable == 0)) {
    return user_error(fmt::format(
        "all {} labels are {}, but KTO needs both; add answers with the other label, or use --kind "
        "prompt to train on all of them",
        report.desirable + report.undesirable, report.desirable == 0 ? "false" : "true"));
  }
  return {};
}

}  // namespace train::data
