// Manifests whose own digest fits, as someone would make them who means harm.
#include "checkpoint/format/manifest.hpp"

#include "storage/files/digest.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

using checkpoint::Manifest;
using checkpoint::TensorRecord;

constexpr std::string_view digest_key = "\"manifest_digest\": \"";
constexpr std::string_view blank_digest = "xxh3-128:00000000000000000000000000000000";

std::string sealed(std::string text) {
  const std::size_t key = text.rfind(digest_key);
  if (key != std::string::npos && text.size() - key >= digest_key.size() + blank_digest.size()) {
    const std::size_t at = key + digest_key.size();
    text.replace(at, blank_digest.size(), blank_digest);
    text.replace(at, blank_digest.size(), storage::digest_text(text));
  }
  return text;
}

void run(std::string_view input) {
  const auto manifest = checkpoint::parse_manifest(sealed(std::string(input)), "manifest.json");
  if (!manifest) {
    require_readable(manifest.error());
    return;
  }
  require(checkpoint::coverage_defect(manifest->tensors).empty(), "rows are covered once");
  for (const TensorRecord& tensor : manifest->tensors) {
    require(checkpoint::rows_bytes(tensor).has_value(), "rows have a size");
    require(checkpoint::blocks_defect(tensor).empty(), "blocks fit");
  }
  for (const checkpoint::FileRecord& file : manifest->files) {
    require(file.name.find('/') == std::string::npos && file.name.front() != '.',
            "a file's name leads nowhere else");
  }
  const std::string text = checkpoint::manifest_text(*manifest);
  const auto again = checkpoint::parse_manifest(text, "manifest.json");
  require(again && checkpoint::manifest_text(*again) == text, "what is read is written and read");
}

Manifest example(std::int64_t version) {
  Manifest manifest;
  manifest.version = version;
  manifest.fields = {.step = 200,
                     .tokens = 204800,
                     .lanes = 4,
                     .micro_batch = 2,
                     .kernel_set = "cpu",
                     .config_text = "[run]\nname = \"x\"\n",
                     .weights_digest = "w",
                     .index_head = "3:abc"};
  manifest.config_digest = storage::digest_text(manifest.fields.config_text);
  const std::string digest = storage::digest_text("rows");
  manifest.files = {{"shard-0", 100, digest}, {"shard-1", 200, digest}};
  const std::string block(16, '0');
  manifest.tensors = {{"a", "F32", {4, 2}, "shard-0", 0, 3, digest, 16, block + block},
                      {"a", "F32", {4, 2}, "shard-1", 3, 1, digest, 16, block},
                      {"b", "F32", {}, "shard-0", 0, 1, digest, 4096, block}};
  for (TensorRecord& tensor : manifest.tensors) {
    if (version == 1) {
      tensor.block_bytes = 0;
      tensor.blocks.clear();
    }
  }
  return manifest;
}

std::vector<std::string> seeds() {
  return {checkpoint::manifest_text(example(2)), checkpoint::manifest_text(example(1))};
}

}  // namespace

Target manifest_target() {
  return {"manifest",
          run,
          seeds,
          {"\"version\": 1",
           "\"version\": 3",
           "\"files\": [",
           "\"tensors\": [",
           "\"shape\":[",
           "\"rows\":",
           "\"first_row\":",
           "\"block_bytes\":",
           "\"blocks\":",
           "\"digest\":",
           "\"dtype\":\"F32\"",
           "\"name\":\"",
           "../",
           "9223372036854775807",
           "9223372036854775808",
           "4611686018427387904",
           "-1",
           "1e400",
           "null",
           "[[",
           "\\u0000",
           std::string(digest_key)}};
}

}  // namespace train::fuzz
