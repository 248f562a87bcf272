// Manifests that someone made to hurt and that keep their own digest: an error, at once, in bounded
// memory; nothing outside the checkpoint is opened.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/load/reader.hpp"
#include "tests/checkpoint/load/hostile_site.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/long_text.hpp"
#include "tests/support/processes/contained.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::blank_digest;
using train::test::digest_key;
using train::test::glued;
using train::test::OpenWatch;
using train::test::repeated;
using train::test::sealed;
using train::test::Site;
using Json = nlohmann::ordered_json;

namespace {

struct JsonCase {
  const char* what;
  std::function<void(Json&)> change;
};

std::vector<JsonCase> name_cases() {
  const auto file = [](std::string name) {
    return [name](Json& json) {
      json["files"][0]["name"] = name;
      for (Json& tensor : json["tensors"]) {
        if (tensor["file"] == "shard-00000-of-00002.safetensors") {
          tensor["file"] = name;
        }
      }
    };
  };
  return {
      {"a name that leads up",
       file("../../outside/step-00000010/shard-00000-of-00002.safetensors")},
      {"an absolute name", file("/etc/passwd")},
      {"two dots", file("..")},
      {"a dot", file(".")},
      {"no name", file("")},
      {"a hidden name", file(".shard")},
      {"the manifest's own name", file("manifest.json")},
      {"a NUL in a name", file(std::string("shard\0x", 7))},
      {"a line feed in a name", file("shard\n0")},
      {"a name of another script", file("sh\xc3\xa4rd")},
      {"a name of a megabyte", file(std::string(1'000'000, 'a'))},
      {"a name with a backslash", file("..\\shard")},
      {"a file that is not there", file("shard-00007-of-00009.safetensors")},
      {"a tensor's name of a megabyte",
       [](Json& json) { json["tensors"][0]["name"] = std::string(1'000'000, 'a'); }},
      {"a tensor's name with escape sequences",
       [](Json& json) { json["tensors"][3]["name"] = "\x1b[2Jz\n"; }},
      {"a tensor twice in one file",
       [](Json& json) { json["tensors"][1]["file"] = json["tensors"][0]["file"]; }},
      {"kernel_set with line feeds", [](Json& json) { json["kernel_set"] = "a\nb"; }},
      {"index_head of a megabyte",
       [](Json& json) { json["index_head"] = std::string(1'000'000, '1'); }},
      {"config_text of two megabytes",
       [](Json& json) { json["config_text"] = std::string(2'000'000, '1'); }},
  };
}

std::vector<JsonCase> number_cases() {
  const auto tensor = [](const char* key, Json value) {
    return [key, value](Json& json) { json["tensors"][0][key] = value; };
  };
  return {
      {"a step of 2^63", [](Json& json) { json["step"] = std::uint64_t{1} << 63; }},
      {"a step below zero", [](Json& json) { json["step"] = -10; }},
      {"a step of another directory", [](Json& json) { json["step"] = 11; }},
      {"tokens a float", [](Json& json) { json["tokens"] = 1e300; }},
      {"lanes null", [](Json& json) { json["lanes"] = nullptr; }},
      {"version a text", [](Json& json) { json["version"] = "2"; }},
      {"version below zero", [](Json& json) { json["version"] = -1; }},
      {"version 2^62", [](Json& json) { json["version"] = std::uint64_t{1} << 62; }},
      {"a file of 2^62 bytes",
       [](Json& json) { json["files"][0]["size"] = std::uint64_t{1} << 62; }},
      {"a file of no bytes", [](Json& json) { json["files"][0]["size"] = 0; }},
      {"rows of 2^62", tensor("rows", std::uint64_t{1} << 62)},
      {"rows of 2^63 - 1", tensor("rows", 9223372036854775807)},
      {"rows below zero", tensor("rows", -1)},
      {"first_row of 2^62", tensor("first_row", std::uint64_t{1} << 62)},
      {"first_row beyond the end", tensor("first_row", 7)},
      {"shape of 2^62 rows", tensor("shape", {std::uint64_t{1} << 62, 3})},
      {"shape whose product wraps", tensor("shape", {7, std::uint64_t{1} << 62, 4})},
      {"shape of objects", tensor("shape", {Json::object()})},
      {"shape a text", tensor("shape", "7, 3")},
      {"shape of 33 dimensions", tensor("shape", std::vector<int>(33, 1))},
      {"shape of a million dimensions", tensor("shape", std::vector<int>(1'000'000, 1))},
      {"dtype unknown", tensor("dtype", "F4")},
      {"dtype wider", tensor("dtype", "F64")},
      {"digest empty", tensor("digest", "")},
      {"digest of 32 other letters", tensor("digest", "xxh3-128:" + std::string(32, 'z'))},
      {"digest of a megabyte", tensor("digest", std::string(1'000'000, '0'))},
      {"block_bytes 0", tensor("block_bytes", 0)},
      {"block_bytes 1", tensor("block_bytes", 1)},
      {"block_bytes 2^63 - 1", tensor("block_bytes", 9223372036854775807)},
      {"block_bytes a text", tensor("block_bytes", "4096")},
      {"blocks too short", tensor("blocks", "00")},
      {"blocks too long", tensor("blocks", std::string(160, '0'))},
      {"blocks no digits", tensor("blocks", std::string(16, 'z'))},
      {"blocks an array", tensor("blocks", {1, 2})},
      {"no files", [](Json& json) { json["files"] = Json::array(); }},
      {"no tensors", [](Json& json) { json["tensors"] = Json::array(); }},
      {"files an object", [](Json& json) { json["files"] = Json::object(); }},
      {"files of texts",
       [](Json& json) {
         json["files"] = {"a", "b"};
       }},
      {"tensors of arrays", [](Json& json) { json["tensors"][1] = Json::array({1}); }},
      {"a part of a tensor missing", [](Json& json) { json["tensors"].erase(2); }},
      {"a tensor missing",
       [](Json& json) {
         json["tensors"].erase(3);
         json["tensors"].erase(2);
       }},
      {"tensors out of order",
       [](Json& json) { std::swap(json["tensors"][0], json["tensors"][4]); }},
      {"rows exchanged",
       [](Json& json) { std::swap(json["tensors"][0]["file"], json["tensors"][1]["file"]); }},
  };
}

struct TextCase {
  const char* what;
  std::function<std::string(const std::string& good)> change;
};

/// Puts `json` in the place of the files, which keeps the text's end.
std::string with_files(const std::string& good, const std::string& json) {
  std::string text = good;
  const std::size_t at = text.find("\"files\": ") + 9;
  text.replace(at, text.find("\"tensors\"") - at, glued({json, ",\n "}));
  return text;
}

/// What nobody asked for is skipped, so something has to be missing besides.
std::string without_step(std::string text) {
  return text.replace(text.find("\"step\""), 6, "\"stop\"");
}

constexpr const char* small_record =
    R"({"name":"a","dtype":"F32","shape":[1],"file":"f","first_row":0,"rows":1,)"
    R"("digest":"","block_bytes":4096,"blocks":"0000000000000000"},)";

std::vector<TextCase> structure_cases() {
  const auto whole = [](std::string text) { return [text](const std::string&) { return text; }; };
  const auto files = [](std::string json) {
    return [json](const std::string& good) { return with_files(good, json); };
  };
  const auto only_digest = [](std::string before) {
    return [before](const std::string&) {
      return glued({before, "{", digest_key, blank_digest, "\"}"});
    };
  };
  return {
      {"nothing", whole("")},
      {"no JSON", whole("manifest")},
      {"NUL bytes", whole(std::string(5000, '\0'))},
      {"a digest alone", only_digest("")},
      {"the digest of an inner object", only_digest("[{},")},
      {"a million brackets", only_digest(std::string(1'000'000, '['))},
      {"a million objects", only_digest(repeated(1'000'000, "{\"a\":"))},
      {"brackets for files", files(std::string(1'000'000, '['))},
      {"brackets in pairs for files",
       files(glued({std::string(1'000'000, '['), std::string(1'000'000, ']')}))},
      {"objects for files", files(repeated(500'000, "{\"name\":"))},
      {"a hundred thousand files",
       files(glued({"[", repeated(100'000, R"({"name":"a","size":1,"digest":""},)"),
                    R"({"name":"a","size":1,"digest":""}])"}))},
  };
}

std::vector<TextCase> long_cases() {
  return {
      {"two hundred thousand tensors",
       [](const std::string& good) {
         std::string text = good;
         return text.insert(text.find("\"tensors\": [") + 12, repeated(200'000, small_record));
       }},
      {"as many tensors as may be",
       [](const std::string& good) {
         std::string text = good;
         return text.insert(text.find("\"tensors\": [") + 12,
                            repeated(kTensorRecordLimit - 8, small_record));
       }},
      {"three million unknown members",
       [](const std::string& good) {
         return glued({"{", repeated(5'000'000, "\"x\":0,"), good.substr(1)});
       }},
      {"fifty megabytes of spaces",
       [](const std::string& good) {
         return glued({"{", std::string(50'000'000, ' '), good.substr(1)});
       }},
      {"fifty megabytes of gaps, and no step",
       [](const std::string& good) {
         return glued({"{", repeated(60, glued({"\"x\":", std::string(800'000, ' '), "1,"})),
                       without_step(good).substr(1)});
       }},
      {"fifty megabytes of texts, and no step",
       [](const std::string& good) {
         return glued({"{", repeated(60, glued({"\"x\":\"", std::string(800'000, 'x'), "\","})),
                       without_step(good).substr(1)});
       }},
      {"seventy megabytes",
       [](const std::string& good) {
         return glued({std::string(70'000'000, ' '), good});
       }},
  };
}

std::vector<TextCase> detail_cases() {
  return {
      {"1e400",
       [](const std::string& good) {
         std::string text = good;
         return text.replace(text.find("\"step\": 10"), 10, "\"step\": 1e400");
       }},
      {"a number of 900 kB",
       [](const std::string& good) {
         std::string text = good;
         return text.replace(text.find("\"step\": 10"), 10,
                             glued({"\"step\": 1", std::string(900'000, '0')}));
       }},
      {"a step twice",
       [](const std::string& good) {
         return glued({"{\"step\": 10,", good.substr(1)});
       }},
      {"bad UTF-8",
       [](const std::string& good) {
         return glued({"{\"x\": \"\xc3\x28\",", good.substr(1)});
       }},
      {"two manifests",
       [](const std::string& good) {
         return glued({good, good});
       }},
      {"text after the end",
       [](const std::string& good) {
         return glued({good, "[]"});
       }},
  };
}

/// A checkpoint whose manifest is exchanged for others, which have to be refused.
struct Refusals {
  Site site;
  OpenWatch watch{site.outside()};
  std::size_t cases = 0;
  test::Used most = {};

  void refuse(const char* what, const std::string& text) {
    INFO(what);
    REQUIRE(text != site.text());
    test::overwrite_bytes(site.manifest(), text);
    const auto result = site.use();
    test::require_refused(result, text.size());
    REQUIRE_THAT(result.text, Catch::Contains("step-00000010"));
    most = test::most_of(most, result.used);
    ++cases;
  }
  void refuse(const std::vector<TextCase>& all) {
    for (const TextCase& hostile : all) {
      refuse(hostile.what, sealed(hostile.change(site.text())));
    }
  }
  void require(std::size_t least_cases) const {
    fmt::print("hostile: {} manifests refused; at most {} MiB at once, {} allocations\n", cases,
               most.growth_bytes >> 20, most.allocations);
    REQUIRE(cases >= least_cases);
    REQUIRE_FALSE(watch.anything());
  }
};

}  // namespace

TEST_CASE("hostile: manifests that keep their own digest are refused",
          "[checkpoint][hostile][CK-3][fork]") {
  Refusals refusals;
  for (const auto& make : {name_cases, number_cases}) {
    for (const JsonCase& hostile : make()) {
      Json json = Json::parse(refusals.site.text());
      hostile.change(json);
      refusals.refuse(hostile.what, sealed(json.dump(1) + "\n"));
    }
  }
  refusals.refuse(structure_cases());
  refusals.refuse(detail_cases());
  refusals.require(50);
}

TEST_CASE("hostile: long manifests that keep their own digest are refused",
          "[checkpoint][hostile][CK-3][fork][exhaustive]") {
  Refusals refusals;
  refusals.refuse(long_cases());
  refusals.require(3);
}

TEST_CASE("hostile: where a record's digest lies, its blocks still vouch for what is restored",
          "[checkpoint][hostile][CK-3]") {
  const Site site;
  Json json = Json::parse(site.text());
  json["tensors"][0]["digest"] = blank_digest;
  test::overwrite_bytes(site.manifest(), sealed(json.dump(1) + "\n"));
  const auto verified = verify_checkpoint(site.path());
  REQUIRE(verified);
  REQUIRE_THAT(verified->defect, Catch::Contains("does not match its digest"));
  const auto manifest = read_manifest(site.path());
  REQUIRE(manifest);
  test::SmallState state(0);
  auto views = state.views();
  REQUIRE(restore(site.path(), *manifest, views));
  REQUIRE(state.all_values() == test::SmallState(5).all_values());
  json["tensors"][0]["blocks"] = std::string(16, '0');
  test::overwrite_bytes(site.manifest(), sealed(json.dump(1) + "\n"));
  const auto second = read_manifest(site.path());
  REQUIRE(second);
  REQUIRE_FALSE(restore(site.path(), *second, views));
}
