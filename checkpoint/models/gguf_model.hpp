#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/tensor_map.hpp"
#include "engine/model/weight_source.hpp"
#include "storage/weight_files/element_types.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// A model in a GGUF file, as the published one that it was made of: its config.json made again
/// from the metadata, and its weights (engine::Dialect::gguf), dequantized.
/// Threading: reads from several threads. Everything blocks on the disk.
class GgufModel final : public engine::WeightSource {
 public:
  /// Errors: (user) one of several files of a model, those of gguf_config(); those of
  /// GgufFile::open.
  static Result<GgufModel> open(const std::filesystem::path& path);

  [[nodiscard]] const std::string& config_text() const { return config_text_; }
  [[nodiscard]] const storage::GgufFile& file() const { return file_; }
  /// A type that loses nothing of the file's elements; of a quantised file bfloat16.
  [[nodiscard]] storage::WeightType type() const { return type_; }
  /// Finds the tensors of the model that config_text() describes.
  /// Errors (user): one is missing, misshapen or belongs to nothing; names it.
  [[nodiscard]] Status check(const engine::ModelSpec& model);
  /// REQUIRES: check() passed. Errors: those of GgufFile::read_fp32.
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;

 private:
  explicit GgufModel(storage::GgufFile file) : file_(std::move(file)) {}

  storage::GgufFile file_;
  std::vector<engine::MappedParameter> map_;
  std::string config_text_;
  storage::WeightType type_ = storage::WeightType::bf16;
};

}  // namespace train::checkpoint
