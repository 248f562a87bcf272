#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

// Recipes: a folder each, with a run file, the script that makes the run's data, and the digests of
// the weights that the run yields on every machine.
namespace train::cli {

/// Files of a recipe's folder.
inline constexpr const char* kRecipeRunFile = "run.toml";
inline constexpr const char* kRecipeScript = "data.py";
inline constexpr const char* kRecipeDigests = "digests.txt";
inline constexpr const char* kRecipeReadme = "README.md";
/// Directory that a recipe's run file names in model.from if it needs SmolLM2.
inline constexpr const char* kRecipeModel = "SmolLM2";

/// Folder of a recipe.
struct Recipe {
  std::string name;
  std::filesystem::path directory;  ///< Absolute.
  std::string title;                ///< Heading of its README.
};

/// Digests of all weights by step: 16 hexadecimal digits, as in metrics.jsonl.
using StepDigests = std::map<std::int64_t, std::string>;

/// Contents of a recipe's digests.txt.
struct RecordedDigests {
  std::string inputs;  ///< inputs_digest() of when they were recorded; empty: not said.
  StepDigests steps;

  friend bool operator==(const RecordedDigests&, const RecordedDigests&) = default;
};

/// Folder of all recipes: of the package that this program belongs to, or of the source tree that
/// it was built in. Errors (user): neither has one.
[[nodiscard]] Result<std::filesystem::path> recipes_directory();

/// All recipes of a folder, by name. Blocks on the file system. Errors: those of find_recipe().
[[nodiscard]] Result<std::vector<Recipe>> list_recipes(const std::filesystem::path& recipes);

/// `name`: a recipe of `recipes`; with a slash, the folder of one. Errors (user): no such recipe
/// (names the nearest); a folder without one of its files.
[[nodiscard]] Result<Recipe> find_recipe(const std::filesystem::path& recipes,
                                         const std::string& name);

/// Digest, 16 hexadecimal digits, of the files in the recipe's folder that decide its weights:
/// those that end in .toml, .py or .json, without comments and blank lines. Blocks on the file
/// system.
[[nodiscard]] Result<std::string> inputs_digest(const Recipe& recipe);

/// Digests from `text`: a line "inputs DIGEST", which may be absent, then lines "STEP DIGEST",
/// ascending; lines that begin with # are comments. Pure. Errors (user): another line, named by
/// `file` and number; no digest of a step at all.
[[nodiscard]] Result<RecordedDigests> parse_digests(std::string_view text, const std::string& file);

/// Text that parse_digests() reads.
[[nodiscard]] std::string digests_text(const RecordedDigests& recorded);

/// Digests in `metrics`, the text of a metrics.jsonl. Of a step that was trained twice the later
/// one counts. Pure. Lines that are not whole are skipped.
[[nodiscard]] StepDigests digests_of_metrics(std::string_view metrics);

/// Comparison of found digests with those recorded, a line a step.
struct RecipeComparison {
  std::vector<std::string> lines;
  std::int64_t compared = 0;
  std::int64_t first_difference = 0;  ///< Step; 0: none. A missing digest is a difference.

  [[nodiscard]] bool equal() const { return compared > 0 && first_difference == 0; }
};

/// Compares the steps of `recorded` up to `last_step`. Pure.
[[nodiscard]] RecipeComparison compare_digests(const StepDigests& recorded,
                                               const StepDigests& found, std::int64_t last_step);

}  // namespace train::cli
