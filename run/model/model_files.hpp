#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "configs/run_config.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/weight_source.hpp"

namespace train::run {

/// Config.json of a published model.
struct ModelConfigText {
  std::string text;
  std::string source;               ///< Path, or name of a shipped shape.
  std::filesystem::path directory;  ///< Its directory; empty for a shipped shape.
};

/// Accepts a name of a shipped shape, a path of a config.json, or a directory with one. Blocks.
/// Errors (user): there is none (the line lists the shapes); the name is that of a shape and of
/// something in the working directory.
[[nodiscard]] Result<ModelConfigText> find_model_config(const std::string& name_or_path);

/// Opened directory of a published model.
struct PublishedModel {
  ModelConfigText config;  ///< Includes what the weights decide (tie_word_embeddings).
  engine::ModelSpec spec;
  std::shared_ptr<const checkpoint::PublishedWeights> weights;
  std::vector<std::string> notes;  ///< Ignored parts of the model, a sentence each.
};

/// The text of a config.json with the rope that model.rope asks for, and the context that it then
/// has: as transformers writes it. Pure. Errors (user): the model's rope is scaled already, goes by
/// layers, or has no context of its own.
[[nodiscard]] Result<std::string> with_rope(const ModelConfigText& config,
                                            const configs::RopeSection& rope);

/// Checks that the model, made of that text, has read the rope. Errors (user): its attention has
/// none, or it has no attention.
[[nodiscard]] Status check_rope_read(const ModelConfigText& config, const engine::ModelSpec& spec,
                                     const configs::RopeSection& rope);

/// Opens a model for a run of `sequence_length` (0: not known). Blocks on the files' headers, and
/// on an output head that may equal the embedding. Errors: those of find_model_config(),
/// spec_from_config() and PublishedWeights::open.
[[nodiscard]] Result<PublishedModel> open_model(const std::string& directory,
                                                std::int64_t sequence_length,
                                                const configs::RopeSection& rope = {});

/// Logs the notes as warnings.
void show_notes(const std::string& directory, const std::vector<std::string>& notes);

/// True if [model] names a published model rather than an architecture with its dimensions.
[[nodiscard]] bool is_published(const configs::ModelSection& section);

/// Resolves the model of a run. `dataset_vocab`: the data's vocabulary; 0: not known. Blocks on
/// config.json. Errors (user): those of find_model_config(), open_model(), spec_from_config(),
/// resolve_shape(). A published model may know fewer tokens than the data's tokenizer: see
/// TokenSplit::read.
[[nodiscard]] Result<engine::ModelSpec> resolve_model(const configs::RunConfig& config,
                                                      std::int64_t dataset_vocab);

/// Opens the weights of model.from; null if it is not set. Blocks on the files' headers. Errors:
/// those of PublishedWeights::open.
[[nodiscard]] Result<std::shared_ptr<const engine::WeightSource>> open_weights(
    const configs::ModelSection& section, const engine::ModelSpec& model);

/// Fingerprint of a run's initial weights: a digest over all bytes of model.from's files, or the
/// seed of random weights; empty: the files are gone. Cached in `run_root` until the size or
/// modification time of a file changes, so that the files are read once per run. Blocks; takes 1
/// MiB. Errors: a file cannot be read.
[[nodiscard]] Result<std::string> weights_fingerprint(const configs::RunConfig& config,
                                                      const std::filesystem::path& run_root);

/// Directory of the run's own copy of a published model's files other than its weights,
/// `<run>/model/`. Evaluating, generating and exporting need the copy when the original is gone.
[[nodiscard]] std::filesystem::path model_directory(const std::filesystem::path& run_root);

/// Makes the copy in model_directory(): config.json, and tokenizer and generation files if there
/// are any. Each file is whole or absent. No-op for other models, and for a resumed run without the
/// original. `begins`: no step of the run is done, so an older copy is replaced. Blocks. Errors:
/// (user) the run resumes and config.json has changed since it began; those of writing.
Status copy_model_files(const configs::ModelSection& section, const std::filesystem::path& run_root,
                        bool begins);

/// Copies the data's tokenizer into model_directory() if the model has none (started from
/// config.json or a shipped shape): an export of the run needs it. The end-of-text token is then
/// the data's. No-op without a model directory, and for data without a tokenizer. Blocks. Errors:
/// those of reading and writing.
Status keep_data_tokenizer(const configs::RunConfig& config, const std::filesystem::path& run_root);

/// Adds the tokens that end an assistant's turn in the data of `config` (RowFacts::turn_ends) to
/// the end-of-text tokens in model_directory()'s generation_config.json, after the model's own, so
/// that the run's model and its exports stop there. No-op without a model directory, and for data
/// without turns. Blocks. Errors: (user) a malformed generation_config.json or meta.json; those of
/// writing.
Status keep_turn_ends(const configs::RunConfig& config, const std::filesystem::path& run_root);

/// Copies the chat template that the conversations of the data of `config` were rendered with
/// (RowFacts::chat_template) into model_directory(), for generation and export. No-op without a
/// model directory, and for data without conversations. Blocks. Warns if the data no longer has the
/// template. Errors: (user) a malformed meta.json; those of writing.
Status keep_chat_template(const configs::RunConfig& config, const std::filesystem::path& run_root);

/// Returns `config` of the run in `run_root`, with model_directory() in place of a config.json that
/// is gone or whose weights are.
[[nodiscard]] configs::RunConfig use_run_copy(configs::RunConfig config,
                                              const std::filesystem::path& run_root);

/// Names of a model's files beside config.json and the weights.
[[nodiscard]] std::span<const char* const> companion_files();

}  // namespace train::run
