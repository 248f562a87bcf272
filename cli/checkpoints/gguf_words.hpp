#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "checkpoint/models/export.hpp"
#include "checkpoint/models/gguf_format.hpp"
#include "cli/command.hpp"
#include "engine/model/spec.hpp"

// Parts of `export` and `convert` that write GGUF files.
namespace train::cli {

/// Kind of a --dtype: "fp32", "bf16", "fp16", "q8_0" or "q4_k_m".
[[nodiscard]] std::optional<checkpoint::GgufKind> gguf_kind_of(std::string_view dtype);

/// Turns a request for all weights of `model`, whose tensors it replaces, into one for a GGUF file,
/// model-<TYPE>.gguf, with its tokenizer and a Modelfile for Ollama; shows notes. `config_text`:
/// the config.json. `tokenizer`: directory of its files; empty: none. `name`: the model's.
/// Errors: those of gguf_metadata() and gguf_vocabulary().
Status make_gguf(checkpoint::ExportRequest& request, const engine::ModelSpec& model,
                 const std::string& config_text, const std::filesystem::path& tokenizer,
                 checkpoint::GgufKind kind, const std::string& name);

}  // namespace train::cli
