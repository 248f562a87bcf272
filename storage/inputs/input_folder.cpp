#include "storage/inputs/input_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "base/text/ascii.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/inputs/byte_source.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Paths = std::vector<fs::path>;

constexpr std::uint64_t kLargestDescription = std::uint64_t{64} << 20U;
constexpr const char* kSavedState = "state.json";
constexpr const char* kSavedSplits = "dataset_dict.json";

// By preference: a folder that has some of one kind has the rest for people.
constexpr std::array<std::array<std::string_view, 3>, 3> kEndings = {
    {{".parquet", ".arrow", ""}, {".jsonl", ".ndjson", ".json"}, {".csv", ".tsv", ".txt"}}};

// Files of JSON that describe a data set.
constexpr auto kDescriptions = std::to_array<std::string_view>(
    {"dataset_info.json", "dataset_infos.json", kSavedState, kSavedSplits, "meta.json"});

// Words of the names of splits, the wanted one first.
constexpr auto kSplits =
    std::to_array<std::string_view>({"train", "validation", "valid", "val", "dev", "test", "eval"});

Result<Json> read_json(const fs::path& path) {
  const auto text = TRAIN_TRY(read_file(path, kLargestDescription));
  auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return user_error(fmt::format("{}: is not a JSON object; download or save the data set again",
                                  path.string()));
  }
  return json;
}

/// Split that a part of a path names, "train" for "train-00000-of-00002.parquet"; empty: none.
std::string_view split_in(std::string_view part) {
  for (const std::string_view split : kSplits) {
    for (std::size_t at = part.find(split); at != std::string_view::npos;
         at = part.find(split, at + 1)) {
      const std::size_t end = at + split.size();
      const bool begins = at == 0 || !is_alphanumeric(part[at - 1]);
      if (begins && (end == part.size() || !is_alphanumeric(part[end]))) {
        return split;
      }
    }
  }
  return {};
}

/// Split that a path below the folder names, by its file or else by a folder.
std::string_view split_of(const fs::path& below) {
  std::string_view split = split_in(lower_case(below.filename().string()));
  for (const fs::path& part : below.parent_path()) {
    split = split.empty() ? split_in(lower_case(part.string())) : split;
  }
  return split;
}

/// One data set as save_to_disk writes it.
Result<InputFolder> saved_files(const fs::path& folder) {
  const fs::path path = folder / kSavedState;
  const auto state = TRAIN_TRY(read_json(path));
  const auto indices = state.find("_indices_data_files");
  if (indices != state.end() && indices->is_array() && !indices->empty()) {
    return user_error(fmt::format(
        "{}: its rows are selected by an index, which is not supported; call flatten_indices() and "
        "save the data set again",
        folder.string()));
  }
  InputFolder found;
  const auto files = state.find("_data_files");
  if (files != state.end() && files->is_array()) {
    for (const Json& file : *files) {
      if (!file.is_object() || !file.contains("filename") || !file["filename"].is_string()) {
        return user_error(
            fmt::format("{}: _data_files has an entry without a file name; save the data set again",
                        path.string()));
      }
      found.files.push_back(folder / file["filename"].get<std::string>());
    }
  }
  if (found.files.empty()) {
    return user_error(
        fmt::format("{}: lists no data file; save the data set again", path.string()));
  }
  return found;
}

/// Several splits as save_to_disk writes them, a folder each.
Result<InputFolder> saved_splits(const fs::path& folder) {
  const fs::path path = folder / kSavedSplits;
  const auto json = TRAIN_TRY(read_json(path));
  std::vector<std::string> splits;
  if (const auto named = json.find("splits"); named != json.end() && named->is_array()) {
    for (const Json& split : *named) {
      if (split.is_string()) {
        splits.push_back(split.get<std::string>());
      }
    }
  }
  const bool has_train = std::ranges::count(splits, kSplits.front()) > 0;
  if (splits.empty() || (splits.size() > 1 && !has_train)) {
    return user_error(fmt::format("{}: has the splits {}; name the folder of one of them",
                                  folder.string(), fmt::join(splits, ", ")));
  }
  const std::string split = has_train ? std::string(kSplits.front()) : splits.front();
  auto found = TRAIN_TRY(saved_files(folder / split));
  if (splits.size() > 1) {
    found.notes.push_back(
        fmt::format("{}: split \"{}\" of {}", folder.string(), split, fmt::join(splits, ", ")));
  }
  return found;
}

