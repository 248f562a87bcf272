#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"
#include "engine/model/tensor_map.hpp"
#include "engine/model/weight_source.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::checkpoint {

/// f32: the checkpoint's bits; the others: each element rounded to nearest, ties to even.
using ExportType = storage::WeightType;

/// Part of a weight in an exported tensor.
struct ExportPart {
  engine::Parameter parameter;
  engine::TensorPart part;
};

/// Exported tensor: the weight of that name, a concatenation of parts, or a tensor of a `source` of
/// its own.
struct ExportTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<ExportPart> parts = {};
  std::optional<ExportType> type = {};                      ///< Instead of the request's.
  std::shared_ptr<const engine::WeightSource> source = {};  ///< No weight of the checkpoint.
};

/// Number of elements of the whole tensor.
[[nodiscard]] std::uint64_t element_count(const ExportTensor& tensor);

class ExportFormat;

struct ExportRequest {
  std::filesystem::path directory;    ///< New, or empty.
  std::vector<ExportTensor> tensors;  ///< All tensors of the model, in storage order.
  ExportType type = ExportType::f32;
  std::shared_ptr<const ExportFormat> format = {};  ///< Default: safetensors of `type`.
  std::uint64_t max_file_bytes = 5'000'000'000;     ///< Tensor bytes; one tensor may exceed it.
  std::string config_text;                          ///< Content of config.json; empty: not written.
  std::string file = "model";  ///< Base name of the file, or of all files and the index.
  std::map<std::string, std::string> texts = {};       ///< Further files, by name.
  std::vector<std::filesystem::path> companions = {};  ///< Files to copy beside it.
  std::vector<std::string> left_out = {};  ///< Weights of the checkpoint that no file has: counts.
  std::function<bool()> stop = {};         ///< Polled by any thread; true cancels the export.
};

struct ExportReport {
  std::vector<std::string> files;  ///< Files with tensors.
  std::size_t tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::size_t compared = 0;  ///< Tensors read back and equal to the checkpoint's.
};

/// Low-rank adapter of one linear map, as stored in a checkpoint.
struct ExportAdapter {
  std::string weight;       ///< Weight of the map: "model.layers.0.self_attn.q_proj.weight".
  bool transposed = false;  ///< True: the weight is [inputs, outputs].
  double scale = 1.0;
  engine::Parameter a, b;  ///< [rank, inputs] and [outputs, rank].
};

/// Exports the weights of a checkpoint, assembled from all its shards: `model.safetensors`, or
/// above the limit `model-00001-of-0000N.safetensors` ... with `model.safetensors.index.json`, or
/// files of another format; and `config.json`. The directory appears complete, durable, and after
/// every tensor was read back and compared with the checkpoint, or not at all. Needs memory for the
/// two largest tensors and the parts of one, as the next is read while one is written. Blocks. Maps
/// with an adapter get W + scale B A, summed in double and rounded once. `averages`: as in
/// CheckpointWeights. Errors: (user) the directory is not empty; the checkpoint's weights are not
/// those of `tensors` and `adapters`, each in its shape, and of `left_out`; a shape that the format
/// does not allow; those of make_directory; (failure) damage, full disk, stopped.
Result<ExportReport> export_weights(const std::filesystem::path& checkpoint,
                                    const Manifest& manifest, const ExportRequest& request,
                                    std::span<const ExportAdapter> adapters = {},
                                    std::string averages = {});

/// Error (user) unless the checkpoint's weights are those of `request` and `adapters`, as for
/// export_weights().
Status check_weights(const std::filesystem::path& checkpoint, const Manifest& manifest,
                     const ExportRequest& request, std::span<const ExportAdapter> adapters);

/// Exports weights of another source in the same format, without checking their names; reads each
/// weight twice.
Result<ExportReport> export_tensors(const ExportRequest& request,
                                    const engine::WeightSource& source);

}  // namespace train::checkpoint
