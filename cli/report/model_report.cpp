#include "cli/report/model_report.hpp"

#include <fmt/ranges.h>

#include <map>
#include <string_view>
#include <vector>

#include "base/text/units.hpp"
#include "engine/generate/cache_bytes.hpp"
#include "engine/model/blocks/block.hpp"
#include "engine/model/model.hpp"

namespace train::cli {
namespace {

using engine::LayerSpec;

const char* kind_name(const engine::NormSpec& norm) {
  if (norm.kind == kernels::NormKind::layer) {
    return norm.bias ? "LayerNorm with bias" : "LayerNorm";
  }
  return norm.plus_one ? "RMSNorm (1 + w)" : "RMSNorm";
}

std::string norms_text(const engine::BranchSpec& branch) {
  std::string text = branch.pre ? fmt::format("{} before", kind_name(*branch.pre)) : "";
  if (branch.post) {
    text += fmt::format("{}{} behind", text.empty() ? "" : ", ", kind_name(*branch.post));
  }
  return text;
}

/// "0 to 4, 6 to 10".
std::string layer_list(const std::vector<std::size_t>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", layers[i]);
    text += end > i ? fmt::format(" to {}", layers[end]) : "";
    i = end + 1;
  }
  return text;
}

/// Description of a layer, equal for equal layers.
std::vector<std::string> layer_lines(const LayerSpec& layer) {
  std::vector<std::string_view> titles;
  std::vector<std::string> lines = {""};
  for (const engine::BranchSpec& branch : layer.branches) {
    titles.push_back(branch.block->title());
    lines.push_back(fmt::format("{}: {}; {}", branch.block->title(), branch.block->describe(),
                                norms_text(branch)));
  }
  lines.front() = layer.parallel ? fmt::format("{} side by side", fmt::join(titles, " and "))
                                 : fmt::format("{}", fmt::join(titles, ", then "));
  return lines;
}

void add_rows(std::string& text, const char* what, const std::vector<std::string>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{:<18} {}\n", i == 0 ? what : "", values[i]);
  }
}

std::vector<std::string> rope_lines(const engine::ModelSpec& model) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < model.ropes.size(); ++i) {
    const engine::RopeSpec& rope = model.ropes[i];
    lines.push_back(fmt::format(
        "{}: base {}, {} elements of a head, pairs {}, scaling {}", i, rope.theta, rope.rotary_dim,
        rope.pairing == kernels::RopePairing::half ? "by halves" : "interleaved", rope.scaling));
  }
  return lines;
}

/// Decoding state of texts that are continued (generate).
std::vector<std::string> cache_lines(const engine::ModelSpec& model) {
  const std::string before =
      model.prefix_tokens > 0 ? fmt::format(" and of the {} before it,", model.prefix_tokens) : "";
  const auto text_of = [&](engine::CacheForm form) {
    const auto bytes = engine::cache_bytes(model, form);
    std::string text =
        bytes ? fmt::format("{} bytes a token of a text{} in fp32", bytes->token, before) : "";
    for (const auto& [tokens, part] : bytes ? bytes->windows : decltype(bytes->windows)()) {
      text += fmt::format(", {} of them for the last {} tokens alone", part, tokens);
    }
    return text;
  };
  std::vector<std::string> lines = {text_of(engine::CacheForm::expanded)};
  if (const std::string latent = text_of(engine::CacheForm::latent); !latent.empty()) {
    lines.push_back(latent + " with --cache latent");
  }
  return lines;
}

}  // namespace

std::string describe_spec(const engine::ModelSpec& model) {
  std::string text;
  add_rows(text, "architecture", {model.architecture});
  add_rows(text, "sizes",
           {fmt::format("{} layers, width {}, vocabulary {}, head {}", model.layers.size(),
                        model.embedding_dim, model.vocab_size,
                        model.tie_embeddings ? "tied" : "its own")});
  if (!model.positions.empty()) {
    add_rows(text, "positions", {fmt::format("{} learned", model.position_rows)});
  }
  if (model.prefix_tokens > 0) {
    add_rows(text, "before each text", {fmt::format("{} learned tokens", model.prefix_tokens)});
  }
  add_rows(text, "ropes", rope_lines(model));
  std::vector<std::vector<std::string>> kinds;
  std::map<std::vector<std::string>, std::vector<std::size_t>> layers;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const auto lines = layer_lines(model.layers[i]);
    if (!layers.contains(lines)) {
      kinds.push_back(lines);
    }
    layers[lines].push_back(i);
  }
  for (const auto& kind : kinds) {
    std::vector<std::string> lines = kind;
    lines.front() = fmt::format("{}: {}", layer_list(layers[kind]), kind.front());
    add_rows(text, "layers", lines);
  }
  const engine::ParameterCount count = engine::count_parameters(model);
  add_rows(text, "parameters",
           {fmt::format("{} ({} without embedding and head)", count.total, count.non_embedding())});
  if (count.active != count.total) {
    add_rows(text, "", {fmt::format("{} active, which one token uses", count.active)});
  }
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    std::int64_t elements = 0;
    for (const engine::Parameter& parameter : unit.parameters) {
      elements += parameter.count();
    }
    if (unit.name == "embedding" || unit.name == "block 0" || unit.name == "head") {
      add_rows(text, "", {fmt::format("{} in {}", elements, unit.name)});
    }
  }
  constexpr std::int64_t kShort = 2048;
  add_rows(text, "FLOPs per token",
           {fmt::format("{} at {} tokens (forward and backward)",
                        format_count(engine::flops_per_token(model, kShort)), kShort)});
  const auto elements = static_cast<std::size_t>(count.total);
  add_rows(text, "weights",
           {fmt::format("{} in fp32, {} in bf16", format_bytes(4 * elements),
                        format_bytes(2 * elements))});
  add_rows(text, "generation keeps", cache_lines(model));
  return text;
}

}  // namespace train::cli
