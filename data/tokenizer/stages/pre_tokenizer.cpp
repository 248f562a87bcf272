#include "data/tokenizer/stages/pre_tokenizer.hpp"

#include <algorithm>

#include "data/tokenizer/text/unicode_tables.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

/// Combines matches and the text between them according to a behavior.
template <class Emit>
class Joiner {
 public:
  Joiner(MatchBehavior behavior, Emit& emit) : behavior_(behavior), emit_(emit) {}

  /// Adds the next part of the text.
  void part(Match place, bool match) {
    switch (behavior_) {
      case MatchBehavior::isolated:
        emit_(place);
        return;
      case MatchBehavior::removed:
        if (!match) {
          emit_(place);
        }
        return;
      case MatchBehavior::merged_with_previous:
        join(place, match && !held_match_);
        break;
      case MatchBehavior::merged_with_next:
        join(place, !match && held_match_);
        break;
      case MatchBehavior::contiguous:
        join(place, match == held_match_);
        break;
    }
    held_match_ = match;
  }

  void finish() {
    if (holds_) {
      emit_(held_);
    }
  }

 private:
  void join(Match place, bool with_held) {
    if (holds_ && with_held) {
      held_.end = place.end;
      return;
    }
    finish();
    held_ = place;
    holds_ = true;
  }

  MatchBehavior behavior_;
  Emit& emit_;
  Match held_ = {};  ///< The part that may grow, if it holds_ one.
  bool holds_ = false;
  bool held_match_ = false;  ///< True if the last part was a match.
};

bool is_digit(char32_t value, std::uint8_t entry) {
  // The reference uses another library here, with two blocks of Unicode 17.0.
  return in_classes(entry, kNumberClasses) || (value >= 0x11de0 && value <= 0x11de9) ||
         (value >= 0x16ff4 && value <= 0x16ff6);
}

bool is_punctuation(char32_t value, std::uint8_t entry) {
  // The reference's table is that of Unicode 8.0, with two more punctuation characters.
  return in_classes(entry, classes(CharClass::punctuation, CharClass::connector)) ||
         (value < 0x80 && in_classes(entry, kSymbolClasses)) || value == 0x166d || value == 0x111c9;
}

bool is_of_kind(ClassStage::Kind kind, char32_t value, std::uint8_t entry) {
  switch (kind) {
    case ClassStage::Kind::digit:
      return is_digit(value, entry);
    case ClassStage::Kind::punctuation:
      return is_punctuation(value, entry);
    case ClassStage::Kind::space:
      break;
  }
  return in_classes(entry, kSpaceClasses);
}

/// Part of the text, with the origins of its bytes if wanted.
struct Piece {
  std::string_view bytes;
  const storage::TokenSpan* origins = nullptr;

  [[nodiscard]] Piece part(std::size_t begin, std::size_t end) const {
    return {bytes.substr(begin, end - begin), origins == nullptr ? nullptr : origins + begin};
  }
};

/// Text that a stage makes of a piece.
class MadeText {
 public:
  explicit MadeText(const Piece& from) : from_(from) {}

  void reserve(std::size_t bytes_count) {
    bytes_.reserve(bytes_count);
    if (from_.origins != nullptr) {
      origins_.reserve(bytes_count);
    }
  }
  /// Adds text that stands for these bytes of the piece.
  void add(std::string_view text, std::size_t begin, std::size_t end) {
    bytes_ += text;
    if (from_.origins != nullptr) {
      origins_.insert(
          origins_.end(), text.size(),
          storage::span_of(from_.bytes.substr(begin, end - begin), from_.origins + begin));
    }
  }
  /// Adds text that stands for the first character of the piece, as that does itself.
  void add_before(std::string_view text) {
    add(text, 0, storage::code_point_at(from_.bytes.data()).length);
  }
  /// Adds these bytes of the piece.
  void keep(std::size_t begin, std::size_t end) {
    bytes_ += from_.bytes.substr(begin, end - begin);
    if (from_.origins != nullptr) {
      origins_.insert(origins_.end(), from_.origins + begin, from_.origins + end);
    }
  }

  [[nodiscard]] Piece piece() const {
    return {bytes_, from_.origins == nullptr ? nullptr : origins_.data()};
  }

 private:
  Piece from_;
  std::string bytes_;
  storage::Origins origins_;
};

/// One call of split(): takes each piece through all stages before the next piece.
class SplitRun {
 public:
  SplitRun(const std::vector<PreTokenizerStage>& stages, WordSink& sink)
      : stages_(stages), sink_(sink) {}

