#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.hpp"
#include "data/chat/chat_template.hpp"

namespace train::cli {
namespace {

using data::ChatTemplate;
using data::Conversation;

std::string name_of_input(const RenderOptions& options) {
  return options.input.empty() || options.input == "-" ? "standard input" : options.input;
}

Result<ChatTemplate> open_template(const RenderOptions& options) {
  auto settings = data::ChatSettings::of_date(options.date);
  settings.name = options.name;
  return options.model.empty() ? ChatTemplate::find(options.chat_template, settings)
                               : ChatTemplate::open(options.model, settings);
}

/// Renders a single conversation.
Result<int> render_one(const RenderOptions& options, ChatTemplate& chat_template,
                       const std::string& input) {
  const auto conversation = data::parse_conversation(input);
  if (!conversation) {
    return user_error(fmt::format("{}: {}", name_of_input(options), conversation.error().message));
  }
  const auto text = TRAIN_TRY(chat_template.render(
      *conversation, {.add_generation_prompt = options.add_generation_prompt}));
  print(text);
  return kExitFinished;
}

/// JSON line of a rendered text.
std::string line_of_text(const Result<data::RenderedChat>& text) {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  if (!text) {
    line["error"] = text.error().message;
  } else {
    line["text"] = text->text;
    line["generated"] = nlohmann::ordered_json::array();
    for (const data::TextSpan& span : text->generated) {
      line["generated"].push_back({span.begin_characters, span.end_characters});
    }
  }
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// Renders one conversation per line, each with its own result.
Result<int> render_lines(const RenderOptions& options, ChatTemplate& chat_template,
                         const std::string& input) {
  std::vector<Conversation> conversations;
  std::istringstream stream(input);
  for (std::string line; std::getline(stream, line);) {
    auto conversation = data::parse_conversation(line);
    if (!conversation) {
      return user_error(fmt::format("{}, line {}: {}", name_of_input(options),
                                    conversations.size() + 1, conversation.error().message));
    }
    conversations.push_back(std::move(conversation).value());
  }
  int exit_code = kExitFinished;
  for (const auto& text : chat_template.render_all(
           conversations, {.add_generation_prompt = options.add_generation_prompt})) {
    print(line_of_text(text));
    exit_code = text ? exit_code : std::max(exit_code, text.error().exit_code());
  }
  return exit_code;
}

Result<int> render_input(const RenderOptions& options) {
  auto chat_template = TRAIN_TRY(open_template(options));
  const auto input = TRAIN_TRY(whole_input(options.input));
  return options.lines ? render_lines(options, chat_template, input)
                       : render_one(options, chat_template, input);
}

}  // namespace

/// Prints the model's input text for a conversation.
void describe_render(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("render", "Render a conversation, [{\"role\", ...}], with a chat template.");
  RenderOptions& options = command.runs(render_input);
  command.app.add_option("DIR", options.model, "Directory of a model, or a GGUF file")
      ->type_name("DIR");
  std::string names;
  for (const std::string_view name : data::built_in_chat_templates()) {
    names += fmt::format("{}, ", name);
  }
  command.text("--template", options.chat_template,
               fmt::format("Template instead of a model's: {}or a file", names), "NAME|FILE");
  command.text("--name", options.name, "Template to use, of a model with several", "NAME");
  command.text("--input", options.input, "JSON of the conversation; none or -: standard input",
               "FILE");
  command.app.add_flag("--add-generation-prompt", options.add_generation_prompt,
                       "End with the generation prompt");
  command.app.add_flag(
      "--lines", options.lines,
      "Read one conversation per line; print one JSON object per line, with text or error");
  command.date(options.date);
  command.check([&options] {
    return options.model.empty() == options.chat_template.empty()
               ? "give either the directory of a model or --template"
               : "";
  });
}

}  // namespace train::cli
