#include <filesystem>

#include "base/text/units.hpp"
#include "cli/checkpoints/config_warnings.hpp"
#include "cli/command.hpp"
#include "cli/report/model_report.hpp"
#include "configs/load_config.hpp"
#include "configs/models/shipped_models.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "run/model/model_files.hpp"

namespace train::cli {
using namespace run;
namespace {

/// Model of a run file; the vocabulary comes from its data, if available.
Result<engine::ModelSpec> model_of_run(const std::string& file) {
  const auto config = TRAIN_TRY(configs::load_config(file));
  const auto facts = data::read_dataset_facts(config.data.dir);
  const std::int64_t vocab = facts ? facts->vocab_size.value_or(0) : 0;
  return resolve_model(config, vocab);
}

bool holds_weights(const std::filesystem::path& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory / "model.safetensors", ignored) ||
         std::filesystem::exists(directory / "model.safetensors.index.json", ignored);
}

Result<engine::ModelSpec> model_named(const std::string& name) {
  if (std::filesystem::path(name).extension() == ".toml") {
    return model_of_run(name);
  }
  const auto config = TRAIN_TRY(find_model_config(name));
  auto spec = read_model_config(config.text, config.source, 0);
  if (spec && holds_weights(name)) {
    auto model = open_model(name, 0);
    if (!model) {
      show_notes(name, {"its weights are not looked at: " + model.error().message});
      return spec;
    }
    show_notes(name, model->notes);
    return std::move(model->spec);
  }
  return spec;
}

Status list_shapes() {
  std::string text;
  for (const configs::ShippedModel& shape : configs::shipped_models()) {
    const auto model = TRAIN_TRY(
        engine::spec_from_config(std::string(shape.config_json), std::string(shape.name), 0));
    const engine::ParameterCount count = engine::count_parameters(model);
    text += fmt::format("{:<18} {:<12} {:>14} parameters\n", shape.name, model.architecture,
                        count.total);
  }
  print(text);
  return {};
}

Status describe_model(const DescribeOptions& options) {
  if (options.model.empty()) {
    return list_shapes();
  }
  const auto model = TRAIN_TRY(model_named(options.model));
  print(describe_spec(model));
  return {};
}

}  // namespace

/// Prints a model from its spec, without allocating it.
void describe_describe(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "describe",
      "Show a model's layers, parameters, FLOPs and bytes; or list the shipped shapes.");
  DescribeOptions& options = command.runs(describe_model);
  command.app
      .add_option(
          "MODEL", options.model,
          "Run file, config.json, directory of a model, or a shape's name; none: the shapes")
      ->type_name("MODEL");
}

}  // namespace train::cli
