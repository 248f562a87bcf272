#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "storage/chat/chat_template.hpp"
#include "storage/chat/jinja_process.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::storage {

/// What a model's files say of its chat template.
struct TemplateFiles {
  TemplateSources sources;  ///< At least one.
  SpecialTokens tokens;
  std::string where;  ///< The file with the templates.
};

/// Reads what ChatTemplate::open() says.
[[nodiscard]] Result<TemplateFiles> read_template_files(const std::filesystem::path& path);

/// Errors (user): a template's name that is no file's.
[[nodiscard]] Status check_template_names(const TemplateSources& sources);

/// Makes these the templates of a tokenizer's directory, as transformers writes them:
/// chat_template.jinja, others by name in additional_chat_templates/, and none in
/// tokenizer_config.json or chat_template.json. Does nothing where they are that already. Each file
/// whole or absent. Blocks. Errors (user): those of check_template_names(); a tokenizer_config.json
/// that is no JSON object; those of writing.
[[nodiscard]] Status write_template_files(const TemplateSources& sources,
                                          const std::filesystem::path& folder);

/// The special tokens of a tokenizer, as transformers hands them to templates: of a directory, of a
/// file by what lies beside it, of a GGUF file. Errors (user): a file that is no JSON object.
[[nodiscard]] Result<SpecialTokens> read_special_tokens(const std::filesystem::path& tokenizer);

/// The templates in a GGUF file, "default" and others by name, and its special tokens: bos, eos,
/// unk and pad. Both may be empty.
[[nodiscard]] TemplateSources gguf_template_sources(const GgufFile& file);
[[nodiscard]] SpecialTokens gguf_special_tokens(const GgufFile& file);

}  // namespace train::storage
