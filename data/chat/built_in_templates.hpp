#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "data/chat/chat_message.hpp"
#include "data/chat/chat_template.hpp"

namespace train::data {

/// Chat template of a model family, without Jinja: prints what the published template prints for
/// text-only conversations.
struct BuiltInTemplate {
  std::string_view name;
  SpecialTokens tokens;  ///< Defaults; settings may replace them.
  /// Errors (user): without the name of the template.
  Result<RenderedChat> (*render)(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                 const SpecialTokens& tokens);
  std::string_view source;  ///< Jinja template that prints the same, with those tokens.
};

/// All built-in templates, sorted by name.
[[nodiscard]] std::span<const BuiltInTemplate> built_in_templates();

}  // namespace train::data
