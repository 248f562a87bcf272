#include "storage/inputs/input_folder.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"

namespace train::storage::input_folder_test {
namespace {

namespace fs = std::filesystem;

void write(const test::TempDirectory& home, const std::string& name,
           const std::string& text = "x") {
  fs::create_directories((home / name).parent_path());
  test::write_bytes(home / name, text);
}

/// Paths below the home, in order.
std::vector<std::string> listed(const test::TempDirectory& home, const std::string& folder) {
  const auto found = list_input_folder(home / folder);
  INFO((found ? "" : found.error().message));
  REQUIRE(found.ok());
  std::vector<std::string> names;
  for (const fs::path& file : found->files) {
    names.push_back(file.lexically_relative(home.path()).string());
  }
  return names;
}

void check_refused(const test::TempDirectory& home, const std::string& folder,
                   const std::vector<std::string>& parts) {
  const auto found = list_input_folder(home / folder);
  REQUIRE_FALSE(found.ok());
  INFO(found.error().message);
  CHECK(found.error().kind == ErrorKind::user);
  CHECK(found.error().message.find('\n') == std::string::npos);
  for (const std::string& part : parts) {
    CHECK(found.error().message.find(part) != std::string::npos);
  }
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("input folder: what save_to_disk wrote, in the order that it states",
          "[storage][input_folder]") {
  const test::TempDirectory home;
  write(home, "one/state.json",
        R"({"_data_files": [{"filename": "b.arrow"}, {"filename": "a.arrow"}]})");
  write(home, "one/dataset_info.json", "{}");
  CHECK(listed(home, "one") == Names{"one/b.arrow", "one/a.arrow"});
  write(home, "all/dataset_dict.json", R"({"splits": ["test", "train"]})");
  write(home, "all/train/state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
  CHECK(listed(home, "all") == Names{"all/train/data.arrow"});
  CHECK(list_input_folder(home / "all")->notes.size() == 1);
  write(home, "parts/dataset_dict.json", R"({"splits": ["a", "b"]})");
  check_refused(home, "parts", {"a, b", "name the folder"});
  write(home, "indexed/state.json",
        R"({"_data_files": [{"filename": "x"}], "_indices_data_files": [{"filename": "y"}]})");
  check_refused(home, "indexed", {"flatten_indices()"});
  write(home, "empty/state.json", R"({"_data_files": []})");
  check_refused(home, "empty", {"lists no data file"});
  write(home, "broken/state.json", "[");
  check_refused(home, "broken", {"state.json", "JSON"});
}

TEST_CASE("input folder: Parquet files of the split train, in order", "[storage][input_folder]") {
  const test::TempDirectory home;
  write(home, "set/data/train-00001-of-00002.parquet");
  write(home, "set/data/train-00000-of-00002.parquet");
  write(home, "set/data/test-00000-of-00001.parquet");
  write(home, "set/README.md");
  write(home, "set/dataset_infos.json", "{}");
  write(home, "set/.git/x.parquet");
  CHECK(listed(home, "set") ==
        Names{"set/data/train-00000-of-00002.parquet", "set/data/train-00001-of-00002.parquet"});
  write(home, "plain/b.jsonl.gz");
  write(home, "plain/a.jsonl");
  write(home, "plain/meta.json", "{}");
  CHECK(listed(home, "plain") == Names{"plain/a.jsonl", "plain/b.jsonl.gz"});
  write(home, "tests/test/x.parquet");
  CHECK(listed(home, "tests/test") == Names{"tests/test/x.parquet"});
  write(home, "other/x-test.parquet");
  write(home, "other/x-dev.parquet");
  check_refused(home, "other", {"dev, test", "name the files"});
  write(home, "mixed/train.parquet");
  write(home, "mixed/more.parquet");
  check_refused(home, "mixed", {"without a split's name", "train"});
  write(home, "many/main/train-0.parquet");
  write(home, "many/socratic/train-0.parquet");
  check_refused(home, "many", {"main, socratic", "name one"});
  CHECK(listed(home, "many/main") == Names{"many/main/train-0.parquet"});
  fs::create_directories(home / "nothing");
  check_refused(home, "nothing", {"no data files"});
}

TEST_CASE("input folder: the hub's cache by its revision main, whose files are links",
          "[storage][input_folder]") {
  const test::TempDirectory home;
  const std::string set = "hub/datasets--org--name/";
  write(home, set + "blobs/0123", "rows");
  for (const std::string revision : {"aaa", "bbb"}) {
    fs::create_directories(home / (set + "snapshots/" + revision + "/data"));
    fs::create_symlink(fs::path("../../../blobs/0123"),
                       home / (set + "snapshots/" + revision + "/data/train.parquet"));
  }
  check_refused(home, "hub/datasets--org--name", {"aaa, bbb", "snapshots/REVISION"});
  write(home, set + "refs/main", "bbb\n");
  CHECK(listed(home, "hub/datasets--org--name") == Names{set + "snapshots/bbb/data/train.parquet"});
  CHECK(listed(home, set + "snapshots/aaa") == Names{set + "snapshots/aaa/data/train.parquet"});
}

}  // namespace train::storage::input_folder_test
