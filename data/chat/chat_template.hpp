#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/process.hpp"
#include "base/result.hpp"
#include "data/chat/chat_message.hpp"

namespace train::data {

/// Special tokens by template variable ("bos_token", "eos_token", ...). A missing one is undefined
/// in the template.
using SpecialTokens = std::map<std::string, std::string, std::less<>>;

/// Sources of a model's templates by name: "default", "tool_use", ...
using TemplateSources = std::map<std::string, std::string, std::less<>>;

/// Settings of rendering. The text depends on nothing else: not on the day, the locale or the
/// environment.
struct ChatSettings {
  /// YYYY-MM-DD that strftime_now() prints as "today".
  std::string date = "2024-07-26";
  /// Override or extend a model's own special tokens.
  SpecialTokens special_tokens = {};
  /// Tokenizer (directory or file) that will encode the text: a template from elsewhere gets its
  /// special tokens, not those beside the template. Empty: those beside the template. Built-in
  /// templates have their own.
  std::filesystem::path tokenizer = {};
  /// Which of a model's named templates; empty: "tool_use" for a conversation with tools if it
  /// exists, otherwise "default".
  std::string name = {};
  /// CPU time limit per text; the wall clock limit is six times that plus 20 s.
  std::chrono::milliseconds time_limit{10'000};
  std::size_t output_limit_bytes = std::size_t{16} << 20U;
  std::size_t memory_limit_bytes = std::size_t{1} << 30U;
  /// Python programs to try for Jinja templates: the first one with jinja2 3.1 or later is used.
  std::vector<std::string> pythons = python_programs();

  /// Settings with this date; empty: the default date.
  [[nodiscard]] static ChatSettings of_date(const std::string& date) {
    ChatSettings settings;
    settings.date = date.empty() ? settings.date : date;
    return settings;
  }
};

/// Piece of a rendered text.
struct TextSpan {
  std::size_t begin_bytes = 0;
  std::size_t end_bytes = 0;
  std::size_t begin_characters = 0;  ///< Begin and end in code points.
  std::size_t end_characters = 0;

  bool operator==(const TextSpan&) const = default;
};

struct RenderedChat {
  std::string text;
  /// Spans written by the model, in order: the {% generation %} blocks of a Jinja template (empty
  /// if it has none), or the content of assistant turns of a built-in template with the token that
  /// ends each.
  std::vector<TextSpan> generated;
  /// Non-empty members that a template rendered with spans read in no message; sorted, without
  /// contents and thoughts.
  std::vector<std::string> unasked = {};
};

struct RenderOptions {
  bool add_generation_prompt = false;  ///< Append the beginning of an assistant's turn.
};

/// Prefix of a conversation to render.
struct ChatPrefix {
  std::size_t messages_count = 0;  ///< At most the conversation's number of messages.
  RenderOptions options = {};
  /// Replacement contents for some messages, by index; their other members stay.
  std::map<std::size_t, std::string> contents = {};
};

/// Template text around an answer, in a conversation of one question and one answer.
struct TurnTexts {
  std::string question;  ///< Text that directly precedes the answer and prompts for it.
  std::string end;       ///< Text after the answer, to the end.
};

/// Renders conversations to text with the model's chat template: a Jinja template, rendered by one
/// Python process that lives as long as this object, or a built-in one without Python.
///
/// Threading: not thread-safe, and the process ends with the thread that rendered first (the next
/// render starts another). Ownership: movable. All calls block: opening on the disk; rendering at
/// most for the limits of ChatSettings for each text. Invariants: CT-1 the text equals that of
/// transformers' apply_chat_template. CT-2 a text depends only on template, settings and
/// conversation.
class ChatTemplate {
 public:
  /// Opens the templates of a model directory: chat_template.jinja and the named ones of
  /// additional_chat_templates/, otherwise those of tokenizer_config.json; of a GGUF file; or of a
  /// template file, with the special tokens of `settings` and of a tokenizer_config.json beside it.
  /// Errors (user): name the file; a directory without a template, with a way out.
  static Result<ChatTemplate> open(const std::filesystem::path& path,
                                   const ChatSettings& settings = {});
  /// One of built_in_chat_templates(). Errors (user): unknown name.
  static Result<ChatTemplate> built_in(std::string_view name, const ChatSettings& settings = {});
  /// `name_or_path`: as in built_in(), otherwise as in open().
  static Result<ChatTemplate> find(const std::string& name_or_path,
                                   const ChatSettings& settings = {});
  /// `source`: text of the template; `where`: its place, for messages.
  static Result<ChatTemplate> of_source(const std::string& source, const std::string& where,
                                        const ChatSettings& settings = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Errors: one line. An exception raised by the template, a syntax or lookup error (with its
  /// line), an exceeded limit (all user; they name the template); no python3 with jinja2 (user,
  /// names the package); the process died (failure).
  Result<std::string> render(const Conversation& conversation, const RenderOptions& options = {});
  /// Renders with the spans written by the model. Errors: also (user) a generation block whose
  /// place in the text is unknown, as inside a macro.
  Result<RenderedChat> render_with_spans(const Conversation& conversation,
                                         const RenderOptions& options = {});
  /// Renders each conversation, in one exchange with the process; a failure does not affect the
  /// others.
  std::vector<Result<RenderedChat>> render_all(std::span<const Conversation> conversations,
                                               const RenderOptions& options = {});
  /// Renders several prefixes of one conversation, in one exchange.
  std::vector<Result<RenderedChat>> render_prefixes(const Conversation& conversation,
                                                    std::span<const ChatPrefix> prefixes);

  /// Rendered once. Empty if the template has no generation prompt, or writes the question
  /// differently before an answer.
  const std::optional<TurnTexts>& turn_texts();

  /// A file's path, or "built-in template NAME".
  [[nodiscard]] const std::string& where() const;
  /// Fingerprint of everything that determines the text, for cache keys: sources, special tokens,
  /// date and name.
  [[nodiscard]] std::string fingerprint() const;
  [[nodiscard]] const SpecialTokens& special_tokens() const;
  /// Template sources as in a model's files; for a built-in template, Jinja that prints the same
  /// for text messages.
  [[nodiscard]] TemplateSources sources() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// The names of the built-in templates, sorted.
[[nodiscard]] std::span<const std::string_view> built_in_chat_templates();

}  // namespace train::data
