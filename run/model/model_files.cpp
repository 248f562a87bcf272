#include "run/model/model_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/text/log.hpp"
#include "configs/models/shipped_models.hpp"
#include "configs/words/nearest.hpp"
#include "data/chat/template_files.hpp"
#include "data/rows/row_facts.hpp"
#include "data/tokenizer/formats/file_names.hpp"
#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"
#include "data/tokenizer/formats/tokenizer_files.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/balance.hpp"
#include "engine/model/config_json/dialects.hpp"
#include "engine/model/model_shape.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/copy_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/input_file.hpp"
#include "storage/weight_files/weight_directory.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestModelConfig = std::uint64_t{16} << 20;
constexpr const char* kModelConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kWeightsDigest = "weights.digest";
constexpr std::uint64_t kTokenizerBegin = 4096;
constexpr std::uint64_t kLargestWeightsDigest = 4096;
constexpr std::uint64_t kDigestPieceBytes = std::uint64_t{1} << 20;

Result<ModelConfigText> read_model_config(const fs::path& file) {
  const auto opened = TRAIN_TRY(storage::InputFile::open(file));
  const auto text = TRAIN_TRY(opened.read_text(kLargestModelConfig));
  return ModelConfigText{.text = engine::in_known_dialect(text),
                         .source = file.string(),
                         .directory = file.parent_path()};
}

/// Reads generation_config.json; without one, derives the defaults of transformers from
/// config.json.
Result<nlohmann::ordered_json> generation_config(const fs::path& model) {
  std::error_code ignored;
  const bool is_there = fs::exists(model / kGenerationConfig, ignored);
  const fs::path file = model / (is_there ? kGenerationConfig : kModelConfig);
  const auto text = TRAIN_TRY(storage::read_file(file, kLargestModelConfig));
  auto object = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return user_error(
        fmt::format("{}: not a JSON object; put the model's own there", file.string()));
  }
  if (is_there) {
    return object;
  }
  nlohmann::ordered_json made = {{"_from_model_config", true}};
  for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (const auto found = object.find(key); found != object.end() && !found->is_null()) {
      made[key] = *found;
    }
  }
  return made;
}

/// True if a config.json declares quantized weights.
bool names_quantization(const nlohmann::json& config) {
  const auto found = config.find("quantization_config");
  if (found != config.end() && !found->is_null()) {
    return true;
  }
  const auto half = config.find("text_config");
  return half != config.end() && half->is_object() && names_quantization(*half);
}

