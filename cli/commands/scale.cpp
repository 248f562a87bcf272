#include <cmath>

#include "cli/command.hpp"
#include "cli/report/scale_report.hpp"

namespace train::cli {
namespace {

constexpr std::int64_t kMostHeads = 1024;
constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;

Status show_scaling(const ScaleOptions& options) {
  const auto text = TRAIN_TRY(describe_scaling(options));
  print(text);
  return {};
}

/// Parses "3..40", "6", or several of these separated by commas; nullopt otherwise.
std::optional<std::vector<std::int64_t>> list_of_heads(std::string_view text) {
  std::vector<std::int64_t> heads;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t dots = part.find("..");
    const auto first = integer_in(part.substr(0, dots), 1, kMostHeads);
    const auto last =
        dots == std::string_view::npos ? first : integer_in(part.substr(dots + 2), 1, kMostHeads);
    if (!first || !last || *first > *last) {
      return std::nullopt;
    }
    for (std::int64_t one = *first; one <= *last; ++one) {
      heads.push_back(one);
    }
    if (part.size() == text.size()) {
      return heads;
    }
    text.remove_prefix(part.size() + 1);
  }
}

std::string mistake_in(const ScaleOptions& options) {
  for (const auto& [name, value] :
       {std::pair("--kappa", options.kappa), std::pair("--omega", options.omega)}) {
    if (!std::isfinite(value) || value < 0.0) {
      return fmt::format("{} must be 0 or more, not {}", name, value);
    }
  }
  if (!std::isfinite(options.tokens_per_parameter) || options.tokens_per_parameter <= 0.0) {
    return fmt::format("--tokens-per-parameter must be above 0, not {}",
                       options.tokens_per_parameter);
  }
  for (const auto& [name, value] : {std::pair("--batch", options.batch),
                                    std::pair("--sequence-length", options.sequence_length)}) {
    if (value < 1 || value > kLargestSize) {
      return fmt::format("{} must be 1 .. {}, not {}", name, kLargestSize, value);
    }
  }
  if (options.params != "total" && options.params != "non_embedding") {
    return fmt::format("--params must be total or non_embedding, not \"{}\"", options.params);
  }
  return {};
}

}  // namespace

void describe_scale(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "scale",
      "Show the model, rates and steps that a scaling rule derives from a number of heads.");
  ScaleOptions& options = command.runs(show_scaling);
  command.text("--arch", options.arch, "Rule of the table: enoki, qwen3", "NAME")->required();
  const auto heads = [&options](std::string_view text) {
    options.heads = list_of_heads(text).value_or(options.heads);
    return !options.heads.empty();
  };
  command
      .read("--heads", heads,
            fmt::format("--heads wants numbers 1 .. {} such as 6, 3,6,12 or 3..40", kMostHeads),
            "A number, several (3,6,12), or a range (3..40)", "LIST")
      ->required();
  command.text("--optimizer", options.optimizer, "As in optimizer.name", "NAME")->required();
  command.number("--kappa", options.kappa, "Kappa; the rule of the nearest kappa is used");
  command
      .text("--params", options.params,
            "Weights that --tokens-per-parameter counts: total, non_embedding", "WHICH")
      ->capture_default_str();
  command.number("--tokens-per-parameter", options.tokens_per_parameter,
                 "Training tokens per weight");
  command.number("--omega", options.omega, "Total weight decay of the run");
  command.integer("--batch", options.batch, "Sequences of a step")->default_str("32");
  command.integer("--sequence-length", options.sequence_length, "Tokens of a sequence")
      ->default_str("2048");
  command.text("--table", options.table, "File of rules, instead of those built in", "FILE");
  command.app.add_flag("--json", options.json, "Print JSON, with all digits");
  command.check([&options] { return mistake_in(options); });
}

}  // namespace train::cli
