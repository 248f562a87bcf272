#include "checkpoint/format/manifest.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "storage/files/digest.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

using namespace train;
using namespace train::checkpoint;

namespace {

Manifest example() {
  Manifest manifest;
  manifest.fields = test::fields_at(200);
  manifest.fields.weights_digest = "w";
  manifest.fields.index_head = "3:abc";
  manifest.config_digest = storage::digest_text(manifest.fields.config_text);
  const std::string digest = storage::digest_text("rows");
  manifest.files = {{"shard-0", 100, digest}, {"shard-1", 200, digest}};
  const std::string block(16, '0');
  manifest.tensors = {{"a", "F32", {4, 2}, "shard-0", 0, 3, digest, 16, block + block},
                      {"a", "F32", {4, 2}, "shard-1", 3, 1, digest, 16, block},
                      {"b", "F32", {}, "shard-0", 0, 1, digest, 4096, block}};
  return manifest;
}

/// The manifest after `change` to its JSON, with a digest that fits again.
std::string changed(const std::function<void(nlohmann::ordered_json&)>& change) {
  auto object = nlohmann::ordered_json::parse(manifest_text(example()));
  object["manifest_digest"] = "xxh3-128:00000000000000000000000000000000";
  change(object);
  std::string text = object.dump(1) + "\n";
  const std::string digest = storage::digest_text(text);
  const std::string key = "\"manifest_digest\": \"";
  if (const auto at = text.rfind(key); at != std::string::npos) {
    text.replace(at + key.size(), digest.size(), digest);
  }
  return text;
}

}  // namespace

TEST_CASE("manifest: what is written is read", "[checkpoint][manifest]") {
  const Manifest manifest = example();
  const auto parsed = parse_manifest(manifest_text(manifest), "m");
  REQUIRE(parsed);
  REQUIRE(manifest_text(*parsed) == manifest_text(manifest));
  REQUIRE(parsed->fields.step == 200);
  REQUIRE(parsed->fields.tokens == 200 * 1024);
  REQUIRE(parsed->fields.config_text == manifest.fields.config_text);
  REQUIRE(parsed->fields.index_head == "3:abc");
  REQUIRE(parsed->files[1].size_bytes == 200);
  REQUIRE(parsed->tensors[1].first_row == 3);
  REQUIRE(parsed->tensors[0].shape == std::vector<std::int64_t>{4, 2});
  REQUIRE(parsed->tensors[0].block_bytes == 16);
  REQUIRE(parsed->tensors[0].blocks.size() == 32);
  REQUIRE(parsed->text_digest == storage::digest_text(manifest_text(manifest)));
}

TEST_CASE("manifest: version 1, without blocks, is read", "[checkpoint][manifest]") {
  Manifest old = example();
  old.version = 1;
  for (TensorRecord& tensor : old.tensors) {
    tensor.block_bytes = 0;
    tensor.blocks.clear();
  }
  const std::string text = manifest_text(old);
  REQUIRE(text.find("block") == std::string::npos);
  const auto parsed = parse_manifest(text, "m");
  REQUIRE(parsed);
  REQUIRE(parsed->version == 1);
  REQUIRE(parsed->tensors[0].block_bytes == 0);
  REQUIRE(manifest_text(*parsed) == text);
}

TEST_CASE("manifest: says on which data, and may, as those of earlier versions, not say it",
          "[checkpoint][manifest]") {
  Manifest manifest = example();
  const std::string without = manifest_text(manifest);
  CHECK(without.find("data_fingerprint") == std::string::npos);  // to the byte as before
  const auto old = parse_manifest(without, "m");
  REQUIRE(old);
  CHECK(old->fields.data_fingerprint.empty());
  manifest.fields.data_fingerprint = storage::digest_text("tokens");
  const auto parsed = parse_manifest(manifest_text(manifest), "m");
  REQUIRE(parsed);
  CHECK(parsed->version == kManifestVersion);
  CHECK(parsed->fields.data_fingerprint == manifest.fields.data_fingerprint);
  CHECK(manifest_text(*parsed) == manifest_text(manifest));
}

TEST_CASE("manifest: any changed byte and any cut is found", "[checkpoint][manifest][CK-5]") {
  const std::string good = manifest_text(example());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0x01, 0x20}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ bit);
      const auto parsed = parse_manifest(bytes, "m");
      INFO("byte " << i);
      REQUIRE_FALSE(parsed);
      REQUIRE(parsed.error().kind == ErrorKind::failure);
    }
    REQUIRE_FALSE(parse_manifest(good.substr(0, i), "m"));
  }
  REQUIRE_FALSE(parse_manifest(good + "x", "m"));
  REQUIRE_FALSE(parse_manifest("", "m"));
}

