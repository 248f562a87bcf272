#include "cli/checkpoints/export_words.hpp"

#include <fmt/format.h>

#include <array>
#include <map>

#include "cli/checkpoints/gguf_words.hpp"
#include "engine/model/unit_parameters.hpp"
#include "run/model/model_files.hpp"

namespace train::cli {
namespace {

/// Parses "5GB", "512MiB", "4000000" as bytes; nullopt if it is no size. A number alone that is
/// small was meant in another unit.
std::optional<std::uint64_t> size_in(std::string_view text) {
  constexpr std::uint64_t kLeastWithoutUnit = 1'000'000;
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 8> kUnits = {
      {{"", 1},
       {"B", 1},
       {"KB", 1'000},
       {"MB", 1'000'000},
       {"GB", 1'000'000'000},
       {"KiB", std::uint64_t{1} << 10},
       {"MiB", std::uint64_t{1} << 20},
       {"GiB", std::uint64_t{1} << 30}}};
  std::uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, count);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (code != std::errc() || count == 0 || (unit.empty() && count < kLeastWithoutUnit)) {
    return std::nullopt;
  }
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name && count <= std::numeric_limits<std::uint64_t>::max() / bytes) {
      return count * bytes;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<storage::WeightType> weight_type_of(std::string_view word) {
  if (word == "fp32") {
    return storage::WeightType::f32;
  }
  if (word == "bf16") {
    return storage::WeightType::bf16;
  }
  return word == "fp16" ? std::optional(storage::WeightType::f16) : std::nullopt;
}

CLI::Option* read_dtype(CommandSyntax& command, std::string& target, const std::string& help) {
  const auto read = [&target](std::string_view text) {
    target = text;
    return gguf_kind_of(text).has_value();
  };
  return command.read("--dtype", read, "--dtype must be fp32, bf16, fp16, q8_0 or q4_k_m", help,
                      "fp32|bf16|fp16|q8_0|q4_k_m");
}

std::uint64_t file_limit(std::optional<std::uint64_t> given, std::string_view format) {
  constexpr std::uint64_t usual = 5'000'000'000;
  return given.value_or(format.starts_with("gguf") ? std::numeric_limits<std::uint64_t>::max()
                                                   : usual);
}

std::string format_mistake(std::string_view format, std::string_view dtype, bool no_tokenizer) {
  if (format == "gguf-lora" && !dtype.empty() && dtype != "fp32") {
    return fmt::format("--dtype {}: --format gguf-lora writes adapters as fp32", dtype);
  }
  if (format != "gguf" && !dtype.empty() && !weight_type_of(dtype)) {
    return fmt::format("--dtype {} is a type of GGUF files: add --format gguf", dtype);
  }
  return format != "gguf" && no_tokenizer ? "--no-tokenizer is for --format gguf" : "";
}

void read_file_size(CommandSyntax& command, std::optional<std::uint64_t>& target) {
  const auto read = [&target](std::string_view text) {
    target = size_in(text);
    return target.has_value();
  };
  command
      .read("--max-shard-size,--max-file-bytes", read,
            "--max-shard-size wants a size like 5GB or 512MiB (a number alone counts bytes: "
            "1000000 or "
            "more)",
            "Weights above this size go to several files with an index", "SIZE")
      ->default_str("5GB");
}

std::vector<checkpoint::ExportTensor> tensors_of(const engine::ModelSpec& model,
                                                 engine::Dialect dialect) {
  std::vector<checkpoint::ExportTensor> tensors;
  std::map<std::string, std::size_t> places;
  for (const auto& mapped : engine::tensor_map(model, dialect)) {
    const bool same = mapped.is_copy() && mapped.parts.front().name == mapped.parameter.name;
    for (const engine::TensorPart& part : mapped.parts) {
      const auto [place, added] = places.emplace(part.name, tensors.size());
      if (added) {
        tensors.push_back({part.name, part.shape});
        if (mapped.parameter.balances) {  // As other programs hold it, whatever the model's type.
          tensors.back().type = storage::WeightType::f32;
        }
      }
      if (!same) {
        tensors[place->second].parts.push_back({mapped.parameter, part});
      }
    }
  }
  return tensors;
}

std::vector<std::string> counts_of(const engine::ModelSpec& model) {
  std::vector<std::string> names;
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      if (parameter.unpublished()) {
        names.push_back(parameter.name);
      }
    }
  }
  return names;
}

std::vector<checkpoint::ExportTensor> kept_tensors(
    const std::shared_ptr<const checkpoint::PublishedWeights>& weights) {
  std::vector<checkpoint::ExportTensor> tensors;
  for (const storage::TensorEntry& entry : weights->kept()) {
    checkpoint::ExportTensor tensor{.name = entry.name, .shape = entry.shape, .source = weights};
    if (entry.dtype == storage::stored_name(storage::WeightType::f32)) {
      tensor.type = storage::WeightType::f32;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<std::filesystem::path> companions_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const char* name : run::companion_files()) {
    if (!directory.empty() && std::filesystem::is_regular_file(directory / name, ignored)) {
      found.push_back(directory / name);
    }
  }
  return found;
}

}  // namespace train::cli
