#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
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

/// What an exported tensor has of a weight that it is no copy of.
struct ExportPart {
  engine::Parameter parameter;
  std::string stored;  ///< Its name in the checkpoint.
  engine::TensorPart part;
};

/// A weight under the name it gets; the checkpoint holds it as weight_name(), or under another
/// name, or in parts.
struct ExportTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string stored = {};  ///< Of the tensor whose values it gets; empty: weight_name().
  std::vector<ExportPart> parts = {};  ///< Empty: it is that tensor.

  [[nodiscard]] std::string name_in_checkpoint() const;
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

/// Error (user) unless the checkpoint's weights are just these, each in its shape.
Status check_same_tensors(const std::filesystem::path& checkpoint, const Manifest& manifest,
                          std::span<const ExportTensor> tensors);

/// Writes the weights of a checkpoint, put together from all its shards, for other programs:
/// `model.safetensors`, or above the limit `model-00001-of-0000N.safetensors` ... with
/// `model.safetensors.index.json`; and `config.json`. The directory appears whole, durable, and
/// after every tensor was read back and compared with the checkpoint, or not at all. Needs memory
/// for the largest tensor, or for 64 MiB of them. Blocks.
/// Errors: (user) the directory holds something; the checkpoint's weights are not those of
/// `tensors`; those of make_directory; (failure) damage, full disk, stopped.
Result<ExportReport> export_weights(const std::filesystem::path& checkpoint,
                                    const Manifest& manifest, const ExportRequest& request);

/// Fills `out` with the elements of tensors, one after the other.
using ReadTensors =
    std::function<Status(std::span<const ExportTensor> tensors, std::span<float> out)>;

/// Puts a tensor together of its parts, whose weights' rows `read` gives. Errors: those of `read`.
Status put_together(const ExportTensor& tensor,
                    const std::function<Status(const ExportPart& part, engine::RowRange rows,
                                               std::span<float> out)>& read,
                    std::span<float> out);

/// Reads out of a model's weights.
[[nodiscard]] ReadTensors tensors_from(std::shared_ptr<const engine::WeightSource> source);

/// The same of weights from elsewhere, which `read` gives; it is asked twice for each tensor.
Result<ExportReport> export_tensors(const ExportRequest& request, const ReadTensors& read);

}  // namespace train::checkpoint
