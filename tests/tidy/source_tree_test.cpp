#include "tests/tidy/source_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "tests/support/disks/temp_directory.hpp"

namespace train::tidy {
namespace {

constexpr std::array<std::string_view, 14> kFolders = {
    "actors", "base", "bench",  "checkpoint", "cli", "cmake",   "configs",
    "data",   "docs", "engine", "kernels",    "run", "storage", "tests"};
constexpr std::array<std::string_view, 9> kTextEndings = {".hpp",  ".cpp", ".cuh",   ".cu", ".md",
                                                          ".toml", ".txt", ".cmake", ".py"};

bool is_text(const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  return std::find(kTextEndings.begin(), kTextEndings.end(), ending) != kTextEndings.end();
}

SourceTree load_tree(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  SourceTree tree;
  for (const std::string_view folder : kFolders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      // Prepared data sets lie beside the sources of data/, their texts in no directory.
      const bool is_data_set = folder == "data" && entry.path().extension() == ".txt" &&
                               entry.path().filename() != "CMakeLists.txt";
      if (entry.is_regular_file() && is_text(entry.path()) && !is_data_set) {
        tree.push_back(read_file(root, entry.path()));
      }
    }
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_regular_file() && is_text(entry.path())) {
      tree.push_back(read_file(root, entry.path()));
    }
  }
  std::sort(tree.begin(), tree.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

}  // namespace

SourceFile read_file(const std::filesystem::path& root, const std::filesystem::path& path) {
  return make_file(path.lexically_relative(root).generic_string(), test::read_bytes(path));
}

bool SourceFile::is_header() const { return path.ends_with(".hpp") || path.ends_with(".cuh"); }

bool SourceFile::is_code() const {
  return is_header() || path.ends_with(".cpp") || path.ends_with(".cu");
}

std::string_view SourceFile::name() const {
  return std::string_view(path).substr(path.rfind('/') + 1);
}

bool SourceFile::contains(std::string_view text) const {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

SourceFile make_file(std::string path, std::string_view text) {
  SourceFile file{std::move(path), {}};
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    file.lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return file;
}

const SourceTree& repository() {
  static const SourceTree kTree = load_tree(ACTORTRAIN_SOURCE_DIR);
  return kTree;
}

const SourceFile* find_file(const SourceTree& tree, std::string_view path) {
  const auto found = std::find_if(tree.begin(), tree.end(),
                                  [&](const SourceFile& file) { return file.path == path; });
  return found == tree.end() ? nullptr : &*found;
}

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.find('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

std::string finding(const SourceFile& file, std::size_t index, std::string_view what) {
  return fmt::format("{}:{}: {}", file.path, index + 1, what);
}

bool has_any(std::string_view line, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return line.find(word) != std::string_view::npos;
  });
}

std::string joined(const Findings& findings) {
  return fmt::format("{}", fmt::join(findings, "\n"));
}

namespace {

TEST_CASE("source_tree: finds the files it is to judge", "[tidy][source_tree]") {
  const SourceTree& tree = repository();
  for (const std::string_view path :
       {"base/result.hpp", "cli/main.cpp", "configs/quickstart.toml", "configs/README.md",
        "docs/architecture.md", "CMakeLists.txt", "packages.txt", "tests/tidy/source_tree_test.cpp",
        "cmake/FindCAF.cmake"}) {
    INFO(path);
    const auto found = std::find_if(tree.begin(), tree.end(),
                                    [&](const SourceFile& file) { return file.path == path; });
    REQUIRE(found != tree.end());
    CHECK_FALSE(found->lines.empty());
  }
  const bool outside = std::any_of(tree.begin(), tree.end(), [](const SourceFile& file) {
    return file.path.starts_with("build/") || file.path.starts_with("data/quickstart");
  });
  CHECK_FALSE(outside);
}

TEST_CASE("source_tree: splits lines and names folders", "[tidy][source_tree]") {
  const SourceFile file = make_file("engine/a.hpp", "one\n\nthree");
  CHECK(file.lines == std::vector<std::string>{"one", "", "three"});
  CHECK(file.name() == "a.hpp");
  CHECK(file.contains("hre"));
  CHECK_FALSE(file.contains("four"));
  CHECK(finding(file, 2, "bad") == "engine/a.hpp:3: bad");
  CHECK(folder_of("base/text/log.hpp") == "base");
  CHECK(folder_of("engine/model/blocks/block.hpp") == "engine");
  CHECK(folder_of("dev") == "");
}

}  // namespace
}  // namespace train::tidy
