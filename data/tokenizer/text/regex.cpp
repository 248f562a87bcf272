#include "data/tokenizer/text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "data/tokenizer/text/regex_syntax.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

/// Limit of steps from one position; patterns that do not explode take a few for each byte of a
/// word.
constexpr std::uint32_t kMatchLimit = 5'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kPatternLimitBytes = std::size_t{64} * 1024;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR8, 256> text{};
  pcre2_get_error_message_8(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct CodeFree {
  void operator()(pcre2_code_8* code) const { pcre2_code_free_8(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data_8* data) const { pcre2_match_data_free_8(data); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context_8* context) const { pcre2_match_context_free_8(context); }
};
struct JitStackFree {
  void operator()(pcre2_jit_stack_8* stack) const { pcre2_jit_stack_free_8(stack); }
};

PCRE2_SPTR8 code_units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR8>(text.data()); }

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code_8, CodeFree> code;
};

struct Regex::Matches::State {
  std::unique_ptr<pcre2_match_data_8, MatchDataFree> data;
  std::unique_ptr<pcre2_match_context_8, MatchContextFree> context;
  std::unique_ptr<pcre2_jit_stack_8, JitStackFree> stack;
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternLimitBytes) {
    return user_error(fmt::format("regular expression of {} bytes; at most {} are read",
                                  pattern.size(), kPatternLimitBytes));
  }
  auto rewritten = TRAIN_TRY(rewritten_for_pcre2(pattern));
  return compile_rewritten(std::string(pattern), rewritten);
}

Result<Regex> Regex::literal(std::string_view text) {
  return compile_rewritten(std::string(text), quoted_for_pcre2(text));
}

Result<Regex> Regex::compile_rewritten(std::string pattern, const std::string& rewritten) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Ruby ^ and $ always match at lines.
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  auto code = std::make_shared<Code>();
  code->code.reset(
      pcre2_compile_8(code_units(rewritten), rewritten.size(), options, &error, &offset, nullptr));
  if (code->code == nullptr) {
    return user_error(fmt::format("regular expression {} is not understood: {}",
                                  storage::shown(pattern), pcre2_message(error)));
  }
  // Without JIT the matches are equal, but slower.
  static_cast<void>(pcre2_jit_compile_8(code->code.get(), PCRE2_JIT_COMPLETE));
  return Regex(std::move(pattern), std::move(code));
}

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create_from_pattern_8(regex.code_->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create_8(nullptr));
  TRAIN_CHECK(state_->data != nullptr && state_->context != nullptr);
  pcre2_set_match_limit_8(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit_8(state_->context.get(), kHeapLimitKib);
}

Regex::Matches::~Matches() = default;

Result<std::optional<Match>> Regex::Matches::next() {
  while (from_ <= text_.size()) {
    // The text is known to be valid: checking it for each match would be quadratic.
    const auto search = [this] {
      return pcre2_match_8(regex_.code_->code.get(), code_units(text_), text_.size(), from_,
                           PCRE2_NO_UTF_CHECK, state_->data.get(), state_->context.get());
    };
    int found = search();
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && state_->stack == nullptr) {
      constexpr std::size_t kib = 1024;
      state_->stack.reset(pcre2_jit_stack_create_8(64 * kib, kHeapLimitKib * kib, nullptr));
      pcre2_jit_stack_assign_8(state_->context.get(), nullptr, state_->stack.get());
      found = search();
    }
    if (found == PCRE2_ERROR_NOMATCH) {
      from_ = text_.size() + 1;
      break;
    }
    if (found < 0) {
      return user_error(
          fmt::format("regular expression {} takes too long on a text of {} bytes: {}; write it "
                      "without nested repetitions",
                      storage::shown(regex_.pattern_), text_.size(), pcre2_message(found)));
    }
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer_8(state_->data.get());
    const Match match{.begin = place[0], .end = place[1]};
    if (match.begin == match.end && last_end_ == match.end) {
      from_ += from_ < text_.size() ? storage::code_point_at(text_.data() + from_).length : 1;
      continue;
    }
    from_ = match.end;
    last_end_ = match.end;
    return std::optional(match);
  }
  return std::optional<Match>();
}

}  // namespace train::data
