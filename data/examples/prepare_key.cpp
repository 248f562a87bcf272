#include "data/examples/prepare_key.hpp"

#include <fmt/format.h>

#include <vector>

#include "data/rows/row_format.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/input_file.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

/// Version of the rules that turn lines into rows: rows of older versions are prepared again.
constexpr int kRowRulesVersion = 3;

}  // namespace

std::string template_of(const PrepareRowsRequest& request) {
  if (!request.chat_template.empty()) {
    return request.chat_template;
  }
  std::error_code ignored;
  const fs::path tokenizer = request.tokenizer;
  return fs::is_directory(tokenizer, ignored) ? request.tokenizer
                                              : tokenizer.parent_path().string();
}

ChatSettings chat_settings_of(const PrepareRowsRequest& request) {
  ChatSettings settings = ChatSettings::of_date(request.date);
  settings.tokenizer = request.tokenizer;
  return settings;
}

Result<std::string> prepare_key(const PrepareRowsRequest& request) {
  std::string text = fmt::format("rows {} rules {}\n", kRowFormatVersion, kRowRulesVersion);
  for (const fs::path& input : request.inputs) {
    const auto digest = TRAIN_TRY(storage::digest_file(input));
    text += fmt::format("input {} {}\n", digest, input.filename().string());
  }
  if (request.layout != storage::SaidLayout::nothing) {
    text += fmt::format("layout {}\n", static_cast<int>(request.layout));
  }
  for (const fs::path& file : tokenizer_files(request.tokenizer)) {
    const auto digest = TRAIN_TRY(storage::digest_file(file));
    text += fmt::format("tokenizer {} {}\n", digest, file.filename().string());
  }
  const auto chat_template = ChatTemplate::find(template_of(request), chat_settings_of(request));
  if (!chat_template && !request.chat_template.empty()) {
    return chat_template.error();
  }
  text += fmt::format("template {}\n", chat_template ? chat_template->fingerprint() : "none");
  text +=
      fmt::format("kind {} packing {} length {} last {} source {} val {:a} seed {}\n",
                  request.kind ? example_kind_name(*request.kind) : "",
                  request.packing ? packing_name(*request.packing) : "", request.row_length,
                  request.train_on_last, request.source_key, request.val_fraction, request.seed);
  if (request.part != AnswerPart::whole) {  // Else the key of earlier versions.
    text += fmt::format("part {}\n", request.part == AnswerPart::final ? "final" : "thinking");
  }
  if (!request.keywords.empty()) {
    const auto digest = TRAIN_TRY(storage::digest_file(request.keywords));
    text += fmt::format("keywords {}\n", digest);
  }
  return storage::digest_text(text);
}

}  // namespace train::data
