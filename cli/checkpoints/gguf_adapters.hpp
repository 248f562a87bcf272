#pragma once

#include <span>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/models/export.hpp"
#include "checkpoint/models/gguf_format.hpp"
#include "engine/model/spec.hpp"

namespace train::cli {

/// Adapters of a model as a GGUF file that llama.cpp applies to the model's own: "NAME.lora_a"
/// [rank, inputs] and "NAME.lora_b" [outputs, rank] for each tensor NAME, rows of B in the order of
/// NAME's.
struct GgufAdapters {
  std::vector<checkpoint::ExportTensor> tensors;
  checkpoint::GgufExport settings;  ///< F32, with all metadata.
};

/// Errors (user): llama.cpp has no such architecture; a map that its file holds in another form
/// than one matrix, which is named.
Result<GgufAdapters> gguf_adapters(const engine::ModelSpec& model,
                                   std::span<const checkpoint::ExportAdapter> adapters);

}  // namespace train::cli
