#include "data/tokenizer/stages/normalization.hpp"

#include <utf8proc.h>

#include <array>
#include <memory>

#include "data/tokenizer/text/character_clusters.hpp"
#include "data/tokenizer/text/unicode_tables.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

unsigned utf8proc_flags(UnicodeForm form) {
  const auto base = static_cast<unsigned>(UTF8PROC_STABLE);
  switch (form) {
    case UnicodeForm::nfc:
      return base | static_cast<unsigned>(UTF8PROC_COMPOSE);
    case UnicodeForm::nfd:
      return base | static_cast<unsigned>(UTF8PROC_DECOMPOSE);
    case UnicodeForm::nfkc:
      return base | static_cast<unsigned>(UTF8PROC_COMPOSE) |
             static_cast<unsigned>(UTF8PROC_COMPAT);
    case UnicodeForm::nfkd:
      break;
  }
  return base | static_cast<unsigned>(UTF8PROC_DECOMPOSE) | static_cast<unsigned>(UTF8PROC_COMPAT);
}

struct FreeText {
  void operator()(utf8proc_uint8_t* text) const { std::free(text); }  // utf8proc uses malloc.
};

/// Appends `text`, which has no late-assigned characters, in the form of `flags`.
void append_mapped(std::string_view text, unsigned flags, std::string& out) {
  if (text.empty()) {
    return;
  }
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped, static_cast<utf8proc_option_t>(flags));
  const std::unique_ptr<utf8proc_uint8_t, FreeText> owner(mapped);
  TRAIN_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
}

/// End of the text's first character and its marks.
std::size_t end_of_cluster(std::string_view text) {
  std::size_t at = storage::code_point_at(text.data()).length;
  while (at < text.size()) {
    const storage::CodePoint point = storage::code_point_at(text.data() + at);
    const auto* const property = utf8proc_get_property(static_cast<utf8proc_int32_t>(point.value));
    if (property->combining_class == 0) {
      break;
    }
    at += point.length;
  }
  return at;
}

/// Records the origins of `mapped`, made of the piece: equal characters at both ends map to
/// themselves, the rest to all of the rest.
void trace_piece(std::string_view text, std::size_t begin, std::size_t end, std::string_view mapped,
                 storage::OriginTrace& trace) {
  const std::string_view piece = text.substr(begin, end - begin);
  const std::size_t shorter = std::min(piece.size(), mapped.size());
  auto same = static_cast<std::size_t>(
      std::mismatch(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(shorter),
                    mapped.begin())
          .first -
      piece.begin());
  const auto cuts_character = [](std::string_view whole, std::size_t at) {
    return at < whole.size() && storage::continues(whole[at]);
  };
  while (cuts_character(piece, same) || cuts_character(mapped, same)) {
    --same;
  }
  std::size_t last = 0;
  while (last < shorter - same &&
         piece[piece.size() - last - 1] == mapped[mapped.size() - last - 1]) {
    ++last;
  }
  while (last > 0 && storage::continues(piece[piece.size() - last])) {
    --last;
  }
  trace.kept(begin, begin + same);
  trace.made(mapped.size() - same - last, begin + same, end - last);
  trace.kept(end - last, end);
}

/// Records the origins of `mapped`, the normal form of a part: per character with its marks, where
/// those do not interact.
void trace_mapped(std::string_view text, std::size_t begin, std::size_t end,
                  std::string_view mapped, unsigned flags, storage::OriginTrace& trace) {
  struct Cluster {
    std::size_t end;
    std::size_t mapped_end;
  };
  std::vector<Cluster> clusters;
  std::string separate;
  for (std::size_t at = begin; at < end;) {
    const std::size_t next = at + end_of_cluster(text.substr(at, end - at));
    append_mapped(text.substr(at, next - at), flags, separate);
    clusters.push_back({next, separate.size()});
    at = next;
  }
  if (separate != mapped) {
    trace_piece(text, begin, end, mapped, trace);
    return;
  }
  std::size_t done = 0;
  for (const Cluster& cluster : clusters) {
    trace_piece(text, begin, cluster.end, mapped.substr(done, cluster.mapped_end - done), trace);
    begin = cluster.end;
    done = cluster.mapped_end;
  }
}

