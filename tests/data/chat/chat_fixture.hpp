#pragma once

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.hpp"

namespace train::test {

using OrderedJson = nlohmann::ordered_json;

/// What tests/reference/texts/make_chat_fixtures.py made: templates, conversations, and what
/// transformers prints of them.
inline const OrderedJson& chat_fixtures() {
  static const OrderedJson fixtures = [] {
    std::ifstream file(ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures/chat_templates.json");
    REQUIRE(file.good());
    return OrderedJson::parse(file);
  }();
  return fixtures;
}

inline data::Conversation conversation_of(const OrderedJson& json) {
  const auto conversation = data::conversation_from_json(json);
  REQUIRE(conversation.ok());
  return *conversation;
}

inline std::vector<data::Conversation> fixture_conversations() {
  std::vector<data::Conversation> conversations;
  for (const OrderedJson& json : chat_fixtures().at("conversations")) {
    conversations.push_back(conversation_of(json));
  }
  return conversations;
}

/// A conversation of roles and contents.
inline data::Conversation turns(const std::vector<std::pair<std::string, std::string>>& messages) {
  data::Conversation conversation;
  for (const auto& [role, content] : messages) {
    conversation.messages.emplace_back(role, content);
  }
  return conversation;
}

inline data::ChatTemplate template_of(const std::string& source,
                                      const data::ChatSettings& settings = {}) {
  auto made = data::ChatTemplate::of_source(source, "a.jinja", settings);
  REQUIRE(made.ok());
  return std::move(made).value();
}

/// The text or the message of what failed.
inline std::string outcome_of(data::ChatTemplate& chat_template,
                              const data::Conversation& conversation,
                              const data::RenderOptions& options = {}) {
  const auto text = chat_template.render(conversation, options);
  return text ? *text : text.error().message;
}

/// The same of a template alone.
inline std::string outcome_of(const std::string& source, const data::ChatSettings& settings = {}) {
  auto chat_template = template_of(source, settings);
  return outcome_of(chat_template, turns({{"user", "Hello."}}));
}

}  // namespace train::test
