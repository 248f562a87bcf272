#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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

/// Model in a GGUF file, presented as the published original: a config.json rebuilt from the
/// metadata, and dequantized weights (engine::Dialect::gguf). Threading: reads from several
/// threads. All calls block on the disk.
class GgufModel final : public engine::WeightSource {
 public:
  /// Errors: (user) the file is one of several of a model, those of gguf_config(); those of
  /// GgufFile::open.
  static Result<GgufModel> open(const std::filesystem::path& path);

  [[nodiscard]] const std::string& config_text() const { return config_text_; }
  [[nodiscard]] const storage::GgufFile& file() const { return file_; }
  /// Lossless dtype for the file's elements; for a quantized file bfloat16.
  [[nodiscard]] storage::WeightType type() const { return type_; }
  /// Number of its last layers, which predict further tokens and are left out.
  [[nodiscard]] std::uint64_t further_layers() const;
  /// Finds the tensors of the model that config_text() describes. Errors (user): a tensor is
  /// missing, has another shape or is unused; names it.
  [[nodiscard]] Status check(const engine::ModelSpec& model);
  /// REQUIRES: check() passed. Errors: those of GgufFile::read_fp32.
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;

 private:
  explicit GgufModel(storage::GgufFile file) : file_(std::move(file)) {}

  storage::GgufFile file_;
  std::map<std::string, engine::MappedParameter> map_;  ///< Keyed by the parameter's name.
  std::string config_text_;
  storage::WeightType type_ = storage::WeightType::bf16;
};

}  // namespace train::checkpoint
