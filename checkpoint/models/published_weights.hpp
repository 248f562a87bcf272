#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/tensor_map.hpp"
#include "engine/model/weight_source.hpp"
#include "storage/weight_files/weight_directory.hpp"

namespace train::checkpoint {

/// Weights of a published model's directory in the layout of a spec's units (engine::Dialect::hf).
/// Handles common name variants: a prefix before all names, or none; ignores buffers that are not
/// weights; an embedding may have the name of Mamba's original program. Experts may be one tensor
/// for all of a layer (engine::Dialect::stacked).
///
/// The files decide whether the head is tied, as in transformers, if config.json declares it tied:
/// a stored head equal to the embedding is tied, a different one is not, and a head without an
/// embedding serves as both. Threading: as WeightDirectory.
class PublishedWeights final : public engine::WeightSource {
 public:
  /// Reads a head that may equal the embedding, to compare them; otherwise only the headers. Errors
  /// (user): a tensor is missing, has another shape or dtype, or is unused in a part of the model
  /// (the line names it, and how many more); those of WeightDirectory::open.
  static Result<std::shared_ptr<const PublishedWeights>> open(const std::filesystem::path& path,
                                                              const engine::ModelSpec& spec);

  /// `parameter`: one of the spec's, or a tensor of kept(). Errors: a non-finite value (user);
  /// those of reading.
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;

  [[nodiscard]] const storage::WeightDirectory& directory() const { return directory_; }
  /// Name in the files of the tensor that transformers calls `name`.
  [[nodiscard]] std::string name_in_files(const std::string& name) const;
  /// Tensors of ModelSpec::kept, as transformers calls them.
  [[nodiscard]] const std::vector<storage::TensorEntry>& kept() const { return kept_; }
  /// Model spec, with an untied head if the files have a different one.
  [[nodiscard]] const engine::ModelSpec& model() const { return model_; }
  /// Weights that the model does not use, or uses otherwise than config.json says; a sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  PublishedWeights(storage::WeightDirectory directory, const engine::ModelSpec& spec)
      : directory_(std::move(directory)), model_(spec) {}
  [[nodiscard]] std::string renamed(const std::string& name) const;
  [[nodiscard]] std::string embedding_in_files() const;
  void find_prefix();
  Status decide_head();
  Result<bool> head_is_embedding() const;
  [[nodiscard]] engine::Dialect dialect() const;
  Status check();
  [[nodiscard]] std::string mistake_of(const engine::TensorPart& part) const;
  [[nodiscard]] std::string missing(const std::string& name) const;
  [[nodiscard]] bool in_own_part(const std::string& name) const;
  [[nodiscard]] bool keep(const std::string& name);
  void note_surplus(const std::vector<std::string>& surplus);

  storage::WeightDirectory directory_;
  engine::ModelSpec model_;
  std::map<std::string, engine::MappedParameter> map_;  ///< Keyed by the parameter's name.
  std::string dropped_;     ///< Prefix of the spec's names that the files lack.
  std::string added_;       ///< Prefix used by the files instead.
  bool head_only_ = false;  ///< The tied matrix is stored under the head's name only.
  std::vector<storage::TensorEntry> kept_;
  std::vector<std::string> notes_;
};

}  // namespace train::checkpoint
