// Files in a checkpoint that are none, and texts of shards that someone made to hurt: an error, at
// once, in bounded memory; nothing outside the checkpoint is opened.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/save/writer.hpp"
#include "tests/checkpoint/load/hostile_site.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/long_text.hpp"
#include "tests/support/processes/contained.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::glued;
using train::test::OpenWatch;
using train::test::repeated;
using train::test::Site;
using train::test::SmallState;
using train::test::TempDirectory;
using Json = nlohmann::ordered_json;

namespace {

namespace fs = std::filesystem;

struct FileCase {
  const char* what;
  std::function<void(const Site&)> change;
};

void replace_with_link(const fs::path& path, const fs::path& target) {
  fs::remove(path);
  fs::create_symlink(target, path);
}

std::vector<FileCase> file_cases() {
  return {
      {"a shard that is a link out of the run",
       [](const Site& s) { replace_with_link(s.shard(), s.outside() / s.shard().filename()); }},
      {"a manifest that is a link out of the run",
       [](const Site& s) { replace_with_link(s.manifest(), s.outside() / kManifestFileName); }},
      {"a shard that is a relative link up",
       [](const Site& s) {
         replace_with_link(s.shard(),
                           fs::path("../../outside/step-00000010") / s.shard().filename());
       }},
      {"a shard that is a link to its neighbour",
       [](const Site& s) { replace_with_link(s.shard(), "shard-00001-of-00002.safetensors"); }},
      {"a shard that is a link to nothing",
       [](const Site& s) { replace_with_link(s.shard(), "none"); }},
      {"a shard that is a link to itself",
       [](const Site& s) { replace_with_link(s.shard(), s.shard().filename()); }},
      {"a shard without end", [](const Site& s) { replace_with_link(s.shard(), "/dev/zero"); }},
      {"a manifest without end",
       [](const Site& s) { replace_with_link(s.manifest(), "/dev/zero"); }},
      {"a pipe for a shard",
       [](const Site& s) {
         fs::remove(s.shard());
         REQUIRE(::mkfifo(s.shard().c_str(), 0600) == 0);
       }},
      {"a pipe for the manifest",
       [](const Site& s) {
         fs::remove(s.manifest());
         REQUIRE(::mkfifo(s.manifest().c_str(), 0600) == 0);
       }},
      {"a directory for a shard",
       [](const Site& s) {
         fs::remove(s.shard());
         fs::create_directory(s.shard());
       }},
      {"a directory for the manifest",
       [](const Site& s) {
         fs::remove(s.manifest());
         fs::create_directory(s.manifest());
       }},
      {"a shard of a terabyte of holes",
       [](const Site& s) { fs::resize_file(s.shard(), std::uintmax_t{1} << 40); }},
      {"a manifest of a terabyte of holes",
       [](const Site& s) { fs::resize_file(s.manifest(), std::uintmax_t{1} << 40); }},
      {"a shard whose header says 2^63",
       [](const Site& s) {
         std::string bytes = test::read_bytes(s.shard());
         bytes[7] = '\x80';
         test::overwrite_bytes(s.shard(), bytes);
       }},
      {"no shard", [](const Site& s) { fs::remove(s.shard()); }},
      {"no manifest", [](const Site& s) { fs::remove(s.manifest()); }},
      {"nothing", [](const Site& s) { fs::remove_all(s.path()); }},
      {"a file for the directory",
       [](const Site& s) {
         fs::remove_all(s.path());
         test::write_bytes(s.path(), "checkpoint");
       }},
  };
}

}  // namespace

TEST_CASE("hostile: files that are none are refused, and no link is followed",
          "[checkpoint][hostile][CK-3][fork]") {
  Site site;
  std::size_t cases = 0;
  for (const FileCase& hostile : file_cases()) {
    INFO(hostile.what);
    site.renew();
    hostile.change(site);
    const OpenWatch watch(site.outside());
    test::require_refused(site.use(), 0);
    REQUIRE_FALSE(watch.anything());
    ++cases;
  }
  std::printf("hostile: %zu sets of files refused\n", cases);
}

TEST_CASE("hostile: texts of shards are refused", "[checkpoint][hostile][fork]") {
  SmallState state;
  const TempDirectory directory;
  const auto views = state.views();
  const auto shard = write_shard(directory / "incoming", views, {0, 1});
  REQUIRE(shard);
  const std::string good = shard_text(*shard);
  const auto parsed = parse_shard(good);
  REQUIRE(parsed);
  REQUIRE(shard_text(*parsed) == good);
  std::vector<std::string> cases = {"",
                                    "null",
                                    "[]",
                                    "{}",
                                    R"({"files": [], "tensors": []})",
                                    glued({good, good}),
                                    std::string(1'000'000, '['),
                                    repeated(1'000'000, "{\"files\":"),
                                    glued({"{\"files\":", std::string(1'000'000, '[')}),
                                    std::string(70'000'000, ' '),
                                    std::string("\xff\xfe{}")};
  for (const char* key : {"files", "tensors"}) {
    for (const Json& value : {Json(), Json(1), Json("x"), Json::array({1}), Json::array({{}}),
                              Json::array({Json::object()})}) {
      Json json = Json::parse(good);
      json[key] = value;
      cases.push_back(json.dump());
    }
  }
  for (const char* key : {"file", "rows", "shape", "dtype", "blocks", "block_bytes"}) {
    Json json = Json::parse(good);
    json["tensors"][0][key] = key == std::string("rows") ? Json(std::uint64_t{1} << 62) : Json("");
    cases.push_back(json.dump());
  }
  for (std::size_t cut = 1; cut < good.size(); cut += 97) {
    cases.push_back(good.substr(0, cut));
  }
  for (const std::string& text : cases) {
    INFO(text.substr(0, 200));
    const auto result = test::run_contained([&] {
      const auto bad = parse_shard(text);
      return bad ? std::string() : bad.error().message;
    });
    test::require_refused(result, text.size());
  }
}
