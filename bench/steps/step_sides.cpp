#include "bench/steps/step_sides.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/model_shape.hpp"
#include "run/model/model_files.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

StepTimes times_of(const std::vector<Json>& steps, std::size_t dropped) {
  Values seconds;
  for (std::size_t i = dropped; i < steps.size(); ++i) {
    const double tokens =
        steps[i].at("tokens").get<double>() - steps[i - 1].at("tokens").get<double>();
    seconds.add(tokens / steps[i].at("tokens_per_second").get<double>());
  }
  return {.seconds = seconds.median(),
          .peak_bytes = 0.0,
          .first_loss = steps.front().at("loss").get<double>()};
}

Words our_words(const Workplace& place, const StepCase& one, const Words& keys) {
  Words words = {place.paths().program, "run", file_of(place, one)};
  for (const std::string& key : joined(joined(keys_of(place, one), keys), {"run.name=\"step\""})) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

/// Content of config.json, for transformers; null for own architectures.
Json published_config(const StepCase& one) {
  if (one.published.empty()) {
    return nullptr;
  }
  const auto found = run::find_model_config(one.published);
  if (!found) {
    throw std::runtime_error(found.error().message);
  }
  return Json::parse(found->text);
}

Json description_of(const Workplace& place, const StepCase& one, const std::string& mode,
                    bool choose_way) {
  const run::RunPlan plan = plan_of_case(place, one);
  const engine::ModelSpec& model = plan.engine.model;
  // A published model is described by its config.json; state spaces have no attention.
  const auto* found = engine::find_block<engine::AttentionSpec>(model.layers.front());
  const engine::AttentionSpec attention = found == nullptr ? engine::AttentionSpec{} : *found;
  const configs::ModelSection& section = plan.config.model;
  const bool qwen3 = model.architecture == "dstar_qwen3";
  return {
      {"mode", mode},
      {"device", plan.config.runtime.device},
      {"choose_way", choose_way && plan.engine.batch.lanes > 1},
      {"tokens", tokens_of(place, one).string()},
      {"threads", run::resolve_threads(plan.config.runtime.threads)},
      {"arch", qwen3 ? "qwen3" : "enoki"},
      {"config", published_config(one)},
      {"layers", model.layers.size()},
      {"heads", attention.heads},
      {"head_dim", attention.head_dim},
      {"embedding_dim", model.embedding_dim},
      {"mlp_hidden",
       one.published.empty() ? engine::block_of<engine::MlpSpec>(model.layers.front()).hidden : 0},
      {"vocab_size", model.vocab_size},
      {"norm_eps", section.norm_eps},
      {"rope_theta", section.rope_theta},
      {"qk_norm", section.qk_norm},
      {"output_gate", attention.output_gate},
      {"tie_embeddings", model.tie_embeddings},
      {"seq_len", plan.engine.seq_len},
      {"micro_batch", plan.engine.batch.micro_batch},
      {"lanes", plan.engine.batch.lanes},
      {"lr", plan.engine.optimizer.lr}};
}

Words peer_words(const Workplace& place, const StepCase& one, const std::string& mode,
                 bool choose_way) {
  const Json description = description_of(place, one, mode, choose_way);
  const auto python = torch_python(description.at("device").get<std::string>());
  if (!python) {
    throw std::runtime_error("PyTorch is not installed");
  }
  return {*python, place.paths().peers + "/torch_step.py", description.dump()};
}

Json answer_of(BenchChild& child, double patience_s) {
  if (!child.wait_readable(patience_s)) {
    throw std::runtime_error(fmt::format("PyTorch has not answered in {:.0f} s", patience_s));
  }
  const auto line = child.read_line();
  if (!line) {
    throw std::runtime_error(fmt::format("PyTorch failed: {}", child.errors()));
  }
  return Json::parse(*line);
}

}  // namespace

std::vector<Json> steps_of(const fs::path& metrics) {
  std::ifstream stream(metrics);
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  std::vector<Json> steps;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    auto line = Json::parse(text.substr(begin, end - begin));
    if (line.contains("tokens_per_second")) {
      steps.push_back(std::move(line));
    }
  }
  return steps;
}

StepTimes run_ours(const Workplace& place, const StepCase& one, int steps, int dropped,
                   const Words& keys, const Watch& watch) {
  const fs::path root = place.directory() / "runs" / "step";
  fs::remove_all(root);
  const auto wanted = static_cast<std::size_t>(steps + dropped);
  StepTimes times;
  {
    BenchChild child(our_words(place, one, keys), place.directory() / "step.err");
    std::vector<Json> done;
    while (done.size() < wanted) {
      if (!child.running()) {
        throw std::runtime_error(fmt::format("a run failed: {}", child.errors()));
      }
      // Rarely, as it shares the engine's cores.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (watch) {
        watch(child.id());
      }
      done = steps_of(root / "metrics.jsonl");
    }
    done.resize(wanted);
    times = times_of(done, static_cast<std::size_t>(dropped));
    times.peak_bytes = child.peak_bytes();
  }
  fs::remove_all(root);
  return times;
}

TorchPeer::TorchPeer(const Workplace& place, const StepCase& one, std::string mode, bool choose_way,
                     double patience_s)
    : mode_(std::move(mode)),
      patience_s_(patience_s),
      child_(peer_words(place, one, mode_, choose_way), place.directory() / (mode_ + ".err")) {
  const Json ready = answer_of(child_, patience_s_);
  first_loss_ = ready.at("first_loss").get<double>();
  version_ = ready.at("torch").get<std::string>();
  gemm_flops_ = ready.at("gemm_flops").get<double>();
  split_ = ready.at("split").get<bool>();
  const auto ours = engine::count_parameters(plan_of_case(place, one).engine.model).total;
  const auto theirs = ready.at("parameters").get<std::int64_t>();
  if (ours != theirs) {
    throw std::runtime_error(
        fmt::format("not the same model: {} weights here, {} in PyTorch", ours, theirs));
  }
}

StepTimes TorchPeer::run(int steps, int dropped) {
  child_.write_line(fmt::format("steps {}", steps + dropped));
  const Json answer = answer_of(child_, patience_s_);
  Values seconds{answer.at("seconds").get<std::vector<double>>()};
  seconds.all.erase(seconds.all.begin(), seconds.all.begin() + dropped);
  return {.seconds = seconds.median(),
          .peak_bytes = answer.at("peak_bytes").get<double>(),
          .first_loss = first_loss_};
}

std::optional<std::string> torch_python(const std::string& device) {
  const char* named = std::getenv("ACTORTRAIN_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  const std::string question = fmt::format(
      "'{}' -c 'import torch; torch.zeros(1, device=\"{}\")' 2> /dev/null", python, device);
  return std::system(question.c_str()) == 0 ? std::optional(python) : std::nullopt;
}

}  // namespace train::bench