/// Weight files of model.from, sorted by name.
std::vector<fs::path> weight_files(const fs::path& from) {
  std::error_code error;
  std::vector<fs::path> files;
  if (fs::is_regular_file(from, error)) {
    files.push_back(from);
  }
  for (const auto& entry : fs::directory_iterator(from, error)) {
    if (entry.path().extension() == ".safetensors") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Sets `key` in the `text` of a config.json to another value, also in its text half.
std::string with_value(const std::string& text, const char* key, bool value) {
  auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  TRAIN_CHECK(config.is_object(), "a config.json that was read before");
  config[key] = value;
  if (const auto half = config.find("text_config"); half != config.end() && half->is_object()) {
    (*half)[key] = value;
  }
  return config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// Files and keys of a model's directory that would change its weights and are not read here: a
/// sentence each.
std::vector<std::string> notes_beside(const ModelConfigText& config, std::size_t quantized) {
  std::vector<std::string> notes;
  const auto parsed = nlohmann::json::parse(config.text, nullptr, /*allow_exceptions=*/false);
  if (quantized > 0) {
    notes.push_back(
        fmt::format("{} weights are quantised: they are read as the numbers that they stand for, "
                    "and exported as "
                    "those",
                    quantized));
  } else if (names_quantization(parsed)) {
    notes.emplace_back(
        "config.json has a quantization_config, but the weights are not quantised: they are read "
        "as they are");
  }
  std::error_code ignored;
  if (fs::exists(config.directory / "adapter_config.json", ignored)) {
    notes.emplace_back(
        "the adapter of adapter_config.json is left out: these are the weights of the model alone");
  }
  return notes;
}

/// Copies a file that exists and has no copy.
Status copy_if_there(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (!fs::exists(from, ignored) || fs::exists(to, ignored)) {
    return {};
  }
  return storage::copy_file(from, to);
}

}  // namespace

bool is_published(const configs::ModelSection& section) {
  return !section.config.empty() || !section.from.empty();
}

std::span<const char* const> companion_files() { return data::kTokenizerFileNames; }

namespace {

/// Stamp of the files that changes when one is replaced or written to.
std::string file_stamps(const std::vector<fs::path>& files) {
  std::string text;
  std::error_code ignored;
  for (const fs::path& file : files) {
    text += fmt::format("{} {} {}\n", file.string(), fs::file_size(file, ignored),
                        fs::last_write_time(file, ignored).time_since_epoch().count());
  }
  return storage::digest_text(text);
}

Status add_file(const fs::path& path, storage::StreamingDigest& digest) {
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  digest.update(fmt::format("{} {}\n", path.filename().string(), file.size_bytes()));
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < file.size_bytes(); at += piece.size()) {
    piece.resize(std::min(kDigestPieceBytes, file.size_bytes() - at));
    TRAIN_RETURN_IF_ERROR(file.read(at, piece));
    digest.update(piece);
  }
  return {};
}

}  // namespace

Result<std::string> weights_fingerprint(const configs::RunConfig& config,
                                        const fs::path& run_root) {
  if (config.model.from.empty()) {
    return fmt::format("seed {}", config.run.seed);
  }
  const std::vector<fs::path> files = weight_files(config.model.from);
  if (files.empty()) {
    return std::string();
  }
  const fs::path kept = run_root / kWeightsDigest;
  const std::string stamps = file_stamps(files);
  if (const auto text = storage::read_file(kept, kLargestWeightsDigest); text) {
    const std::size_t space = text->find(' ');
    if (space != std::string::npos && text->substr(0, space) == stamps &&
        storage::is_digest(text->substr(space + 1))) {
      return text->substr(space + 1);
    }
  }
  storage::StreamingDigest digest;
  for (const fs::path& file : files) {
    TRAIN_RETURN_IF_ERROR(add_file(file, digest));
  }
  std::string all = digest.finish();
  if (const Status written = storage::write_file_atomically(kept, stamps + " " + all); !written) {
    log_warning(fmt::format("weights_digest_not_kept {}", written.error().message));  // Read again.
  }
  return all;
}

fs::path model_directory(const fs::path& run_root) { return run_root / "model"; }

Result<ModelConfigText> find_model_config(const std::string& name_or_path) {
  std::vector<std::string> names;
  std::error_code ignored;
  const fs::path path(name_or_path);
  for (const configs::ShippedModel& model : configs::shipped_models()) {
    if (model.name == name_or_path) {
      if (fs::exists(path / kModelConfig, ignored) || fs::is_regular_file(path, ignored)) {
        return user_error(
            fmt::format("{0}: names a shipped shape and a model in this directory: write ./{0} for "
                        "the model, or move it away for the shape",
                        name_or_path));
      }
      return ModelConfigText{.text = std::string(model.config_json),
                             .source = fmt::format("shape {}", model.name),
                             .directory = {}};
    }
    names.emplace_back(model.name);
  }
  if (fs::is_directory(path, ignored)) {
    const bool config = fs::exists(path / kModelConfig, ignored);
    if (fs::exists(path / "config.toml", ignored) && !config) {
      return user_error(fmt::format(
          "{0}: a run, not a model; `actortrain export {0} --out DIR` exports its model",
          name_or_path));
    }
    if (fs::exists(path / "adapter_config.json", ignored) && !config) {
      return user_error(storage::adapter_alone(path));
    }
    return read_model_config(path / kModelConfig);
  }
  if (!fs::exists(path, ignored)) {
    return user_error(fmt::format(
        "{}: no such config.json or directory, and no shape of that name{}; `actortrain "
        "describe` lists them{}",
        name_or_path, configs::did_you_mean(name_or_path, names),
        storage::how_to_fetch(name_or_path)));
  }
  if (path.extension() == ".gguf") {
    return user_error(fmt::format(
        "{}: a GGUF file is read by `actortrain convert` alone: convert it, and give the directory",
        name_or_path));
  }
  return read_model_config(path);
}

Result<std::string> with_rope(const ModelConfigText& config, const configs::RopeSection& rope) {
  if (rope.type == "none") {
    return config.text;
  }
  using nlohmann::ordered_json;
  auto whole = ordered_json::parse(config.text, nullptr, /*allow_exceptions=*/false);
  const auto refused = [&](const std::string& why) {
    return user_error(fmt::format("model.rope: {} {}; leave model.rope out", config.source, why));
  };
  if (!whole.is_object()) {
    return refused("is no object of JSON");
  }
  const auto half = whole.find("text_config");
  ordered_json& keys = half != whole.end() && half->is_object() ? *half : whole;
  const auto context = keys.find("max_position_embeddings");
  if (context == keys.end() || !context->is_number_integer()) {
    return refused("has no max_position_embeddings to stretch");
  }
  ordered_json scaling = ordered_json::object();
  for (const char* const key : {"rope_parameters", "rope_scaling"}) {
    const auto found = keys.find(key);
    if (found == keys.end() || found->is_null()) {
      continue;
    }
    const ordered_json kind =
        found->is_object()
            ? found->value("rope_type", found->value("type", ordered_json("default")))
            : ordered_json();
    const bool by_layer =
        found->is_object() &&
        std::ranges::any_of(*found, [](const ordered_json& value) { return value.is_object(); });
    if (by_layer || kind != "default") {
      return refused(by_layer ? "has different ropes in different layers"
                              : fmt::format("has a rope of type {} already", kind.dump()));
    }
    scaling.update(*found);
  }
  const bool newer = keys.contains("rope_parameters") && keys["rope_parameters"].is_object();
  scaling.erase("type");
  scaling["rope_type"] = rope.type;
  scaling["factor"] = rope.factor;
  if (rope.type == "yarn") {
    scaling["original_max_position_embeddings"] = *context;
  }
  keys["max_position_embeddings"] = static_cast<std::int64_t>(context->get<double>() * rope.factor);
  keys.erase(newer ? "rope_scaling" : "rope_parameters");
  keys[newer ? "rope_parameters" : "rope_scaling"] = std::move(scaling);
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Status check_rope_read(const ModelConfigText& config, const engine::ModelSpec& spec,
                       const configs::RopeSection& rope) {
  const bool read = std::ranges::none_of(spec.unread_keys, [](const std::string& key) {
    return key == "rope_parameters" || key == "rope_scaling";
  });
  if (rope.type == "none" || read) {
    return {};
  }
  return user_error(
      fmt::format("model.rope: {} is of model_type {}, which has no rope that could "
                  "be stretched; leave model.rope out",
                  config.source, spec.architecture));
}

Result<PublishedModel> open_model(const std::string& directory, std::int64_t sequence_length,
                                  const configs::RopeSection& rope) {
  auto config = TRAIN_TRY(find_model_config(directory));
  config.text = TRAIN_TRY(with_rope(config, rope));
  const auto spec =
      TRAIN_TRY(engine::spec_from_config(config.text, config.source, sequence_length));
  TRAIN_RETURN_IF_ERROR(check_rope_read(config, spec, rope));
  auto weights = checkpoint::PublishedWeights::open(directory, spec);
  if (!weights) {
    const auto parsed = nlohmann::json::parse(config.text, nullptr, /*allow_exceptions=*/false);
    return names_quantization(parsed)
               ? Error{weights.error().kind,
                       weights.error().message +
                           "; config.json has a quantization_config: give the weights as they were "
                           "before they were quantised"}
               : weights.error();
  }
  PublishedModel model{.config = std::move(config),
                       .spec = (*weights)->model(),
                       .weights = std::move(weights).value(),
                       .notes = {}};
  model.notes = model.weights->notes();
  for (std::string& note : notes_beside(model.config, model.weights->directory().quantized())) {
    model.notes.push_back(std::move(note));
  }
  if (spec.tie_embeddings && !model.spec.tie_embeddings) {
    model.config.text = with_value(model.config.text, "tie_word_embeddings", false);
  }
  return model;
}

void show_notes(const std::string& directory, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    log_warning(fmt::format("model_note {}: {}", directory, note));
  }
}

namespace {

/// Reads a published model's config.json, with the tied embeddings that its weights decide.
Result<ModelConfigText> config_of(const configs::ModelSection& section) {
  if (section.from.empty() || weight_files(section.from).empty()) {
    auto found = TRAIN_TRY(find_model_config(section.from.empty() ? section.config : section.from));
    found.text = TRAIN_TRY(with_rope(found, section.rope));
    return found;
  }
  auto model = TRAIN_TRY(open_model(section.from, 0, section.rope));
  return std::move(model.config);
}

/// The model with the terms of model.balance, where the section has some.
Result<engine::ModelSpec> balanced(const configs::ModelSection& section, engine::ModelSpec spec) {
  if (!section.balance.empty()) {
    const auto terms = TRAIN_TRY(engine::parse_balance(section.balance));
    TRAIN_RETURN_IF_ERROR(engine::set_balance(terms, spec));
  }
  return spec;
}

}  // namespace

Result<engine::ModelSpec> resolve_model(const configs::RunConfig& config,
                                        std::int64_t dataset_vocab) {
  const configs::ModelSection& section = config.model;
  if (!is_published(section)) {
    const auto shape = TRAIN_TRY(engine::resolve_shape(section, dataset_vocab));
    return balanced(section, shape.spec());
  }
  const auto found = TRAIN_TRY(config_of(section));
  auto spec =
      TRAIN_TRY(engine::spec_from_config(found.text, found.source, config.data.sequence_length));
  TRAIN_RETURN_IF_ERROR(check_rope_read(found, spec, section.rope));
  spec.z_loss_coeff = static_cast<float>(section.z_loss_coeff);
  TRAIN_RETURN_IF_ERROR(engine::set_choice_bias_rate(section.router_bias_rate, spec));
  return balanced(section, std::move(spec));
}

Result<std::shared_ptr<const engine::WeightSource>> open_weights(
    const configs::ModelSection& section, const engine::ModelSpec& model) {
  if (section.from.empty()) {
    return std::shared_ptr<const engine::WeightSource>();
  }
  auto weights = TRAIN_TRY(checkpoint::PublishedWeights::open(section.from, model));
  return std::shared_ptr<const engine::WeightSource>(std::move(weights));
}

configs::RunConfig use_run_copy(configs::RunConfig config, const fs::path& run_root) {
  std::error_code ignored;
  const fs::path own = model_directory(run_root) / kModelConfig;
  configs::ModelSection& section = config.model;
  if (!is_published(section) || !fs::exists(own, ignored)) {
    return config;
  }
  const bool whole = section.from.empty() || !weight_files(section.from).empty();
  if (whole && find_model_config(section.from.empty() ? section.config : section.from)) {
    return config;
  }
  section.from.clear();
  section.rope = {};  // The copy has it.
  section.config = own.string();
  return config;
}

Status copy_model_files(const configs::ModelSection& section, const fs::path& run_root,
                        bool begins) {
  const fs::path to = model_directory(run_root);
  std::error_code ignored;
  if (!is_published(section)) {
    return {};
  }
  const bool kept = fs::exists(to / kModelConfig, ignored);
  const auto found = config_of(section);
  if (!found) {
    return kept && !begins ? Status() : found.error();
  }
  if (kept) {
    const auto own = TRAIN_TRY(read_model_config(to / kModelConfig));
    if (own.text == found->text) {
      return {};
    }
    if (!begins) {
      return user_error(
          fmt::format("{}: differs from what this run began with, which is in {}; put it back, "
                      "choose another run.name, or start anew with --fresh",
                      found->source, (to / kModelConfig).string()));
    }
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(to));
  }
  TRAIN_RETURN_IF_ERROR(storage::make_directory(to));
  for (const char* name : data::kTokenizerFileNames) {
    if (!found->directory.empty()) {
      TRAIN_RETURN_IF_ERROR(copy_if_there(found->directory / name, to / name));
    }
  }
  return storage::write_file_atomically(to / kModelConfig, found->text);  // Last: now complete.
}