/// Parts of a text that a normal form may change. Each begins with a character that a following one
/// may join, and ends before one that joins nothing.
class UnsafeParts {
 public:
  UnsafeParts(UnicodeForm form, std::string_view text) : text_(text) {
    const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
    unsafe_ = form == UnicodeForm::nfc ? kNfcUnsafe : kNfkcUnsafe;
    beyond_ascii_ = !composes;
  }

  /// Finds the next part; false at the end. Text between parts is unchanged.
  bool next() {
    const char* const end = text_.data() + text_.size();
    const char* starter = nullptr;
    for (const char* at = text_.data() + end_; at < end;) {
      const storage::CodePoint point = storage::code_point_at(at);
      const unsigned entry = table_[point.value];
      if ((entry & kNormalizedAfter9) != 0) {
        starter = nullptr;
      } else if (is_unsafe(point.value, entry)) {
        begin_ = static_cast<std::size_t>((starter != nullptr ? starter : at) - text_.data());
        end_ = end_of_part(at);
        return true;
      } else {
        starter = at;
      }
      at += point.length;
    }
    return false;
  }

  [[nodiscard]] std::size_t begin() const { return begin_; }
  [[nodiscard]] std::size_t end() const { return end_; }

 private:
  [[nodiscard]] bool is_unsafe(char32_t value, unsigned entry) const {
    return beyond_ascii_ ? value >= 0x80 : (entry & unsafe_) != 0;
  }
  [[nodiscard]] std::size_t end_of_part(const char* at) const {
    const char* const end = text_.data() + text_.size();
    while (at < end) {
      const storage::CodePoint point = storage::code_point_at(at);
      const unsigned entry = table_[point.value];
      if ((entry & kNormalizedAfter9) != 0 || !is_unsafe(point.value, entry)) {
        break;
      }
      at += point.length;
    }
    return static_cast<std::size_t>(at - text_.data());
  }

  std::string_view text_;
  const std::uint8_t* table_ = unicode_table();
  unsigned unsafe_ = 0;
  bool beyond_ascii_ = false;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

/// Lower case of characters that the library lacks or treats differently.
char32_t lower_of(char32_t value) {
  struct Row {
    char32_t first;
    char32_t last;
    char32_t distance;
  };
  static constexpr std::array<Row, 2> rows = {{{0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}}};
  for (const Row& row : rows) {
    if (value >= row.first && value <= row.last) {
      return value + row.distance;
    }
  }
  switch (value) {
    case 0x1c89:
    case 0xa7cc:
    case 0xa7ce:
    case 0xa7d2:
    case 0xa7d4:
    case 0xa7da:
      return value + 1;
    case 0xa7cb:
      return 0x264;
    case 0xa7dc:
      return 0x19b;
    default:
      return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value)));
  }
}

/// Each step writes to `out` and returns true, or returns false if there is nothing to change.
struct StepRunner {
  std::string_view text;
  std::string& out;
  bool& at_start;
  storage::OriginTrace& trace;

  Result<bool> operator()(UnicodeForm form) const {
    return to_unicode_form(form, text, out, trace);
  }

  Result<bool> operator()(const ReplaceStep& step) const {
    return step.literal.empty() ? replace_matches(step) : replace_literal(step);
  }

  Result<bool> operator()(const PrependStep& step) const {
    if (text.empty() || step.text.empty()) {
      return false;
    }
    out = step.text;
    out += text;
    // Text prepended to a character stands for it too, as in the reference.
    trace.made(step.text.size(), 0, storage::code_point_at(text.data()).length);
    trace.kept(0, text.size());
    return true;
  }

  Result<bool> operator()(const StripStep& step) const {
    const std::uint8_t* table = unicode_table();
    const char* begin = text.data();
    const char* end = begin + text.size();
    const auto blank = [table](const char* at) {
      return in_classes(table[storage::code_point_at(at).value], kSpaceClasses);
    };
    while (step.left && begin < end && blank(begin)) {
      begin += storage::code_point_at(begin).length;
      at_start = false;
    }
    while (step.right && begin < end && blank(storage::previous_code_point(begin, end))) {
      end = storage::previous_code_point(begin, end);
    }
    out.assign(begin, end);
    trace.kept(static_cast<std::size_t>(begin - text.data()),
               static_cast<std::size_t>(end - text.data()));
    return true;
  }

