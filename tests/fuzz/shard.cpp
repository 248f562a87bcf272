// What a rank tells the head that it wrote.
#include "checkpoint/format/manifest.hpp"
#include "storage/files/digest.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

void run(std::string_view input) {
  const auto shard = checkpoint::parse_shard(input);
  if (!shard) {
    require_readable(shard.error());
    return;
  }
  const std::string text = checkpoint::shard_text(*shard);
  const auto again = checkpoint::parse_shard(text);
  require(again && checkpoint::shard_text(*again) == text, "what is read is written and read");
}

std::vector<std::string> seeds() {
  checkpoint::ShardRecord shard;
  const std::string digest = storage::digest_text("rows");
  shard.file = {"shard-00000-of-00001.safetensors", 100, digest};
  const std::string file = shard.file.name;
  shard.tensors = {{"a", "F32", {4, 2}, file, 0, 4, digest, 4096, std::string(16, 'a')},
                   {"b", "F32", {}, file, 0, 1, digest, 4096, std::string(16, 'b')}};
  return {checkpoint::shard_text(shard)};
}

}  // namespace

Target shard_target() {
  return {"shard",
          run,
          seeds,
          {"\"files\":", "\"tensors\":", "\"shape\":[", "\"rows\":", "\"blocks\":", "null", "[[",
           "9223372036854775808", "-1", "1e400", "\\ud800"}};
}

}  // namespace train::fuzz
