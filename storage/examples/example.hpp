#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "storage/chat/chat_message.hpp"
#include "storage/inputs/line_fault.hpp"

namespace train::storage {

/// What a line of a data set is an example of.
enum class ExampleKind : std::uint8_t {
  chat,        ///< Messages; or ShareGPT's, or Alpaca's members, which become messages.
  prompt,      ///< A prompt and its completion.
  preference,  ///< A better answer and a worse one.
  kto,         ///< A prompt, its completion, and whether that is desirable.
  text,        ///< A text, all of which is trained.
};

/// Errors (user): lists the names.
[[nodiscard]] Result<ExampleKind> example_kind_named(std::string_view name);
[[nodiscard]] std::string_view example_kind_name(ExampleKind kind);
/// By the members of a line; none: those of no kind.
[[nodiscard]] std::optional<ExampleKind> example_kind_of(const nlohmann::ordered_json& line);
/// The members that each kind is known by, for messages.
[[nodiscard]] std::string_view example_kinds_help();

/// Why a line gives no document.
enum class DropReason : std::uint8_t {
  long_line,
  cut_off,  ///< These and what follows up to `not_json`: as LineFault has them.
  half_surrogate,
  no_number,
  huge_number,
  bad_byte,
  control,
  fields,
  open_quote,
  not_json,
  members,  ///< Some are missing, or of another kind's type.
  message,  ///< One that is no message.
  image,    ///< Content that is no text.
  label,    ///< Neither true nor false.
  empty_answer,
  equal_pair,   ///< Both answers have the same tokens.
  pair_prompt,  ///< Which of a pair's words are its prompt is not known.
  nothing_trained,
  template_error,  ///< The template refuses the conversation.
  no_mask,         ///< The answers' places in the text are not known.
  call_lost,       ///< The template writes nothing of a call.
  truncated_away,  ///< What is trained lies behind the row's end.
  text_error,      ///< The tokenizer refuses the text.
};
inline constexpr std::size_t drop_reason_count = 23;
[[nodiscard]] std::string_view drop_reason_text(DropReason reason);
[[nodiscard]] DropReason drop_reason_of(LineFault fault);

struct Dropped {
  DropReason reason = DropReason::members;
  std::string detail = {};  ///< What it is about; may be empty.
};

/// What a line says that its document does not have.
enum class RemarkKind : std::uint8_t {
  not_read,      ///< A member that nobody reads.
  left_out,      ///< What the template does not write as it is said.
  unknown_role,  ///< A role that is left to the template.
};
inline constexpr std::size_t remark_kind_count = 3;

struct Remark {
  RemarkKind kind = RemarkKind::not_read;
  std::string name = {};

  bool operator==(const Remark&) const = default;
};

/// A text and which parts of it are trained.
struct ExampleText {
  /// Rendered by a template, if there is one.
  std::optional<Conversation> conversation = {};
  /// Of each message of the conversation; 0: it is not trained. Only an assistant's is above 0.
  std::vector<float> message_weights = {};
  std::string prompt = {};  ///< Without a conversation: this, which is not trained,
  std::string answer = {};  ///< and this, which is.
};

struct Example {
  ExampleKind kind = ExampleKind::text;
  ExampleText text = {};                  ///< Or the better answer.
  std::optional<ExampleText> worse = {};  ///< Of a preference.
  bool desirable = true;                  ///< Of KTO's.
  std::string source = {};                ///< As the line says; empty: it does not.
  std::vector<Remark> remarks = {};
};

struct ExampleOptions {
  ExampleKind kind = ExampleKind::text;
  bool train_on_last = false;   ///< Only the last answer of a conversation.
  std::string source_key = {};  ///< The member that names a line's source; empty: none.
};

/// Of one line. Pure.
[[nodiscard]] std::variant<Example, Dropped> parse_example(std::string_view line,
                                                           const ExampleOptions& options);

}  // namespace train::storage