  void piece(std::size_t stage, Piece text, bool at_start) {
    if (text.bytes.empty() || !status_) {
      return;
    }
    if (stage == stages_.size()) {
      sink_.word(text.bytes, text.origins);
      return;
    }
    std::visit([&](const auto& one) { run(one, stage + 1, text, at_start); }, stages_[stage]);
  }

  [[nodiscard]] const Status& status() const { return status_; }

 private:
  void run(const SplitStage& stage, std::size_t next, Piece whole, bool at_start) {
    const std::string_view text = whole.bytes;
    auto emit = [&](Match place) {
      piece(next, whole.part(place.begin, place.end), at_start && place.begin == 0);
    };
    Joiner joiner(stage.behavior, emit);
    const auto part = [&](Match place, bool match) { joiner.part(place, match != stage.invert); };
    if (const auto* known = std::get_if<KnownSplitter>(&stage.pattern)) {
      for (std::size_t at = 0; at < text.size();) {
        const auto found = known->next(text.data() + at, text.data() + text.size());
        const auto end = static_cast<std::size_t>(found.end - text.data());
        part({at, end}, found.match);
        at = end;
      }
    } else if (const auto* regex = std::get_if<Regex>(&stage.pattern)) {
      for_matches(*regex, text, part);
    } else {
      for_literal(std::get<std::string>(stage.pattern), text, part);
    }
    joiner.finish();
  }

  template <class Part>
  void for_matches(const Regex& regex, std::string_view text, const Part& part) {
    Regex::Matches matches(regex, text);
    std::size_t from = 0;
    while (true) {
      const auto match = matches.next();
      if (!match) {
        status_ = match.error();
        return;
      }
      if (!*match) {
        break;
      }
      const Match& place = **match;
      if (place.begin != from) {
        part({from, place.begin}, false);
      }
      part(place, true);
      from = place.end;
    }
    if (from != text.size()) {
      part({from, text.size()}, false);
    }
  }

  template <class Part>
  void for_literal(const std::string& literal, std::string_view text, const Part& part) {
    std::size_t from = 0;
    for (std::size_t found = text.find(literal); found != std::string_view::npos;
         found = text.find(literal, from)) {
      if (found != from) {
        part(Match{from, found}, false);
      }
      from = found + literal.size();
      part(Match{found, from}, true);
    }
    if (from != text.size()) {
      part(Match{from, text.size()}, false);
    }
  }

  void run(const ByteLevelStage& stage, std::size_t next, Piece whole, bool) {
    MadeText prefixed(whole);
    if (stage.add_prefix_space && !whole.bytes.starts_with(' ')) {
      prefixed.reserve(whole.bytes.size() + 1);
      prefixed.add_before(" ");
      prefixed.keep(0, whole.bytes.size());
      whole = prefixed.piece();
    }
    if (!stage.splitter) {
      piece(next, whole, false);
      return;
    }
    const char* const begin = whole.bytes.data();
    for (std::size_t at = 0; at < whole.bytes.size();) {
      const char* after = stage.splitter->next(begin + at, begin + whole.bytes.size()).end;
      const auto end = static_cast<std::size_t>(after - begin);
      piece(next, whole.part(at, end), false);
      at = end;
    }
  }