std::string data_ending(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool hidden = name.starts_with('.');
  return hidden || std::ranges::count(kDescriptions, name) > 0 ? "" : content_ending(path);
}

/// Files of the first kind of kEndings that there is, below `folder`.
Result<Paths> data_files_in(const fs::path& folder) {
  std::array<Paths, kEndings.size()> found;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    if (entry->is_directory(gone) && entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    }
    if (!fs::is_regular_file(entry->path(), gone)) {  // Or a link to one, as in the hub's cache.
      continue;
    }
    const std::string ending = data_ending(entry->path());
    for (std::size_t kind = 0; kind < kEndings.size() && !ending.empty(); ++kind) {
      if (std::ranges::count(kEndings[kind], ending) > 0) {
        found[kind].push_back(entry->path());
      }
    }
  }
  if (error) {
    return user_error(fmt::format("{}: cannot be listed: {}", folder.string(), error.message()));
  }
  const auto kind = std::ranges::find_if(found, [](const Paths& paths) { return !paths.empty(); });
  if (kind == found.end()) {
    return user_error(fmt::format(
        "{}: has no data files (.parquet, .arrow, .jsonl, .json, .csv, .tsv, .txt); name a folder "
        "that has some, or files",
        folder.string()));
  }
  std::ranges::sort(*kind);
  return std::move(*kind);
}

/// Files of the split "train", where names tell splits apart.
Result<InputFolder> choose_split(const fs::path& folder, const Paths& files) {
  std::map<std::string_view, Paths> by_split;
  for (const fs::path& file : files) {
    by_split[split_of(file.lexically_relative(folder))].push_back(file);
  }
  std::vector<std::string_view> names;
  names.reserve(by_split.size());
  for (const auto& [split, paths] : by_split) {
    names.push_back(split.empty() ? "(files without a split's name)" : split);
  }
  if (by_split.size() == 1) {
    return InputFolder{.files = files};
  }
  const auto train = by_split.find(kSplits.front());
  if (train == by_split.end() || by_split.contains("")) {
    return user_error(fmt::format("{}: has {}; name the files or the folder of one of them",
                                  folder.string(), fmt::join(names, ", ")));
  }
  return InputFolder{.files = train->second,
                     .notes = {fmt::format("{}: split \"{}\" of {}", folder.string(), train->first,
                                           fmt::join(names, ", "))}};
}

Result<InputFolder> plain_files(const fs::path& folder) {
  const auto files = TRAIN_TRY(data_files_in(folder));
  auto found = TRAIN_TRY(choose_split(folder, files));
  std::set<std::string> parents;
  for (const fs::path& file : found.files) {
    parents.insert(file.parent_path().lexically_relative(folder).string());
  }
  if (parents.size() > 1) {
    return user_error(fmt::format(
        "{}: has data files in several folders ({}), which may be different data; name one of them",
        folder.string(), fmt::join(parents, ", ")));
  }
  return found;
}

/// Folder of a data set in the hub's cache: refs/main names the revision below snapshots/.
Result<InputFolder> cached_files(const fs::path& folder) {
  std::vector<std::string> revisions;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", error)) {
    revisions.push_back(entry.path().filename().string());
  }
  std::string revision;
  if (const auto main = read_file(folder / "refs" / "main", kLargestDescription)) {
    revision = main->substr(0, main->find_last_not_of(" \r\n") + 1);
  } else if (revisions.size() == 1) {
    revision = revisions.front();
  }
  if (std::ranges::count(revisions, revision) == 0) {
    std::ranges::sort(revisions);
    return user_error(fmt::format(
        "{}: its refs/main names none of the revisions that are here ({}); name the folder of one, "
        "snapshots/REVISION",
        folder.string(), fmt::join(revisions, ", ")));
  }
  auto found = TRAIN_TRY(list_input_folder(folder / "snapshots" / revision));
  found.notes.insert(found.notes.begin(),
                     fmt::format("{}: revision {}", folder.string(), revision));
  return found;
}

}  // namespace

Result<InputFolder> list_input_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kSavedState, ignored)) {
    return saved_files(folder);
  }
  if (fs::exists(folder / kSavedSplits, ignored)) {
    return saved_splits(folder);
  }
  if (fs::is_directory(folder / "snapshots", ignored)) {
    return cached_files(folder);
  }
  return plain_files(folder);
}

}  // namespace train::storage
