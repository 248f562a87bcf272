#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/models/export.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "cli/command.hpp"
#include "engine/model/spec.hpp"

// Parts shared by `export` and `convert`.
namespace train::cli {

/// Type named "fp32", "bf16" or "fp16".
[[nodiscard]] std::optional<storage::WeightType> weight_type_of(std::string_view word);

/// Option --dtype.
CLI::Option* read_dtype(CommandSyntax& command, std::string& target, const std::string& help);
/// Option --max-shard-size, or --max-file-bytes.
void read_file_size(CommandSyntax& command, std::optional<std::uint64_t>& target);
/// The limit of a file's size for a format: as given, otherwise 5 GB, and none of gguf.
[[nodiscard]] std::uint64_t file_limit(std::optional<std::uint64_t> given, std::string_view format);
/// Mistake of --dtype or --no-tokenizer with that format: a sentence; empty: none.
[[nodiscard]] std::string format_mistake(std::string_view format, std::string_view dtype,
                                         bool no_tokenizer);

/// Every tensor of the dialect's files, in the order of the units.
[[nodiscard]] std::vector<checkpoint::ExportTensor> tensors_of(
    const engine::ModelSpec& model, engine::Dialect dialect = engine::Dialect::hf);

/// Names of the parameters that no file has (Parameter::unpublished).
[[nodiscard]] std::vector<std::string> counts_of(const engine::ModelSpec& model);

/// The tensors that exports keep besides the model's own (PublishedWeights::kept). fp32 stays fp32.
[[nodiscard]] std::vector<checkpoint::ExportTensor> kept_tensors(
    const std::shared_ptr<const checkpoint::PublishedWeights>& weights);

/// Those of companion_files() that exist in `directory`.
[[nodiscard]] std::vector<std::filesystem::path> companions_in(
    const std::filesystem::path& directory);

}  // namespace train::cli