namespace {

/// Facts of conversation data, for a run with a model's directory `model`; nullopt if the data has
/// no conversations or the run has no such directory.
Result<std::optional<data::RowFacts>> chat_facts(const configs::RunConfig& config,
                                                 const fs::path& model) {
  std::error_code ignored;
  const auto rows = TRAIN_TRY(data::holds_rows(config.data.dir));
  if (!rows || !fs::exists(model / kModelConfig, ignored)) {
    return std::optional<data::RowFacts>();
  }
  auto facts = TRAIN_TRY(data::read_row_facts(config.data.dir));
  return std::optional(std::move(facts));
}

}  // namespace

Status keep_chat_template(const configs::RunConfig& config, const fs::path& run_root) {
  const fs::path model = model_directory(run_root);
  const auto read = TRAIN_TRY(chat_facts(config, model));
  if (!read || read->chat_template.empty()) {
    return {};
  }
  const auto found = data::read_template_files(data::kept_tokenizer_folder(config.data.dir));
  if (!found) {
    log_warning(fmt::format("chat_template_not_kept {}", found.error().message));
    return {};
  }
  return data::write_template_files(found->sources, model);
}

namespace {

/// Name of a tokenizer file in a model's directory; `file` may have any name.
Result<fs::path> tokenizer_name(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto& known = data::kTokenizerFileNames;
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return file.filename();
  }
  const auto opened = TRAIN_TRY(storage::InputFile::open(file));
  std::vector<std::byte> begin(std::min<std::uint64_t>(opened.size_bytes(), kTokenizerBegin));
  TRAIN_RETURN_IF_ERROR(opened.read(0, begin));
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (data::is_sentencepiece_model(text)) {
    return fs::path("tokenizer.model");
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && text[first] == '{';
  return json && name.find("tekken") != std::string::npos ? fs::path("tekken.json")
         : json                                           ? fs::path("tokenizer.json")
                                                          : file.filename();
}

}  // namespace

