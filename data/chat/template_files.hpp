#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "data/chat/chat_template.hpp"
#include "data/chat/jinja_process.hpp"

namespace train::data {

/// Chat templates found in a model's files.
struct TemplateFiles {
  TemplateSources sources;  ///< At least one.
  SpecialTokens tokens;
  std::string where;  ///< File with the templates.
};

/// Reads the files listed at ChatTemplate::open().
[[nodiscard]] Result<TemplateFiles> read_template_files(const std::filesystem::path& path);

/// Errors (user): a template name that cannot be a file name.
[[nodiscard]] Status check_template_names(const TemplateSources& sources);

/// Makes these the templates of a tokenizer's directory, as transformers writes them:
/// chat_template.jinja, named ones in additional_chat_templates/, none in tokenizer_config.json or
/// chat_template.json. No-op if they already are. Each file is whole or absent. Blocks. Errors
/// (user): those of check_template_names(); a tokenizer_config.json that is not a JSON object;
/// write errors.
[[nodiscard]] Status write_template_files(const TemplateSources& sources,
                                          const std::filesystem::path& folder);

/// Special tokens of a tokenizer, as transformers passes them to templates: of a directory, of the
/// files beside a tokenizer file, or of a GGUF file. Errors (user): a file that is not a JSON
/// object.
[[nodiscard]] Result<SpecialTokens> read_special_tokens(const std::filesystem::path& tokenizer);

}  // namespace train::data
