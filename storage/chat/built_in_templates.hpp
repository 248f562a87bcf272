#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "storage/chat/chat_message.hpp"
#include "storage/chat/chat_template.hpp"

namespace train::storage {

/// A family's way to write conversations, without Jinja: what its published template prints for
/// conversations of texts.
struct BuiltInTemplate {
  std::string_view name;
  SpecialTokens tokens;  ///< Unless others are given.
  /// Errors (user): without the name of the template.
  Result<RenderedChat> (*render)(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                 const SpecialTokens& tokens);
  std::string_view source;  ///< A Jinja template that prints the same, with those tokens.
};

/// All of them, sorted by name.
[[nodiscard]] std::span<const BuiltInTemplate> built_in_templates();

}  // namespace train::storage
