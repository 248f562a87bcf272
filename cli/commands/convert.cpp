#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "base/process/stop_signals.hpp"
#include "checkpoint/models/gguf_model.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "cli/checkpoints/config_warnings.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "cli/checkpoints/gguf_words.hpp"
#include "cli/checkpoints/published_config.hpp"
#include "cli/command.hpp"
#include "data/tokenizer/formats/gguf_tokenizer.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "run/model/model_files.hpp"

namespace train::cli {
using namespace run;
namespace {

/// Type of the embedding, used for the whole model.
storage::WeightType stored_type(const checkpoint::PublishedWeights& weights,
                                const engine::ModelSpec& model) {
  const auto* entry = weights.directory().find(weights.name_in_files(model.embedding));
  return storage::weight_type(entry->dtype).value();  // Checked when the weights were opened.
}

/// Source of a conversion: its model, its tensors, its companion files.
struct Conversion {
  engine::ModelSpec model;
  std::shared_ptr<const engine::WeightSource> weights;
  storage::WeightType type = storage::WeightType::bf16;  ///< Unless another is asked for.
  std::string config_text;
  std::string source;
  std::filesystem::path directory = {};  ///< Holds the tokenizer's files; empty: it has none.
  std::map<std::string, std::string> texts = {};
  std::vector<std::filesystem::path> companions = {};
  std::vector<checkpoint::ExportTensor> kept = {};
};

Result<Conversion> open_directory(const std::string& path) {
  auto model = TRAIN_TRY(open_model(path, 0));
  if (model.weights->kept().empty()) {
    model.spec.kept.clear();
  }
  show_notes(path, model.notes);
  warn_of_unread_keys(model.spec, model.config.source);
  return Conversion{.model = model.spec,
                    .weights = model.weights,
                    .type = stored_type(*model.weights, model.spec),
                    .config_text = model.config.text,
                    .source = model.config.source,
                    .directory = model.config.directory,
                    .companions = companions_in(model.config.directory),
                    .kept = kept_tensors(model.weights)};
}

Result<Conversion> open_gguf(const std::string& path) {
  auto opened = TRAIN_TRY(checkpoint::GgufModel::open(path));
  const auto file = std::make_shared<checkpoint::GgufModel>(std::move(opened));
  auto model = TRAIN_TRY(engine::spec_from_config(file->config_text(), path, 0));
  TRAIN_RETURN_IF_ERROR(file->check(model));
  if (const std::uint64_t further = file->further_layers(); further > 0) {
    show_notes(path, {fmt::format("its last layers, {} that predict further tokens, are left out",
                                  further)});
  }
  auto texts = TRAIN_TRY(data::gguf_tokenizer_files(file->file()));
  if (texts.empty()) {
    show_notes(path, {data::unknown_gguf_tokenizer(file->file())});
  }
  return Conversion{.model = std::move(model),
                    .weights = file,
                    .type = file->type(),
                    .config_text = file->config_text(),
                    .source = path,
                    .texts = std::move(texts)};
}

/// Kind of GGUF that holds weights of this type.
checkpoint::GgufKind kind_of(const ConvertOptions& options, storage::WeightType type) {
  const checkpoint::GgufKind same = type == storage::WeightType::f32   ? checkpoint::GgufKind::f32
                                    : type == storage::WeightType::f16 ? checkpoint::GgufKind::f16
                                                                       : checkpoint::GgufKind::bf16;
  return gguf_kind_of(options.dtype).value_or(same);
}

Status convert_model(const ConvertOptions& options) {
  const bool gguf = std::filesystem::path(options.in).extension() == ".gguf";
  if (gguf && options.format == "gguf") {
    return user_error(fmt::format("{} is a GGUF file already", options.in));
  }
  const auto from = TRAIN_TRY(gguf ? open_gguf(options.in) : open_directory(options.in));
  watch_signals();
  checkpoint::ExportRequest request{
      .directory = options.out,
      .tensors = tensors_of(from.model),
      .type = weight_type_of(options.dtype).value_or(from.type),
      .max_file_bytes = file_limit(options.max_file_bytes, options.format),
      .config_text = {},
      .texts = from.texts,
      .companions = from.companions,
      .stop = [] { return stop_signal() != 0; }};
  request.tensors.insert(request.tensors.end(), from.kept.begin(), from.kept.end());
  request.config_text =
      TRAIN_TRY(published_config(from.config_text, from.source, from.model, request.type));
  std::string dtype = storage::config_name(request.type);
  if (options.format == "gguf") {
    const checkpoint::GgufKind kind = kind_of(options, request.type);
    dtype = checkpoint::name_of(kind);
    const std::string request_config = request.config_text;
    TRAIN_RETURN_IF_ERROR(
        make_gguf(request, from.model, request_config,
                  options.no_tokenizer ? std::filesystem::path() : from.directory, kind,
                  std::filesystem::path(options.in).lexically_normal().filename().string()));
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto report = TRAIN_TRY(checkpoint::export_tensors(request, *from.weights));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  print(
      fmt::format("converted in={} out={} dtype={} files={} tensors={} compared={} bytes={} "
                  "seconds={:.1f}\n",
                  options.in, options.out, dtype, report.files.size(), report.tensors,
                  report.compared, report.tensor_bytes, elapsed.count()));
  return {};
}

}  // namespace

/// Writes a published model's weights in another type or other files. Leaves nothing incomplete.
void describe_convert(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "convert",
      "Convert a published model to another type, other file sizes or GGUF; needs no run.");
  ConvertOptions& options = command.runs(convert_model);
  command.app
      .add_option("IN", options.in,
                  "Directory with config.json and safetensors files, or a GGUF file")
      ->type_name("DIR|FILE")
      ->required();
  command.text("--out", options.out, "Directory to make", "DIR")->required();
  command.check([&options] { return options.out.empty() ? "--out is empty" : ""; });
  read_dtype(
      command, options.dtype,
      "Type of the new weights; by default that of the old ones, bf16 for a quantised GGUF file");
  command.read(
      "--format",
      [&options](std::string_view text) {
        options.format = text;
        return text == "hf" || text == "gguf";
      },
      "--format must be hf or gguf",
      "hf: safetensors files and config.json. gguf: one file for llama.cpp, and a Modelfile for "
      "Ollama",
      "hf|gguf");
  command.app.add_flag("--no-tokenizer", options.no_tokenizer,
                       "Leave the tokenizer out of a GGUF file");
  command.check(
      [&options] { return format_mistake(options.format, options.dtype, options.no_tokenizer); });
  read_file_size(command, options.max_file_bytes);
}

}  // namespace train::cli
