// Rows on whole training steps, model by model.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/gpu/gpu_steps.hpp"

namespace train::bench {
namespace {

StepCase gpt2(const GpuSite& site) {
  return site.model(
      "124M", "enoki", 50304,
      {"model.layers=12", "model.heads=12", "model.head_dim=64", "model.tie_embeddings=true",
       "data.sequence_length=1024", "batch.micro_batch=32"});
}

StepCase gpt2_xl(const GpuSite& site) {
  return site.model(
      "1.5B", "enoki", 50304,
      {"model.layers=48", "model.heads=25", "model.head_dim=64", "model.tie_embeddings=true",
       "data.sequence_length=1024", "batch.micro_batch=16"});
}

/// Case of 16384 tokens in sequences of `seq_len`.
StepCase qwen3(const GpuSite& site, const std::string& name, int seq_len) {
  return site.model(
      name, "qwen3", 151936,
      {"model.layers=28", "model.heads=16", "model.head_dim=128", "model.embedding_dim=1024",
       "model.mlp_hidden=3072", "model.attention_output_gate=false", "model.tie_embeddings=true",
       "model.norm_eps=1e-6", "model.rope_theta=1e6",
       fmt::format("data.sequence_length={}", seq_len),
       fmt::format("batch.micro_batch={}", 16384 / seq_len)});
}

/// Shape in a published model's config.json; `head_dim` is columns / heads.
struct PublishedShape {
  const char* type;
  std::int64_t layers, columns, heads, kv_heads, hidden, vocabulary;
  double norm_eps, rope_theta;
  bool tied;
};

/// Case with fresh weights of that shape.
StepCase published(const GpuSite& site, const std::string& name, const PublishedShape& full,
                   const Words& keys) {
  PublishedShape shape = full;
  if (site.tiny()) {
    shape.layers = 1;
    shape.columns = 16;
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.hidden = 32;
    shape.vocabulary = 320;
  }
  const auto file = site.place().directory() / (name + ".json");
  std::ofstream(file) << nlohmann::json{{"model_type", shape.type},
                                        {"vocab_size", shape.vocabulary},
                                        {"hidden_size", shape.columns},
                                        {"intermediate_size", shape.hidden},
                                        {"num_hidden_layers", shape.layers},
                                        {"num_attention_heads", shape.heads},
                                        {"num_key_value_heads", shape.kv_heads},
                                        {"hidden_act", "silu"},
                                        {"max_position_embeddings", 8192},
                                        {"rms_norm_eps", shape.norm_eps},
                                        {"rope_theta", shape.rope_theta},
                                        {"tie_word_embeddings", shape.tied}};
  return site.published(name, file.string(), shape.vocabulary, keys);
}

/// Seconds from the end of step `first` to the end of step `last`, from a run's metrics lines.
double seconds_between(const std::vector<nlohmann::json>& steps, std::int64_t first,
                       std::int64_t last) {
  double seconds = 0.0;
  double tokens_before = 0.0;
  for (const nlohmann::json& step : steps) {
    const auto number = step.at("step").get<std::int64_t>();
    const double tokens = step.at("tokens").get<double>();
    if (number > first && number <= last) {
      seconds += (tokens - tokens_before) / step.at("tokens_per_second").get<double>();
    }
    tokens_before = tokens;
  }
  return seconds;
}

}  // namespace

void gpu_gpt2_row(const GpuSite& site) {
  const StepCase one = gpt2(site);
  measure_ours(site, one, kManySteps,
               {.tokens_per_second = site.target({.h100 = 430'000, .h200 = 490'000})});
  compare_with_plain_loop(site, one, {.rounds = 2, .steps = 30, .dropped = 5});
  print_gaps(site, one);
}

void gpu_gpt2_torch_row(const GpuSite& site) { compare_with_torch(site, gpt2(site), kManySteps); }

void gpu_gpt2_xl_row(const GpuSite& site) {
  measure_ours(site, gpt2_xl(site), kSomeSteps,
               {.tokens_per_second = site.target({.h100 = 46'000, .h200 = 50'000})});
}

void gpu_gpt2_xl_torch_row(const GpuSite& site) {
  compare_with_torch(site, gpt2_xl(site), kSomeSteps);
}

void gpu_qwen3_row(const GpuSite& site) {
  measure_ours(site, qwen3(site, "0.6B", 2048), kSomeSteps, {.stated_share = 0.55});
}

void gpu_qwen3_long_row(const GpuSite& site) {
  measure_ours(site, qwen3(site, "0.6B, T 4096", 4096), kSomeSteps, {.measured_share = 0.55});
}

void gpu_qwen3_torch_row(const GpuSite& site) {
  compare_with_torch(site, qwen3(site, "0.6B", 2048), kSomeSteps);
}

// Each further sequence saves part of the update, which is a tenth of a step of one.
void gpu_8b_row(const GpuSite& site) {
  const PublishedShape llama3{.type = "llama",
                              .layers = 32,
                              .columns = 4096,
                              .heads = 32,
                              .kv_heads = 8,
                              .hidden = 14336,
                              .vocabulary = 128256,
                              .norm_eps = 1e-5,
                              .rope_theta = 5e5,
                              .tied = false};
  const auto one = largest_that_fits(site, 16, [&](int sequences) {
    return published(site, "8B", llama3,
                     {"data.sequence_length=4096", fmt::format("batch.micro_batch={}", sequences),
                      "memory.activation_checkpointing=\"all\"", "memory.bf16_weights=\"made\""});
  });
  if (one) {
    measure_ours(site, *one, {.rounds = 1, .steps = 5, .dropped = 2},
                 {.tokens_per_second = site.target({.h100 = 0.0, .h200 = 10'500})});
  }
}

void gpu_qwen25_row(const GpuSite& site) {
  struct Size {
    const char* name;
    std::int64_t layers, columns, heads, hidden;
    int sequences;
    double tokens_per_second;
  };
  constexpr Size sizes[] = {{"Qwen2.5-0.5B", 24, 896, 14, 4864, 32, 149'000},
                            {"Qwen2.5-1.5B", 28, 1536, 12, 8960, 32, 59'000},
                            {"Qwen2.5-3B", 36, 2048, 16, 11008, 32, 31'000}};
  for (const Size& size : sizes) {
    const PublishedShape shape{.type = "qwen2",
                               .layers = size.layers,
                               .columns = size.columns,
                               .heads = size.heads,
                               .kv_heads = 2,
                               .hidden = size.hidden,
                               .vocabulary = 151936,
                               .norm_eps = 1e-6,
                               .rope_theta = 1e6,
                               .tied = true};
    const auto one = largest_that_fits(site, size.sequences, [&](int sequences) {
      return published(
          site, size.name, shape,
          {"data.sequence_length=1024", fmt::format("batch.micro_batch={}", sequences)});
    });
    if (one) {
      measure_speed(site, *one, {.rounds = 1, .steps = 10, .dropped = 4},
                    {.tokens_per_second = size.tokens_per_second});
    }
  }
}

// Cost of equal bits at any number of ranks, where it arises: lane sums in the order of all lanes
// instead of the rank's.
void gpu_determinism_row(const GpuSite& site) {
  StepCase one = gpt2(site);
  one.keys = joined(one.keys,
                    {"batch.lanes=4", site.tiny() ? "batch.micro_batch=1" : "batch.micro_batch=8"});
  const Length length = taken(site, {.rounds = 4, .steps = 20, .dropped = 5});
  Values price;
  for (int round = 0; round < length.rounds; ++round) {
    double seconds[2] = {};
    for (const int turn : {round % 2, 1 - round % 2}) {  // Alternates, so that a slow drift favours
                                                         // neither.
      seconds[turn] =
          run_ours(site.place(), one, length.steps, length.dropped,
                   {fmt::format("precision.determinism=\"{}\"", turn == 1 ? "world" : "run")})
              .seconds;
    }
    price.add(seconds[1] / seconds[0] - 1.0);
  }
  print_at_most("124M, 4 lanes: price of determinism = \"world\"", price, 0.03);
}

// Steps between two checkpoints, copied during the first and written during many, compared with
// equal steps without a save. The run is killed before the next save.
void gpu_checkpoint_row(const GpuSite& site) {
  StepCase one = gpt2_xl(site);
  const std::int64_t interval = site.tiny() ? 3 : 100;
  const double state_bytes = site.state_bytes(one);
  const double room_bytes = site.disk_bytes_free();
  if (room_bytes < 1.25 * state_bytes) {
    print_skipped("1.5B: price of a checkpoint",
                  fmt::format("it takes {:.1f} GB, {:.1f} of the disk's are free",
                              state_bytes * 1e-9, room_bytes * 1e-9));
    return;
  }
  double seconds[2] = {};
  for (const int turn : {0, 1}) {
    const Words keys = {fmt::format("checkpoint.interval_steps={}", turn * interval),
                        "checkpoint.keep_last=1"};
    const std::string name = turn == 0 ? "without" : "saved";
    site.run_and_kill(one, name, keys, 2 * interval);
    seconds[turn] = seconds_between(site.steps_of_run(name), interval, 2 * interval);
    if (turn == 1) {
      print_result(
          "1.5B: its checkpoint, GB",
          fmt::format("{:.1f}, {}", state_bytes * 1e-9,
                      site.has_checkpoint(name, interval) ? "written by then"
                                                          : "NOT written when the next was due"));
    }
    site.remove_run(name);
  }
  Values price;
  price.add(seconds[1] / seconds[0] - 1.0);
  print_at_most(fmt::format("1.5B: price of a checkpoint every {} steps", interval), price, 0.01);
}

}  // namespace train::bench