  Result<bool> operator()(const LowercaseStep&) const {
    out.clear();
    for (std::size_t at = 0; at < text.size();) {
      const storage::CodePoint point = storage::code_point_at(text.data() + at);
      const std::size_t before = out.size();
      if (point.value == 0x130) {
        out += "i\u0307";
      } else {
        storage::append_utf8(out, lower_of(point.value));
      }
      trace.made(out.size() - before, at, at + point.length);
      at += point.length;
    }
    return true;
  }

  Result<bool> operator()(const SentencePieceStep& step) const {
    if (!trace.follows()) {
      step.rules->apply(text, out, nullptr);
      return true;
    }
    std::vector<std::size_t> places;
    step.rules->apply(text, out, &places);
    trace_places(places);
    return true;
  }

  Result<bool> operator()(const CharacterMapStep& step) const {
    map_clusters(*step.map, text, out, trace);
    return true;
  }

 private:
  /// Each byte stands for the span up to the next differing place.
  void trace_places(const std::vector<std::size_t>& places) const {
    for (std::size_t i = 0; i < out.size();) {
      std::size_t next = i;
      while (next < out.size() && places[next] == places[i]) {
        ++next;
      }
      trace.made(next - i, places[i], std::max(places[i], places[next]));
      i = next;
    }
  }

  /// A replacement of a text's beginning stands for its last character, as in the reference.
  static bool stays_at_start(const ReplaceStep& step, std::string_view replaced) {
    return !step.content.empty() &&
           storage::code_point_at(replaced.data()).length == replaced.size();
  }

  Result<bool> replace_literal(const ReplaceStep& step) const {
    std::size_t found = text.find(step.literal);
    if (found == std::string_view::npos) {
      return false;
    }
    at_start = at_start && (found != 0 || stays_at_start(step, step.literal));
    out.clear();
    std::size_t from = 0;
    for (; found != std::string_view::npos; found = text.find(step.literal, from)) {
      out.append(text.substr(from, found - from));
      out.append(step.content);
      trace.kept(from, found);
      from = found + step.literal.size();
      trace.made(step.content.size(), found, from);
    }
    out.append(text.substr(from));
    trace.kept(from, text.size());
    return true;
  }

  Result<bool> replace_matches(const ReplaceStep& step) const {
    Regex::Matches matches(step.pattern, text);
    out.clear();
    std::size_t from = 0;
    while (true) {
      auto match = TRAIN_TRY(matches.next());
      if (!match) {
        break;
      }
      const Match& place = *match;
      at_start = at_start && (place.begin != 0 || place.end == 0 ||
                              stays_at_start(step, text.substr(0, place.end)));
      out.append(text.substr(from, place.begin - from));
      out.append(step.content);
      trace.kept(from, place.begin);
      trace.made(step.content.size(), place.begin, place.end);
      from = place.end;
    }
    out.append(text.substr(from));
    trace.kept(from, text.size());
    return true;
  }
};

}  // namespace

bool to_unicode_form(UnicodeForm form, std::string_view text, std::string& out,
                     storage::OriginTrace& trace) {
  if (storage::ascii_prefix(text) == text.size()) {
    return false;
  }
  UnsafeParts parts(form, text);
  if (!parts.next()) {
    return false;
  }
  const unsigned flags = utf8proc_flags(form);
  out.clear();
  std::size_t from = 0;
  do {
    out.append(text.substr(from, parts.begin() - from));
    const std::size_t before = out.size();
    append_mapped(text.substr(parts.begin(), parts.end() - parts.begin()), flags, out);
    if (trace.follows()) {
      trace.kept(from, parts.begin());
      trace_mapped(text, parts.begin(), parts.end(), std::string_view(out).substr(before), flags,
                   trace);
    }
    from = parts.end();
  } while (parts.next());
  out.append(text.substr(from));
  trace.kept(from, text.size());
  return true;
}

Result<Normalizer::Output> Normalizer::apply(std::string_view text, std::string& buffer,
                                             storage::Origins* origins) const {
  Output output{.text = text, .at_start = true};
  std::string scratch;
  for (const NormalizationStep& step : steps_) {
    storage::OriginTrace trace(origins);
    auto changed =
        TRAIN_TRY(std::visit(StepRunner{output.text, scratch, output.at_start, trace}, step));
    if (changed) {
      trace.finish();
      // The step may have read the buffer: the new text is stored only now.
      buffer.swap(scratch);
      output.text = buffer;
    }
  }
  return output;
}

}  // namespace train::data
