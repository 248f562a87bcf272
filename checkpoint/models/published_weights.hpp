#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/weight_source.hpp"
#include "storage/weight_files/weight_directory.hpp"

namespace train::checkpoint {

/// The weights of a published model's directory as the units of a spec want them: every parameter
/// is a tensor of the same name and shape. Names that programs vary are known: a prefix before all
/// of them, or none; buffers that are no weights are left alone.
/// Threading: as WeightDirectory.
class PublishedWeights final : public engine::WeightSource {
 public:
  /// Errors (user), before anything is read: a tensor is missing, has another shape or type, or
  /// belongs to nothing (the line names it, and how many more); those of WeightDirectory::open.
  static Result<std::shared_ptr<const PublishedWeights>> open(const std::filesystem::path& path,
                                                              const engine::ModelSpec& spec);

  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;

  [[nodiscard]] const storage::WeightDirectory& directory() const { return directory_; }
  /// Name of the parameter's tensor in the files.
  [[nodiscard]] std::string name_in_files(const std::string& parameter) const;

 private:
  explicit PublishedWeights(storage::WeightDirectory directory)
      : directory_(std::move(directory)) {}
  void find_prefix(const engine::ModelSpec& spec);
  Status check(const engine::ModelSpec& spec) const;

  storage::WeightDirectory directory_;
  std::string dropped_;  ///< Prefix of the spec's names that the files lack.
  std::string added_;    ///< And what they have in its stead.
};

}  // namespace train::checkpoint