TEST_CASE("manifest: a newer version is the user's, named, whatever else it holds",
          "[checkpoint][manifest]") {
  const auto text = changed([](auto& json) {
    json["version"] = 3;
    json["files"] = {{"a", {{"b", {1, 2, {3}}}}}};
    json["tensors"][0]["shape"] = "any";
    json.erase("step");
  });
  const auto parsed = parse_manifest(text, "m.json");
  REQUIRE_FALSE(parsed);
  REQUIRE(parsed.error().exit_code() == 2);
  REQUIRE_THAT(parsed.error().message, Catch::Contains("m.json: format version 3"));
}

TEST_CASE("manifest: intact but wrong content is named", "[checkpoint][manifest]") {
  using OrderedJson = nlohmann::ordered_json;
  const std::vector<std::pair<std::string, std::function<void(OrderedJson&)>>> cases = {
      {"step is missing", [](OrderedJson& json) { json.erase("step"); }},
      {"tokens is no whole number", [](OrderedJson& json) { json["tokens"] = "5"; }},
      {"lanes is no whole number", [](OrderedJson& json) { json["lanes"] = -1; }},
      {"kernel_set is no string", [](OrderedJson& json) { json["kernel_set"] = 1; }},
      {"tensors is no array", [](OrderedJson& json) { json["tensors"] = 1; }},
      {"files is missing", [](OrderedJson& json) { json.erase("files"); }},
      {"files[1]. is not an object", [](OrderedJson& json) { json["files"][1] = 7; }},
      {"files[0].size", [](OrderedJson& json) { json["files"][0]["size"] = 1.5; }},
      {"tensors[1].digest is missing",
       [](OrderedJson& json) { json["tensors"][1].erase("digest"); }},
      {"tensors[0].shape", [](OrderedJson& json) { json["tensors"][0]["shape"][0] = -4; }},
      {"\"../x\" is not allowed", [](OrderedJson& json) { json["files"][0]["name"] = "../x"; }},
      {"\"\" is not allowed", [](OrderedJson& json) { json["files"][0]["name"] = ""; }},
      {"listed twice", [](OrderedJson& json) { json["files"][1]["name"] = "shard-0"; }},
      {"unlisted file", [](OrderedJson& json) { json["tensors"][0]["file"] = "other"; }},
      {"expected row", [](OrderedJson& json) { json["tensors"][1]["first_row"] = 2; }},
      {"expected row", [](OrderedJson& json) { json["tensors"][1]["rows"] = 2; }},
      {"expected row", [](OrderedJson& json) { json["tensors"][1]["rows"] = 9223372036854775807; }},
      {"are missing", [](OrderedJson& json) { json["tensors"].erase(1); }},
      {"two shapes",
       [](OrderedJson& json) {
         json["tensors"][1]["shape"] = {4, 3};
       }},
      {"out of order", [](OrderedJson& json) { json["tensors"][2]["name"] = "A"; }},
      {"not a checkpoint's", [](OrderedJson& json) { json["version"] = 0; }},
      {"not a checkpoint's", [](OrderedJson& json) { json["format"] = "other"; }},
      {"block_bytes 0 in version 2",
       [](OrderedJson& json) { json["tensors"][0].erase("block_bytes"); }},
      {"block_bytes 16 in version 1", [](OrderedJson& json) { json["version"] = 1; }},
      {"more than 1048576", [](OrderedJson& json) { json["tensors"][2]["block_bytes"] = 1 << 21; }},
      {"32 digits for 3 blocks", [](OrderedJson& json) { json["tensors"][0]["block_bytes"] = 8; }},
      {"16 digits for 2 blocks",
       [](OrderedJson& json) { json["tensors"][0]["blocks"] = std::string(16, '0'); }},
      {"dtype \"F31\" unknown", [](OrderedJson& json) { json["tensors"][2]["dtype"] = "F31"; }},
      {"tensor \"b\" has no digest", [](OrderedJson& json) { json["tensors"][2]["digest"] = ""; }},
      {"file shard-1 has no digest", [](OrderedJson& json) { json["files"][1]["digest"] = "d1"; }},
      {"data_fingerprint is no string", [](OrderedJson& json) { json["data_fingerprint"] = 1; }},
      {"data_fingerprint \"d\" is no digest",
       [](OrderedJson& json) { json["data_fingerprint"] = "d"; }},
      {"plain text", [](OrderedJson& json) { json["kernel_set"] = "a\nb"; }},
      {"config_text does not match", [](OrderedJson& json) { json["config_text"] = "other"; }},
  };
  for (const auto& [wanted, change] : cases) {
    INFO(wanted);
    const auto parsed = parse_manifest(changed(change), "m.json");
    REQUIRE_FALSE(parsed);
    REQUIRE_THAT(parsed.error().message, Catch::Contains(wanted) && Catch::Contains("m.json"));
  }
}