Status keep_data_tokenizer(const configs::RunConfig& config, const fs::path& run_root) {
  const fs::path to = model_directory(run_root);
  const fs::path kept = data::kept_tokenizer(config.data.dir);
  std::error_code ignored;
  if (kept.empty() || !fs::exists(to / kModelConfig, ignored) || data::holds_tokenizer(to)) {
    return {};
  }
  const auto facts = TRAIN_TRY(data::read_dataset_facts(config.data.dir));
  // Written first: the tokenizer's file marks this copy as complete. A model with weights has its
  // own end-of-text tokens.
  if (facts.end_of_text && config.model.from.empty()) {
    const auto generation = nlohmann::ordered_json{{"eos_token_id", *facts.end_of_text}};
    TRAIN_RETURN_IF_ERROR(
        storage::write_file_atomically(to / kGenerationConfig, generation.dump(2) + "\n"));
  }
  std::vector<fs::path> files = data::tokenizer_files(kept);
  std::stable_partition(files.begin(), files.end(), [](const fs::path& file) {
    return file.filename() == "tokenizer_config.json";
  });
  for (const fs::path& file : files) {
    if (file.filename() == kModelConfig || file.filename() == kGenerationConfig) {
      continue;  // The file is one of the tokenizer's own model.
    }
    const auto name = TRAIN_TRY(tokenizer_name(file));
    TRAIN_RETURN_IF_ERROR(copy_if_there(file, to / name));
  }
  return {};
}

Status keep_turn_ends(const configs::RunConfig& config, const fs::path& run_root) {
  const fs::path model = model_directory(run_root);
  const auto read = TRAIN_TRY(chat_facts(config, model));
  if (!read) {
    return {};
  }
  const data::RowFacts& facts = *read;
  std::vector<std::uint32_t> ends = TRAIN_TRY(data::configured_ends(model));
  if (ends.empty() && facts.end_of_text) {
    ends.push_back(static_cast<std::uint32_t>(*facts.end_of_text));
  }
  const std::size_t before = ends.size();
  for (const std::uint32_t id : facts.turn_ends) {
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) {
      ends.push_back(id);
    }
  }
  if (ends.size() == before) {
    return {};
  }
  auto generation = TRAIN_TRY(generation_config(model));
  generation["eos_token_id"] = ends;
  return storage::write_file_atomically(model / kGenerationConfig, generation.dump(2) + "\n");
}

}  // namespace train::run
