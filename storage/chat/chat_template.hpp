#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/chat/chat_message.hpp"

namespace train::storage {

/// Special tokens by the names that templates know them by ("bos_token", "eos_token", ...). What is
/// missing is undefined to a template.
using SpecialTokens = std::map<std::string, std::string, std::less<>>;

/// Sources of a model's templates by name: "default", "tool_use", ...
using TemplateSources = std::map<std::string, std::string, std::less<>>;

/// How templates are rendered. The text depends on nothing else: not on the day, the locale or the
/// environment.
struct ChatSettings {
  /// YYYY-MM-DD, as which strftime_now() prints "today".
  std::string date = "2024-07-26";
  /// Instead of a model's own, and besides them.
  SpecialTokens special_tokens = {};
  /// The tokenizer (a directory or a file) that reads the text: a template of another place has its
  /// special tokens, and not those beside the template. Empty: those beside it. Built-in templates
  /// have their own.
  std::filesystem::path tokenizer = {};
  /// Of the templates that a model has by name; empty: "tool_use" for a conversation with tools if
  /// there is one, else "default".
  std::string name = {};
  /// Processor time that one text may take; and in real time six times as much and 20 s.
  std::chrono::milliseconds time_limit{10'000};
  std::size_t output_limit_bytes = std::size_t{16} << 20U;
  std::size_t memory_limit_bytes = std::size_t{1} << 30U;
  /// Programs to render Jinja templates with: the first that has jinja2 3.1 or later.
  std::vector<std::string> pythons = {"python3", "/usr/bin/python3"};

  /// Those of a date; empty: the default's.
  [[nodiscard]] static ChatSettings of_date(const std::string& date) {
    ChatSettings settings;
    settings.date = date.empty() ? settings.date : date;
    return settings;
  }
};

/// A piece of a rendered text.
struct TextSpan {
  std::size_t begin_bytes = 0;
  std::size_t end_bytes = 0;
  std::size_t begin_characters = 0;  ///< The same in code points.
  std::size_t end_characters = 0;

  bool operator==(const TextSpan&) const = default;
};

struct RenderedChat {
  std::string text;
  /// What the model is to say, in the order of the text: the {% generation %} blocks of a Jinja
  /// template (none if it has none); of a built-in template what an assistant's turn holds, and the
  /// token that ends it.
  std::vector<TextSpan> generated;
  /// Members that say something, and that a template that was rendered with spans asked for in no
  /// message; sorted, without contents and thoughts.
  std::vector<std::string> unasked = {};
};

struct RenderOptions {
  bool add_generation_prompt = false;  ///< End with what comes before an assistant's turn.
};

/// The beginning of a conversation that is to be rendered.
struct ChatPrefix {
  std::size_t messages_count = 0;  ///< At most those of the conversation.
  RenderOptions options = {};
  /// Texts instead of the contents of some of those messages, by their index; all else that such a
  /// message says stays.
  std::map<std::size_t, std::string> contents = {};
};

/// What a template writes around an answer, in a conversation of a question and an answer alone.
struct TurnTexts {
  std::string question;  ///< What asks for the answer, as far as it stands right before one.
  std::string end;       ///< What follows the answer, to the end.
};

/// Turns conversations into text, as the model's authors do: a Jinja template, rendered by one
/// Python process that lives as long as this, or a built-in one without Python.
///
/// Threading: not thread-safe, and the process ends with the thread that rendered first (the next
/// render starts another). Ownership: movable. All calls block: opening on the disk; rendering at
/// most for the limits of ChatSettings for each text. Invariants: CT-1 the text is what
/// transformers' apply_chat_template gives. CT-2 a text depends on template, settings and
/// conversation alone.
class ChatTemplate {
 public:
  /// Of a model's directory: chat_template.jinja and those of additional_chat_templates/ by name,
  /// else what tokenizer_config.json has; of a GGUF file; or of a file with a template, which has
  /// the special tokens of `settings` and of a tokenizer_config.json beside it. Errors (user): name
  /// the file; a directory without a template, with what to do.
  static Result<ChatTemplate> open(const std::filesystem::path& path,
                                   const ChatSettings& settings = {});
  /// One of built_in_chat_templates(). Errors (user): no such name.
  static Result<ChatTemplate> built_in(std::string_view name, const ChatSettings& settings = {});
  /// `name_or_path`: as built_in() has it, else as open() has it.
  static Result<ChatTemplate> find(const std::string& name_or_path,
                                   const ChatSettings& settings = {});
  /// `source` is the text of a template; `where` it stands, for messages.
  static Result<ChatTemplate> of_source(const std::string& source, const std::string& where,
                                        const ChatSettings& settings = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Errors: one line. What the template raises, a mistake of its grammar or in what it looks up
  /// (with its line), a limit that it exceeds (all user; they name the template); no python3 with
  /// jinja2 (user, names the package); the process died (failure).
  Result<std::string> render(const Conversation& conversation, const RenderOptions& options = {});
  /// The same with the spans of what the model says. Errors: also (user) a generation block whose
  /// place in the text is not known, as it is in a macro.
  Result<RenderedChat> render_with_spans(const Conversation& conversation,
                                         const RenderOptions& options = {});
  /// Every conversation, in one exchange with the process; one that fails leaves the others be.
  std::vector<Result<RenderedChat>> render_all(std::span<const Conversation> conversations,
                                               const RenderOptions& options = {});
  /// Several beginnings of one conversation, in one exchange.
  std::vector<Result<RenderedChat>> render_prefixes(const Conversation& conversation,
                                                    std::span<const ChatPrefix> prefixes);

  /// Rendered once. None: the template asks with nothing, or writes the question in another way
  /// where an answer follows.
  const std::optional<TurnTexts>& turn_texts();

  /// A file's path, or "built-in template NAME".
  [[nodiscard]] const std::string& where() const;
  /// What makes the text, for keys of caches: sources, special tokens, date and name.
  [[nodiscard]] std::string fingerprint() const;
  [[nodiscard]] const SpecialTokens& special_tokens() const;
  /// As a model's files have them; of a built-in one what prints the same of texts by Jinja.
  [[nodiscard]] TemplateSources sources() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// The names of the built-in templates, sorted.
[[nodiscard]] std::span<const std::string_view> built_in_chat_templates();

}  // namespace train::storage
