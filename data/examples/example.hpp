#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "data/chat/chat_message.hpp"
#include "storage/inputs/line_fault.hpp"

namespace train::data {

/// Kind of example that a line of a data set holds.
enum class ExampleKind : std::uint8_t {
  chat,        ///< Messages, or ShareGPT's or Alpaca's members, converted to messages.
  prompt,      ///< Prompt and completion.
  preference,  ///< Chosen and rejected answer.
  kto,         ///< Prompt, completion, and a label: desirable or not.
  text,        ///< Plain text, trained in full.
};

/// Errors (user): lists the names.
[[nodiscard]] Result<ExampleKind> example_kind_named(std::string_view name);
[[nodiscard]] std::string_view example_kind_name(ExampleKind kind);
/// Kind of a line by its members; nullopt: no known kind.
[[nodiscard]] std::optional<ExampleKind> example_kind_of(const nlohmann::ordered_json& line);
/// Members that identify each kind, for messages.
[[nodiscard]] std::string_view example_kinds_help();

/// Reason why a line yields no document.
enum class DropReason : std::uint8_t {
  long_line,
  cut_off,  ///< This and the following values up to `not_json`: as in LineFault.
  half_surrogate,
  no_number,
  huge_number,
  bad_byte,
  control,
  fields,
  open_quote,
  not_json,
  members,  ///< Members are missing, or of the wrong type for the kind.
  message,  ///< An element is not a message.
  image,    ///< Content is not text.
  label,    ///< Neither true nor false.
  empty_answer,
  equal_pair,   ///< Both answers have equal tokens.
  pair_prompt,  ///< The prompt of a preference pair is ambiguous.
  nothing_trained,
  template_error,  ///< The template rejects the conversation.
  no_mask,         ///< The answers' places in the text are unknown.
  call_lost,       ///< The template does not print a tool call.
  truncated_away,  ///< All trained tokens lie beyond the row's end.
  text_error,      ///< The tokenizer rejects the text.
  unknown_role,    ///< A role that may be why nothing is trained, or why the template rejects it.
};
inline constexpr std::size_t kDropReasonCount = 24;
[[nodiscard]] std::string_view drop_reason_text(DropReason reason);
[[nodiscard]] DropReason drop_reason_of(storage::LineFault fault);

struct Dropped {
  DropReason reason = DropReason::members;
  std::string detail = {};  ///< Subject of the message; may be empty.
};

/// Content of a line that is missing from its document.
enum class RemarkKind : std::uint8_t {
  not_read,      ///< A member that is never read.
  left_out,      ///< Text that the template does not print unchanged.
  unknown_role,  ///< An unknown role, left to the template.
};
inline constexpr std::size_t kRemarkKindCount = 3;

struct Remark {
  RemarkKind kind = RemarkKind::not_read;
  std::string name = {};

  bool operator==(const Remark&) const = default;
};

/// Text, and its trained parts.
struct ExampleText {
  /// Rendered by a template, if there is one.
  std::optional<Conversation> conversation = {};
  /// Weight of each message of the conversation; 0: not trained. Non-zero only for the assistant's.
  std::vector<float> message_weights = {};
  std::string prompt = {};  ///< Without a conversation: this text, untrained,
  std::string answer = {};  ///< and this one, trained.
};

struct Example {
  ExampleKind kind = ExampleKind::text;
  ExampleText text = {};                  ///< For a preference the chosen answer.
  std::optional<ExampleText> worse = {};  ///< For a preference the rejected answer.
  bool desirable = true;                  ///< KTO label.
  std::string source = {};                ///< As given by the line; empty: not given.
  std::vector<Remark> remarks = {};
};

struct ExampleOptions {
  ExampleKind kind = ExampleKind::text;
  bool train_on_last = false;   ///< Train only the last answer of a conversation.
  std::string source_key = {};  ///< Member that names a line's source; empty: none.
};

/// Parses one line. Pure.
[[nodiscard]] std::variant<Example, Dropped> parse_example(std::string_view line,
                                                           const ExampleOptions& options);

}  // namespace train::data