  void run(const MetaspaceStage& stage, std::size_t next, Piece whole, bool at_start) {
    const std::string_view text = whole.bytes;
    MadeText made(whole);
    made.reserve(text.size() + text.size() / 2 + stage.replacement.size());
    const bool wanted = stage.prepend == PrependScheme::always ||
                        (stage.prepend == PrependScheme::first && at_start);
    if (wanted && !text.starts_with(' ') && !text.starts_with(stage.replacement)) {
      made.add_before(stage.replacement);
    }
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t space = std::min(text.find(' ', at), text.size());
      made.keep(at, space);
      if (space < text.size()) {
        made.add(stage.replacement, space, space + 1);
      }
      at = space + 1;
    }
    const Piece replaced = made.piece();
    if (!stage.split) {
      piece(next, replaced, at_start);
      return;
    }
    auto emit = [&](Match place) {
      piece(next, replaced.part(place.begin, place.end), at_start && place.begin == 0);
    };
    Joiner joiner(MatchBehavior::merged_with_next, emit);
    for_literal(stage.replacement, replaced.bytes,
                [&](Match place, bool match) { joiner.part(place, match); });
    joiner.finish();
  }

  void run(const ClassStage& stage, std::size_t next, Piece whole, bool at_start) {
    const std::string_view text = whole.bytes;
    auto emit = [&](Match place) {
      piece(next, whole.part(place.begin, place.end), at_start && place.begin == 0);
    };
    Joiner joiner(stage.behavior, emit);
    const std::uint8_t* table = unicode_table();
    std::size_t gap = 0;
    for (std::size_t at = 0; at < text.size();) {
      const storage::CodePoint point = storage::code_point_at(text.data() + at);
      if (is_of_kind(stage.kind, point.value, table[point.value])) {
        if (gap != at) {
          joiner.part({gap, at}, false);
        }
        gap = at + point.length;
        joiner.part({at, gap}, true);
      }
      at += point.length;
    }
    if (gap != text.size()) {
      joiner.part({gap, text.size()}, false);
    }
    joiner.finish();
  }

  void run(const WordRunStage&, std::size_t next, Piece whole, bool at_start) {
    const std::string_view text = whole.bytes;
    enum class Kind : std::uint8_t { space, word, sign };
    const std::uint8_t* table = unicode_table();
    Kind kind = Kind::space;
    std::size_t begin = 0;
    const auto flush = [&](std::size_t end) {
      if (kind != Kind::space) {
        piece(next, whole.part(begin, end), at_start && begin == 0);
      }
    };
    for (std::size_t at = 0; at < text.size();) {
      const storage::CodePoint point = storage::code_point_at(text.data() + at);
      const std::uint8_t entry = table[point.value];
      const Kind seen = in_classes(entry, kSpaceClasses)  ? Kind::space
                        : in_classes(entry, kWordClasses) ? Kind::word
                                                          : Kind::sign;
      if (seen != kind) {
        flush(at);
        kind = seen;
        begin = at;
      }
      at += point.length;
    }
    flush(text.size());
  }

  const std::vector<PreTokenizerStage>& stages_;
  WordSink& sink_;
  Status status_;
};

/// Splitter equivalent to all stages, if there is one.
std::optional<KnownSplitter> only_splitter(const std::vector<PreTokenizerStage>& stages) {
  if (stages.empty() || stages.size() > 2) {
    return std::nullopt;
  }
  const auto* bytes = std::get_if<ByteLevelStage>(&stages.back());
  if (bytes == nullptr || bytes->add_prefix_space) {
    return std::nullopt;
  }
  if (stages.size() == 1) {
    return bytes->splitter;
  }
  const auto* split = std::get_if<SplitStage>(&stages.front());
  if (split == nullptr || bytes->splitter) {
    return std::nullopt;
  }
  const auto* known = std::get_if<KnownSplitter>(&split->pattern);
  // Keeps a match or a gap: these patterns leave no gaps.
  const bool keeps = split->behavior == MatchBehavior::isolated ||
                     (split->behavior == MatchBehavior::removed && split->invert);
  const bool gaps = known != nullptr && (known->pattern() == KnownPattern::digits3 ||
                                         known->pattern() == KnownPattern::han_kana ||
                                         known->pattern() == KnownPattern::deepseek_words);
  return known != nullptr && keeps && !gaps ? std::optional(*known) : std::nullopt;
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PreTokenizerStage> stages)
    : stages_(std::move(stages)), only_(only_splitter(stages_)) {
  byte_level_ = !stages_.empty() && std::holds_alternative<ByteLevelStage>(stages_.back());
}

std::optional<bool> PreTokenizer::prefix_space() const {
  std::optional<bool> prefix;
  for (const PreTokenizerStage& stage : stages_) {
    if (const auto* bytes = std::get_if<ByteLevelStage>(&stage)) {
      prefix = prefix.value_or(false) || bytes->add_prefix_space;
    } else if (const auto* spaces = std::get_if<MetaspaceStage>(&stage)) {
      prefix = prefix.value_or(false) || spaces->prepend != PrependScheme::never;
    }
  }
  return prefix;
}

Status PreTokenizer::split(std::string_view text, const storage::TokenSpan* origins, bool at_start,
                           WordSink& sink) const {
  if (only_) {
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;) {
      const char* after = only_->next(at, end).end;
      sink.word({at, static_cast<std::size_t>(after - at)},
                origins == nullptr ? nullptr : origins + (at - text.data()));
      at = after;
    }
    return {};
  }
  SplitRun run(stages_, sink);
  run.piece(0, {text, origins}, at_start);
  return run.status();
}

}  // namespace train::data
