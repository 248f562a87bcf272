#include <algorithm>

#include "cli/command.hpp"
#include "cli/recipes/recipe.hpp"

namespace train::cli {
namespace {

Status list_all_recipes(const RecipeListOptions& options) {
  (void)options;
  const auto recipes = TRAIN_TRY(recipes_directory());
  const auto found = TRAIN_TRY(list_recipes(recipes));
  std::size_t widest = 0;
  for (const Recipe& recipe : found) {
    widest = std::max(widest, recipe.name.size());
  }
  for (const Recipe& recipe : found) {
    print(fmt::format("{:<{}}  {}\n", recipe.name, widest, recipe.title));
  }
  print(fmt::format("\nfolders: {}\n", recipes.string()));
  return {};
}

}  // namespace

void describe_recipe_list(CommandSyntaxes& commands) {
  commands.add("recipe list", "List the recipes that come with the program.")
      .runs(list_all_recipes);
}

}  // namespace train::cli
