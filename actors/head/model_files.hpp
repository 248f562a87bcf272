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

namespace train::actors {

/// A published model's config.json.
struct ModelConfigText {
  std::string text;
  std::string source;               ///< A path, or what a shipped shape is called.
  std::filesystem::path directory;  ///< That it lies in; empty of a shipped shape.
};

/// A name of a shipped shape, a path of a config.json, or a directory with one. Blocks.
/// Errors (user): there is none; the line lists the shapes; a shape and something in the working
/// directory have the name.
[[nodiscard]] Result<ModelConfigText> find_model_config(const std::string& name_or_path);

/// A published model's directory, opened.
struct PublishedModel {
  ModelConfigText config;  ///< With what the weights decide (tie_word_embeddings).
  engine::ModelSpec spec;
  std::shared_ptr<const checkpoint::PublishedWeights> weights;
  std::vector<std::string> notes;  ///< What is there and left out, a sentence each.
};

/// Opens it for a run of `sequence_length` (0: not known). Blocks on the files' headers, and on a
/// head that may be the embedding.
/// Errors: those of find_model_config(), spec_from_config() and PublishedWeights::open.
[[nodiscard]] Result<PublishedModel> open_model(const std::string& directory,
                                                std::int64_t sequence_length);

/// Says them in the log, as warnings.
void show_notes(const std::string& directory, const std::vector<std::string>& notes);

/// Whether [model] names a published model rather than an architecture and its dimensions.
[[nodiscard]] bool is_published(const configs::ModelSection& section);

/// The model of a run. `dataset_vocab`: of its data; 0: not known. Blocks on config.json.
/// Errors (user): those of find_model_config(), open_model(), spec_from_config(), resolve_shape().
/// A published model may know fewer tokens than the data's tokenizer has: see TokenSplit::read.
[[nodiscard]] Result<engine::ModelSpec> resolve_model(const configs::RunConfig& config,
                                                      std::int64_t dataset_vocab);

/// model.from's weights for a model; null where it is not set. Blocks on the files' headers.
/// Errors: those of PublishedWeights::open.
[[nodiscard]] Result<std::shared_ptr<const engine::WeightSource>> open_weights(
    const configs::ModelSection& section, const engine::ModelSpec& model);

/// What tells the weights that a run begins with from others: a digest over all bytes of
/// model.from's files, or the seed of weights that are drawn; empty: the files are gone. Kept in
/// `run_root` and read from there as long as the files have their sizes and times of change, so
/// that they are read once a run. Blocks; takes 1 MiB. Errors: a file cannot be read.
[[nodiscard]] Result<std::string> weights_fingerprint(const configs::RunConfig& config,
                                                      const std::filesystem::path& run_root);

/// The run's own copy of what belongs to a published model besides its weights, which evaluating,
/// generating and exporting need when the original is gone: `<run>/model/`.
[[nodiscard]] std::filesystem::path model_directory(const std::filesystem::path& run_root);

/// Makes that copy: config.json, and tokenizer and generation files if there are any. Each file
/// whole or absent. Does nothing for other models, and for a run that goes on without the original.
/// `begins`: no step of the run is done, so an older copy is replaced. Blocks.
/// Errors: (user) the run goes on, and config.json is not what it began with; those of writing.
Status keep_model_files(const configs::ModelSection& section, const std::filesystem::path& run_root,
                        bool begins);

/// Makes the tokenizer that the data of `config` was prepared with part of that copy where the
/// model brings none, as one that begins from config.json or a shipped shape: what is exported of
/// the run needs it. What ends a text is then what the data says. Does nothing without such a copy,
/// and of data that keeps no tokenizer. Blocks. Errors: those of reading and writing.
Status keep_data_tokenizer(const configs::RunConfig& config, const std::filesystem::path& run_root);

/// Names the tokens that the data of `config` trains as the ends of an assistant's turns
/// (RowFacts::turn_ends) as ends of texts in that copy's generation_config.json, so that the run's
/// model and what is exported of it stop there: behind those that the model has already. Does
/// nothing without such a copy, and for data without turns. Blocks.
/// Errors: (user) a generation_config.json, or meta.json, that is malformed; those of writing.
Status keep_turn_ends(const configs::RunConfig& config, const std::filesystem::path& run_root);

/// Makes the chat template that the conversations of the data of `config` were rendered with
/// (RowFacts::chat_template) that of the same copy: of what the run generates, and of what is
/// exported. Does nothing without such a copy, and for data without conversations. Blocks.
/// Warns where the data has it no more. Errors: (user) a meta.json that is malformed; those of
/// writing.
Status keep_chat_template(const configs::RunConfig& config, const std::filesystem::path& run_root);

/// `config` of the run in `run_root`, with that copy in the place of a config.json that is gone, or
/// whose weights are.
[[nodiscard]] configs::RunConfig with_own_model(configs::RunConfig config,
                                                const std::filesystem::path& run_root);

/// Names of the files beside config.json that belong to a model and are not its weights.
[[nodiscard]] std::span<const char* const> companion_files();

}  // namespace train::actors
