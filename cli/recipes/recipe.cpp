#include "cli/recipes/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>
#include <system_error>

#include "base/process/own_program.hpp"
#include "cli/report/untrusted_json.hpp"
#include "configs/words/nearest.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostReadme = 1 << 20;  // bytes
constexpr std::uint64_t kMostInput = 64 << 20;  // bytes, of a file
constexpr std::string_view kInputs = "inputs ";
constexpr std::size_t kDigestDigits = 16;

bool is_recipe_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

/// The first line of a text, without the marks of a heading.
std::string heading_of(std::string_view text) {
  const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
  const std::size_t begin = std::min(line.find_first_not_of("# "), line.size());
  return std::string(line.substr(begin));
}

Result<Recipe> recipe_at(const fs::path& directory) {
  for (const char* const file : {kRecipeRunFile, kRecipeScript, kRecipeReadme}) {
    if (!is_recipe_file(directory / file)) {
      return user_error(
          fmt::format("{}: no recipe: it has no {}; `actortrain recipe list` lists "
                      "recipes",
                      directory.string(), file));
    }
  }
  const auto absolute = TRAIN_TRY(storage::absolute_path(directory));
  const auto readme = TRAIN_TRY(storage::read_file(absolute / kRecipeReadme, kMostReadme));
  return Recipe{
      .name = absolute.filename().string(), .directory = absolute, .title = heading_of(readme)};
}

Result<std::vector<std::string>> names_of_recipes(const fs::path& recipes) {
  auto names = TRAIN_TRY(storage::entry_names(recipes));
  std::erase_if(names, [&recipes](const std::string& name) {
    return !is_recipe_file(recipes / name / kRecipeRunFile);
  });
  return names;
}

bool is_digest(std::string_view word) {
  return word.size() == kDigestDigits &&
         word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// The lines of a text, without their ends.
std::vector<std::string_view> text_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// True if `line` was one of digests, which follows those that are there.
bool take_digest(std::string_view line, StepDigests& digests) {
  std::int64_t step = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, code] = std::from_chars(line.data(), end, step);
  if (code != std::errc() || stop == end || *stop != ' ') {
    return false;
  }
  const std::string_view digest(stop + 1, static_cast<std::size_t>(end - stop - 1));
  if (!is_digest(digest) || step < 1 || (!digests.empty() && step <= digests.rbegin()->first)) {
    return false;
  }
  digests.emplace(step, digest);
  return true;
}

bool is_input(const std::string& name) {
  return name.ends_with(".toml") || name.ends_with(".py") || name.ends_with(".json");
}

/// A line as it counts: without the comment behind a blank, and without blanks at its end.
std::string_view counted(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos || line[first] == '#') {
    return {};
  }
  line = line.substr(0, line.find(" #"));
  return line.substr(0, line.find_last_not_of(" \t\r") + 1);
}

}  // namespace

Result<std::string> inputs_digest(const Recipe& recipe) {
  std::string all;
  for (const std::string& name : TRAIN_TRY(storage::entry_names(recipe.directory))) {
    if (!is_input(name)) {
      continue;
    }
    const auto text = TRAIN_TRY(storage::read_file(recipe.directory / name, kMostInput));
    all += name + "\n";
    for (const std::string_view line : text_lines(text)) {
      if (const std::string_view part = counted(line); !part.empty()) {
        all.append(part).push_back('\n');
      }
    }
  }
  return fmt::format("{:016x}", storage::short_digest(std::as_bytes(std::span(all))));
}

Result<fs::path> recipes_directory() {
  const fs::path home = fs::path(own_program()).parent_path();
  const fs::path packed = home.parent_path() / "share/actortrain/recipes";
  std::error_code absent;
  for (const fs::path& candidate : {packed, home.parent_path().parent_path() / "recipes"}) {
    if (fs::is_directory(candidate, absent)) {
      return candidate;
    }
  }
  return user_error(
      fmt::format("{}: no such directory, the recipes that come with a package; name a recipe by "
                  "its folder, as ./recipes/lora",
                  packed.string()));
}

Result<std::vector<Recipe>> list_recipes(const fs::path& recipes) {
  std::vector<Recipe> found;
  for (const std::string& name : TRAIN_TRY(names_of_recipes(recipes))) {
    found.push_back(TRAIN_TRY(recipe_at(recipes / name)));
  }
  return found;
}

Result<Recipe> find_recipe(const fs::path& recipes, const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return recipe_at(fs::path(name).lexically_normal());
  }
  const auto names = TRAIN_TRY(names_of_recipes(recipes));
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return user_error(
        fmt::format("{}: no such recipe{}; there are {}; the folder of your own is "
                    "named with a slash, as ./{}",
                    name, configs::did_you_mean(name, names), fmt::join(names, ", "), name));
  }
  return recipe_at(recipes / name);
}

Result<RecordedDigests> parse_digests(std::string_view text, const std::string& file) {
  RecordedDigests recorded;
  const auto lines = text_lines(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (line.empty() || line.front() == '#') {
      continue;
    }
    if (line.starts_with(kInputs) && is_digest(line.substr(kInputs.size())) &&
        recorded.inputs.empty() && recorded.steps.empty()) {
      recorded.inputs = line.substr(kInputs.size());
    } else if (!take_digest(line, recorded.steps)) {
      return user_error(fmt::format(
          "{}:{}: must be a step, greater than the previous line's, a blank and a digest of {} "
          "hexadecimal digits, not \"{}\"",
          file, i + 1, kDigestDigits, line));
    }
  }
  if (recorded.steps.empty()) {
    return user_error(
        fmt::format("{}: no digests; `actortrain recipe check --record` records a run's", file));
  }
  return recorded;
}

std::string digests_text(const RecordedDigests& recorded) {
  std::string text =
      "# Digest of all weights after each of these steps, on every processor and any number of "
      "ranks, if the inputs (run file, scripts, JSON) have this one.\n";
  if (!recorded.inputs.empty()) {
    text += fmt::format("{}{}\n", kInputs, recorded.inputs);
  }
  for (const auto& [step, digest] : recorded.steps) {
    fmt::format_to(std::back_inserter(text), "{} {}\n", step, digest);
  }
  return text;
}

StepDigests digests_of_metrics(std::string_view metrics) {
  StepDigests digests;
  for (const std::string_view line : text_lines(metrics)) {
    if (line.find("\"weights_digest\"") == std::string_view::npos) {
      continue;
    }
    const auto json = parse_untrusted_json(line, kLineLimits);
    if (!json || !json->is_object() || !json->contains("step")) {
      continue;
    }
    const auto& step = json->at("step");
    const auto& digest = json->at("weights_digest");
    if (step.is_number_integer() && digest.is_string()) {
      digests[step.get<std::int64_t>()] = digest.get<std::string>();
    }
  }
  return digests;
}

RecipeComparison compare_digests(const StepDigests& recorded, const StepDigests& found,
                                 std::int64_t last_step) {
  RecipeComparison comparison;
  for (const auto& [step, digest] : recorded) {
    if (step > last_step) {
      break;
    }
    const auto own = found.find(step);
    const bool missing = own == found.end();
    const bool equal = !missing && own->second == digest;
    ++comparison.compared;
    if (!equal && comparison.first_difference == 0) {
      comparison.first_difference = step;
    }
    comparison.lines.push_back(
        missing ? fmt::format("step {}: {} recorded, no digest of this run", step, digest)
        : equal ? fmt::format("step {}: {} equal", step, digest)
                : fmt::format("step {}: {} recorded, {} here", step, digest, own->second));
  }
  return comparison;
}

}  // namespace train::cli
