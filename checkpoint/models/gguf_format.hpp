#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/models/export_format.hpp"
#include "storage/weight_files/gguf_blocks.hpp"
#include "storage/weight_files/gguf_writer.hpp"

namespace train::checkpoint {

/// Name of a GGUF file's types, as llama.cpp calls them.
enum class GgufKind : std::uint8_t { f32, f16, bf16, q8_0, q4_k_m };
/// "f32", "q4_k_m".
[[nodiscard]] std::string_view name_of(GgufKind kind);

/// Settings of a GGUF file.
struct GgufExport {
  GgufKind kind = GgufKind::f32;
  std::vector<storage::GgufField> metadata = {};
  std::int64_t layers = 0;
  std::int64_t experts = 0;  ///< Experts of a layer: 0 without.
  bool tied = false;         ///< The embedding is the head, too.
  /// Layers with attention's values, alone or fused, in their order; empty: all layers.
  std::vector<std::int64_t> attending = {};
  bool large = false;  ///< llama.cpp's 70B, whose values have more bits.
};
/// Layers for GgufExport::attending.
[[nodiscard]] std::vector<std::int64_t> attending_layers(std::span<const ExportTensor> tensors);
/// Type of a tensor: vectors, routers and positions are F32, q4_k_m mixes types as llama.cpp does.
[[nodiscard]] const storage::GgufType& gguf_type_of(const ExportTensor& tensor,
                                                    const GgufExport& settings);
/// GGUF files, which llama.cpp reads.
[[nodiscard]] std::shared_ptr<const ExportFormat> gguf_format(GgufExport settings);

}  // namespace train::checkpoint
