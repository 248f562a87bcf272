#include "data/tokens/kept_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <system_error>

#include "data/tokenizer/formats/file_names.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/copy_file.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFolder = "tokenizer";

/// Files beside a tokenizer that describe its tokens and its end-of-text.
constexpr std::array kSideNames = {"tokenizer_config.json", "added_tokens.json",
                                   "special_tokens_map.json", "generation_config.json",
                                   "config.json"};

bool is_beside(const fs::path& name) {
  return std::find(kSideNames.begin(), kSideNames.end(), name.string()) != kSideNames.end();
}

}  // namespace

std::vector<fs::path> tokenizer_files(const fs::path& tokenizer) {
  std::error_code ignored;
  if (!fs::is_directory(tokenizer, ignored)) {
    std::vector<fs::path> files{tokenizer};
    for (const char* name : kSideNames) {
      const fs::path file = tokenizer.parent_path() / name;
      if (file != tokenizer && fs::is_regular_file(file, ignored)) {
        files.push_back(file);
      }
    }
    return files;
  }
  std::vector<fs::path> names(kTokenizerFileNames.begin(), kTokenizerFileNames.end());
  names.emplace_back("config.json");  // May name the end-of-text.
  for (const auto& entry : fs::directory_iterator(tokenizer, ignored)) {
    if (entry.path().extension() == ".tiktoken") {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<fs::path> files;
  for (const fs::path& name : names) {
    if (fs::is_regular_file(tokenizer / name, ignored)) {
      files.push_back(tokenizer / name);
    }
  }
  return files;
}

Status keep_tokenizer(const fs::path& tokenizer, const fs::path& data) {
  const fs::path to = kept_tokenizer_folder(data);
  std::error_code ignored;
  if (fs::equivalent(tokenizer, to, ignored) ||
      fs::equivalent(tokenizer.parent_path(), to, ignored)) {
    return {};  // The tokenizer is the copy itself.
  }
  TRAIN_RETURN_IF_ERROR(storage::remove_tree(to));
  TRAIN_RETURN_IF_ERROR(storage::make_directory(to));
  for (const fs::path& file : tokenizer_files(tokenizer)) {
    TRAIN_RETURN_IF_ERROR(storage::copy_file(file, to / file.filename()));
  }
  return {};
}

fs::path kept_tokenizer_folder(const fs::path& data) { return data / kTokenizerFolder; }

fs::path kept_tokenizer(const fs::path& data) {
  fs::path folder = kept_tokenizer_folder(data);
  std::error_code ignored;
  if (holds_tokenizer(folder)) {
    return folder;
  }
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored) && entry.path().extension() != ".jinja" &&
        !is_beside(entry.path().filename())) {
      return entry.path();
    }
  }
  return {};
}

}  // namespace train::data
