#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/models/export.hpp"

namespace train::checkpoint {

/// A low-rank adapter of one linear map, as a checkpoint holds it.
struct ExportAdapter {
  std::string weight;       ///< Of the map: "model.layers.0.self_attn.q_proj.weight".
  bool transposed = false;  ///< That matrix is [inputs, outputs].
  double scale = 1.0;
  ExportTensor a, b;  ///< [rank, inputs] and [outputs, rank].
};

/// export_weights() of a checkpoint with adapters: `request.tensors` are the model's own, and those
/// that have an adapter get W + scale B A, summed in double and rounded once.
/// Errors: export_weights()'s.
Result<ExportReport> export_merged(const std::filesystem::path& checkpoint,
                                   const Manifest& manifest, const ExportRequest& request,
                                   std::span<const ExportAdapter> adapters);

/// Reads tensors of a checkpoint's weights for export_tensors(), the maps with their adapters.
/// Arguments outlive it.
[[nodiscard]] ReadTensors tensors_of_checkpoint(const std::filesystem::path& checkpoint,
                                                const Manifest& manifest,
                                                std::span<const ExportAdapter> adapters);

}  // namespace train::checkpoint
