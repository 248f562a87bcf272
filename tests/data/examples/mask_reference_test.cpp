// What transformers marks as the model's (see tests/reference/texts/make_mask_fixtures.py), found
// without the marks.

#include <catch2/catch.hpp>

#include "data/examples/conversation_mask.hpp"
#include "tests/data/chat/chat_fixture.hpp"

namespace train::data::testing::mask_reference_test {

using train::test::OrderedJson;

OrderedJson mask_fixtures() {
  std::ifstream file(ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures/masks.json");
  REQUIRE(file.good());
  return OrderedJson::parse(file);
}

/// Each byte's place in code points.
std::vector<std::size_t> characters_of(const std::string& text) {
  std::vector<std::size_t> places;
  std::size_t characters = 0;
  for (const char byte : text) {
    places.push_back(characters);
    characters += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U ? 1 : 0;
  }
  places.push_back(characters);
  return places;
}

/// The pieces without the white space at their ends, and those that touch as one, as a text.
std::string pieces(const std::string& text,
                   std::vector<std::pair<std::size_t, std::size_t>> spans) {
  std::string all;
  for (auto& [begin, end] : spans) {
    const auto space = [&](std::size_t at) { return text[at] == ' ' || text[at] == '\n'; };
    while (begin < end && space(begin)) {
      ++begin;
    }
    while (begin < end && space(end - 1)) {
      --end;
    }
    all += std::to_string(begin) + "[" + text.substr(begin, end - begin) + "]\n";
  }
  return all;
}

/// Where the last token ends that is the answer's: a tail may end within one, which is the answer's
/// only where it ends the turn.
std::size_t whole_tokens(const std::string& text, const AnswerSpan& span) {
  const std::size_t end = span.end_bytes;
  const std::size_t open = text.find_last_of("<[", end - 1);
  if (open == std::string::npos || open < end - span.tail_bytes ||
      text.find_first_of(">]", open) < end) {
    return end;
  }
  return open == end - span.tail_bytes ? text.find_first_of(">]", open) + 1 : open;
}

std::string found_pieces(const MaskedConversation& masked) {
  std::vector<std::pair<std::size_t, std::size_t>> spans;
  for (const AnswerSpan& span : masked.answers) {
    spans.emplace_back(span.begin_bytes, whole_tokens(masked.text, span));
  }
  return pieces(masked.text, spans);
}

std::string wanted_pieces(const OrderedJson& wanted) {
  const auto text = wanted.at("text").get<std::string>();
  const auto places = characters_of(text);
  std::vector<std::pair<std::size_t, std::size_t>> spans;
  for (const auto& span : wanted.at("spans")) {
    const auto byte = [&](std::size_t character) {
      return static_cast<std::size_t>(std::find(places.begin(), places.end(), character) -
                                      places.begin());
    };
    spans.emplace_back(byte(span[0]), byte(span[1]));
  }
  return pieces(text, spans);
}

TEST_CASE("masks: without marks the places are those that transformers finds by them",
          "[data][examples][AP-1]") {
  const OrderedJson fixtures = mask_fixtures();
  ChatSettings settings;
  settings.date = fixtures.at("date").get<std::string>();
  settings.special_tokens = fixtures.at("tokens").get<SpecialTokens>();
  for (const OrderedJson& each : fixtures.at("templates")) {
    auto chat_template = test::template_of(each.at("source").get<std::string>(), settings);
    int placed = 0;
    for (std::size_t i = 0; i < fixtures.at("lines").size(); ++i) {
      const OrderedJson& wanted = each.at("outcomes")[i];
      if (wanted.contains("error")) {
        continue;
      }
      INFO(each.at("name") << ", conversation " << i << ": " << fixtures.at("lines")[i].dump());
      const Conversation conversation = test::conversation_of(fixtures.at("lines")[i]);
      std::vector<float> weights;
      for (const ChatMessage& message : conversation.messages) {
        weights.push_back(message.role() == "assistant" ? 1.0F : 0.0F);
      }
      const auto outcome = mask_conversation(chat_template, conversation, weights);
      const auto* const masked = std::get_if<MaskedConversation>(&outcome);
      if (masked == nullptr) {
        CHECK(std::get<Dropped>(outcome).reason == DropReason::call_lost);
        continue;
      }
      ++placed;
      CHECK(masked->method == MaskMethod::placeholders);
      CHECK(masked->text == wanted.at("text").get<std::string>());
      CHECK(found_pieces(*masked) == wanted_pieces(wanted));
    }
    CHECK(placed >= 40);
  }
}

}  // namespace train::data::testing::mask_reference_test
