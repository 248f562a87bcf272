#include "bench/steps/step_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "configs/load_config.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestVocabulary = 65536;  // With two bytes per token.
constexpr std::int64_t kByteVocabulary = 320;       // Padded vocabulary of the quickstart's data.

void write_tokens(const fs::path& path, std::size_t count, std::int64_t vocabulary) {
  std::vector<std::uint16_t> tokens(count);
  std::uint64_t state = 12345;
  for (std::uint16_t& token : tokens) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    token = static_cast<std::uint16_t>((state >> 33) % static_cast<std::uint64_t>(vocabulary));
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(count * sizeof(std::uint16_t)));
}

fs::path token_directory(const Workplace& place, const StepCase& one) {
  if (!one.data.empty()) {
    return one.data;
  }
  const std::int64_t vocabulary = std::min(one.vocabulary, kLargestVocabulary);
  const fs::path directory = place.directory() / fmt::format("random{}", vocabulary);
  if (fs::create_directories(directory)) {
    write_tokens(directory / "val.bin", 20'000, vocabulary);
    write_tokens(directory / "train.bin", 400'000, vocabulary);
  }
  return directory;
}

}  // namespace

StepCase gpt2_case(std::int64_t seq_len, std::int64_t micro_batch, std::int64_t lanes) {
  return {.name = "124M",
          .file = "quickstart.toml",
          .keys = {"model.layers=12", "model.heads=12", "model.head_dim=64",
                   "model.tie_embeddings=true", fmt::format("data.sequence_length={}", seq_len),
                   fmt::format("batch.micro_batch={}", micro_batch),
                   fmt::format("batch.lanes={}", lanes)}};
}

StepCase quickstart_case() {
  return {
      .name = "quickstart", .file = "quickstart.toml", .keys = {}, .vocabulary = kByteVocabulary};
}

StepCase qwen3_case() {
  return {.name = "qwen3 2 heads",
          .file = "quickstart.toml",
          .keys = {"model.arch=\"qwen3\"", "model.layers=4", "model.heads=2", "model.head_dim=128",
                   "model.norm_eps=1e-6", "model.rope_theta=1e6", "data.sequence_length=512",
                   "batch.micro_batch=2"}};
}

StepCase published_case(const std::string& model, std::int64_t vocabulary, std::int64_t seq_len) {
  return {.name = model,
          .file = {},
          .keys = {fmt::format("data.sequence_length={}", seq_len), "batch.lanes=1",
                   "batch.micro_batch=1"},
          .vocabulary = vocabulary,
          .published = model};
}

std::string file_of(const Workplace& place, const StepCase& one) {
  if (!one.file.empty()) {
    return fmt::format("{}/{}", place.paths().configs, one.file);
  }
  const fs::path file = place.directory() / (fs::path(one.published).filename().string() + ".toml");
  if (!fs::exists(file)) {
    std::ofstream(file) << fmt::format("[run]\nname = \"step\"\n[model]\nconfig = \"{}\"\n",
                                       one.published);
  }
  return file.string();
}

Words keys_of(const Workplace& place, const StepCase& one) {
  Words common = {
      fmt::format("data.dir=\"{}\"", token_directory(place, one).string()),
      fmt::format("run.dir=\"{}\"", (place.directory() / "runs").string()),
      "model.z_loss_coeff=0.0",
      "optimizer.name=\"adamw\"",
      "run.tensorboard=false",
      "run.sample_tokens=0",
      "eval.interval_steps=0",
      "checkpoint.interval_steps=0",
  };
  if (one.published.empty()) {
    common.push_back(fmt::format("model.vocab_size={}", one.vocabulary));
  }
  return joined(common, one.keys);
}

run::RunPlan plan_of_case(const Workplace& place, const StepCase& one) {
  const auto config = configs::load_config(file_of(place, one), keys_of(place, one));
  if (!config) {
    throw std::runtime_error(config.error().message);
  }
  auto plan = run::plan_run(*config);
  if (!plan) {
    throw std::runtime_error(plan.error().message);
  }
  return std::move(*plan);
}

fs::path tokens_of(const Workplace& place, const StepCase& one) {
  return token_directory(place, one) / "train.bin";
}

}  // namespace train::bench
