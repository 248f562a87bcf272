#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "engine/model/tensor_map.hpp"
#include "engine/model/weight_source.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::checkpoint {

/// f32: the checkpoint's bits; the others: each element rounded to the nearest, halves to even.
using ExportType = storage::WeightType;

/// What an exported tensor has of a weight.
struct ExportPart {
  engine::Parameter parameter;
  engine::TensorPart part;
};

/// A tensor of the files: the weight of that name, or put together of parts.
struct ExportTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<ExportPart> parts = {};
};

/// Elements of the whole tensor.
[[nodiscard]] std::uint64_t element_count(const ExportTensor& tensor);

struct ExportRequest {
  std::filesystem::path directory;    ///< New, or empty.
  std::vector<ExportTensor> tensors;  ///< All the model's, in the order they are to be stored.
  ExportType type = ExportType::f32;
  std::uint64_t max_file_bytes = 5'000'000'000;  ///< Of tensors; one tensor may exceed it.
  std::string config_text;                       ///< Becomes config.json; empty: there is none.
  std::string file = "model";  ///< Without its ending: of the file, or of all and the index.
  std::map<std::string, std::string> texts = {};       ///< Files beside it, by name.
  std::vector<std::filesystem::path> companions = {};  ///< Files to be copied beside it.
  std::function<bool()> stop = {};  ///< Asked now and then; true ends the export.
};

struct ExportReport {
  std::vector<std::string> files;  ///< Those with tensors.
  std::size_t tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::size_t compared = 0;  ///< Tensors read back and found to be the checkpoint's.
};

/// A low-rank adapter of one linear map, as a checkpoint holds it.
struct ExportAdapter {
  std::string weight;       ///< Of the map: "model.layers.0.self_attn.q_proj.weight".
  bool transposed = false;  ///< That matrix is [inputs, outputs].
  double scale = 1.0;
  engine::Parameter a, b;  ///< [rank, inputs] and [outputs, rank].
};

/// Writes the weights of a checkpoint, put together from all its shards, for other programs:
/// `model.safetensors`, or above the limit `model-00001-of-0000N.safetensors` ... with
/// `model.safetensors.index.json`; and `config.json`. The directory appears whole, durable, and
/// after every tensor was read back and compared with the checkpoint, or not at all. Needs memory
/// for the largest tensor and what it is put together of. Blocks.
/// Maps with an adapter get W + scale B A, summed in double and rounded once. `averages`: as in
/// CheckpointWeights.
/// Errors: (user) the directory holds something; the checkpoint's weights are not those of
/// `tensors` and `adapters`, each in its shape; those of make_directory; (failure) damage, full
/// disk, stopped.
Result<ExportReport> export_weights(const std::filesystem::path& checkpoint,
                                    const Manifest& manifest, const ExportRequest& request,
                                    std::span<const ExportAdapter> adapters = {},
                                    std::string averages = {});

/// The same of weights from elsewhere, without a look at which these are; each is read twice.
Result<ExportReport> export_tensors(const ExportRequest& request,
                                    const engine::WeightSource& source);

}  // namespace train::checkpoint
