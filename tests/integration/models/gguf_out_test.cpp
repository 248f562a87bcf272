// GGUF files by the real program: of a published model, of a run, of its adapters.
#include "storage/weight_files/gguf_file.hpp"
#include "tests/integration/sites/published_site.hpp"

using namespace train;
using namespace train::test;

namespace {

/// The command's output, after it has ended well.
std::string done(const RunSite& site, const Words& words) {
  const Ended ended = site.call(words);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.out;
}

std::string weights_in(const RunSite& site, const std::string& directory) {
  return read_bytes(site / directory / "model.safetensors");
}

}  // namespace

TEST_CASE("gguf out: converted and converted back a model has the same bits",
          "[integration][gguf_out][WF-1]") {
  const RunSite& site = published_site();
  for (const auto& [dtype, type] :
       {std::pair("bf16", "BF16"), std::pair("fp32", "F32"), std::pair("fp16", "F16")}) {
    INFO(dtype);
    const std::string same = fmt::format("same-{}", dtype);
    const std::string gguf = fmt::format("gguf-{}", dtype);
    const std::string back = fmt::format("back-{}", dtype);
    const std::string file = fmt::format("model-{}.gguf", type);
    (void)done(site, {"convert", "model", "--dtype", dtype, "--out", same});
    const std::string out =
        done(site, {"convert", same, "--format", "gguf", "--no-tokenizer", "--out", gguf});
    CHECK(has(out, fmt::format("dtype={} files=1", type == std::string("F32")   ? "f32"
                                                   : type == std::string("F16") ? "f16"
                                                                                : "bf16")));
    CHECK(names_in(site / gguf) == Words{"Modelfile", file});
    CHECK(read_bytes(site / gguf / "Modelfile") == fmt::format("FROM ./{}\n", file));
    (void)done(site, {"convert", gguf + "/" + file, "--out", back});
    CHECK(weights_in(site, back) == weights_in(site, same));
  }
}

TEST_CASE("gguf out: several files where asked, and mistakes in a line",
          "[integration][gguf_out]") {
  const RunSite& site = published_site();
  (void)done(site, {"convert", "model", "--format", "gguf", "--no-tokenizer", "--max-shard-size",
                    "20KB", "--out", "parts"});
  const Words files = names_in(site / "parts");
  REQUIRE(files.size() > 2);
  CHECK(has(files.at(1), "model-BF16-00001-of-0000"));
  check_mistake(site, {"convert", "parts/" + files.at(1), "--out", "x"}, {files.at(1)});
  const Words gguf = {"convert", "model", "--format", "gguf", "--out", "x"};
  check_mistake(site, gguf, {"tokenizer.json", "--no-tokenizer"});
  check_mistake(site, joined(gguf, {"--no-tokenizer", "--dtype", "q8_0"}),
                {"rows of 48", "Q8_0", "multiple of 32"});
  check_mistake(site, joined(gguf, {"--no-tokenizer", "--dtype", "q4_k_m"}),
                {"Q6_K", "multiple of 256"});
  check_mistake(site, {"convert", "model", "--out", "x", "--dtype", "q8_0"},
                {"--dtype q8_0", "--format gguf"});
  check_mistake(site, {"export", "runs/fresh", "--format", "gguf-lora", "--out", "x"},
                {"has trained no adapters"});
}

TEST_CASE("gguf out: a run's weights with adapters merged, and the adapters alone",
          "[integration][gguf_out]") {
  const RunSite& site = published_site();
  site.train({"run.name=adapted", "run.steps=4", "schedule.warmup_steps=1", "lora.rank=2"});
  (void)done(site, {"export", "runs/adapted", "--out", "merged"});
  (void)done(site, {"export", "runs/adapted", "--format", "gguf", "--no-tokenizer", "--out", "gg"});
  (void)done(site, {"convert", "gg/model-F32.gguf", "--out", "merged-back"});
  CHECK(weights_in(site, "merged-back") == weights_in(site, "merged"));
  (void)done(site, {"export", "runs/adapted", "--format", "gguf-lora", "--out", "lora"});
  CHECK(names_in(site / "lora") == Words{"adapter.gguf"});
  const auto adapter = storage::GgufFile::open(site / "lora/adapter.gguf");
  REQUIRE(adapter);
  CHECK(*adapter->value_of<std::string>("adapter.type") == "lora");
  CHECK(adapter->find("blk.1.attn_q.weight.lora_a") != nullptr);
  CHECK(adapter->find("blk.1.attn_q.weight.lora_b") != nullptr);
  check_mistake(
      site,
      {"export", "runs/adapted", "--format", "gguf-lora", "--max-shard-size", "1KB", "--out", "x"},
      {"--max-shard-size", "one file"});
}
