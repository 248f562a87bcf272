#include <charconv>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

constexpr std::int64_t kMostHeads = 1024;
constexpr std::int64_t kMost = std::int64_t{1} << 31;

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = code == std::errc() && stop == text.data() + text.size();
  return whole && value >= 1 && value <= kMostHeads ? std::optional(value) : std::nullopt;
}

/// "3..40", "6", or several of them parted by commas; nothing if it is none of these.
std::optional<std::vector<std::int64_t>> list_of_heads(std::string_view text) {
  std::vector<std::int64_t> heads;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::size_t dots = part.find("..");
    const auto first = number(part.substr(0, dots));
    const auto last = dots == std::string_view::npos ? first : number(part.substr(dots + 2));
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

Result<Command> finish_scale(const CLI::App& command, ScaleOptions options,
                             const std::string& heads) {
  auto list = list_of_heads(heads);
  if (!list) {
    return usage_error(
        command, fmt::format("--heads wants numbers 1 .. {} such as 6, 3,6,12 or 3..40, not \"{}\"",
                             kMostHeads, heads));
  }
  options.heads = std::move(*list);
  for (const auto& [name, value, low] :
       {std::tuple("--kappa", options.kappa, 0.0), std::tuple("--omega", options.omega, 0.0)}) {
    if (!std::isfinite(value) || value < low) {
      return usage_error(command, fmt::format("{} must be 0 or more, not {}", name, value));
    }
  }
  if (!std::isfinite(options.tokens_per_parameter) || options.tokens_per_parameter <= 0.0) {
    return usage_error(command, fmt::format("--tokens-per-parameter must be above 0, not {}",
                                            options.tokens_per_parameter));
  }
  for (const auto& [name, value] : {std::pair("--batch", options.batch),
                                    std::pair("--sequence-length", options.sequence_length)}) {
    if (value < 1 || value > kMost) {
      return usage_error(command, fmt::format("{} must be 1 .. {}, not {}", name, kMost, value));
    }
  }
  if (options.params != "total" && options.params != "non_embedding") {
    return usage_error(command, fmt::format("--params must be total or non_embedding, not \"{}\"",
                                            options.params));
  }
  return Command(std::move(options));
}

}  // namespace

void describe_scale(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* command = app.add_subcommand(
      "scale", "Show what a scaling rule makes of a number of heads: model, rates, steps.");
  const auto options = std::make_shared<ScaleOptions>();
  const auto heads = std::make_shared<std::string>();
  command->add_option("--arch", options->arch, "Rule of the table: enoki, qwen3")
      ->required()
      ->type_name("NAME");
  command->add_option("--heads", *heads, "A number, several (3,6,12), or a range (3..40)")
      ->required()
      ->type_name("LIST");
  command->add_option("--optimizer", options->optimizer, "As in optimizer.name")
      ->required()
      ->type_name("NAME");
  command->add_option("--kappa", options->kappa, "The rule of the nearest kappa is taken")
      ->capture_default_str();
  command
      ->add_option("--params", options->params,
                   "Weights that tokens are counted for: total, non_embedding")
      ->type_name("WHICH")
      ->capture_default_str();
  command
      ->add_option("--tokens-per-parameter", options->tokens_per_parameter,
                   "Tokens of the run for each of them")
      ->capture_default_str();
  command->add_option("--omega", options->omega, "Weight decay of the run as a whole")
      ->capture_default_str();
  add_integer(*command, "--batch", options->batch, "Sequences of a step")->default_str("32");
  add_integer(*command, "--sequence-length", options->sequence_length, "Tokens of a sequence")
      ->default_str("2048");
  command->add_option("--table", options->table, "File of rules, instead of those built in")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print JSON, with all digits");
  syntaxes.push_back({command, [=] { return finish_scale(*command, *options, *heads); }});
}

}  // namespace train::cli
