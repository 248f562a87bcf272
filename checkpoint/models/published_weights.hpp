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

/// The weights of a published model's directory as the units of a spec want them
/// (engine::Dialect::hf). Names that programs vary are known: a prefix before all of them, or none;
/// buffers that are no weights are left alone.
///
/// Whether the head is the embedding the files decide, as transformers has it, where config.json
/// says that it is: a head of their own that has the embedding's values is tied, another is not,
/// and one without an embedding is both.
/// Threading: as WeightDirectory.
class PublishedWeights final : public engine::WeightSource {
 public:
  /// Reads a head that may be the embedding, to compare them; of all else the headers alone.
  /// Errors (user): a tensor is missing, has another shape or type, or is in a part of the model
  /// where it belongs to nothing (the line names it, and how many more); those of
  /// WeightDirectory::open.
  static Result<std::shared_ptr<const PublishedWeights>> open(const std::filesystem::path& path,
                                                              const engine::ModelSpec& spec);

  /// Errors: a value that is not finite (user); those of reading.
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;

  [[nodiscard]] const storage::WeightDirectory& directory() const { return directory_; }
  /// What the tensor that transformers calls `name` is called in the files.
  [[nodiscard]] std::string name_in_files(const std::string& name) const;
  /// The spec, with a head of its own where the files have another than the embedding.
  [[nodiscard]] const engine::ModelSpec& model() const { return model_; }
  /// What the files hold and the model does not use, or use otherwise than config.json says; a
  /// sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  PublishedWeights(storage::WeightDirectory directory, const engine::ModelSpec& spec)
      : directory_(std::move(directory)), model_(spec) {}
  [[nodiscard]] std::string renamed(const std::string& name) const;
  void find_prefix();
  Status decide_head();
  Result<bool> head_is_embedding() const;
  Status check();
  [[nodiscard]] std::string mistake_of(const engine::TensorPart& part) const;
  [[nodiscard]] std::string missing(const std::string& name) const;
  [[nodiscard]] bool in_own_part(const std::string& name) const;
  void note_surplus(const std::vector<std::string>& surplus);

  storage::WeightDirectory directory_;
  engine::ModelSpec model_;
  std::map<std::string, engine::MappedParameter> map_;  ///< By the parameter's name.
  std::string dropped_;     ///< Prefix of the spec's names that the files lack.
  std::string added_;       ///< And what they have in its stead.
  bool head_only_ = false;  ///< The tied matrix is there under the head's name alone.
  std::vector<std::string> notes_;
};

}  // namespace train::checkpoint
