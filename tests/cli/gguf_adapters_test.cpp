#include "cli/checkpoints/gguf_adapters.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/model/unit_parameters.hpp"
#include "tests/cli/gguf_cases.hpp"

namespace train::cli::gguf_adapters_test {
using namespace checkpoint;
namespace {

using test::TempDirectory;
using Floats = std::vector<float>;

/// Multiples of 1/32 between -1 and 1 by name and place: their sums and products are exact.
Floats values_of(const engine::Parameter& parameter) {
  Floats values(static_cast<std::size_t>(parameter.count()));
  std::size_t state = std::hash<std::string>()(parameter.name) | 1U;
  for (float& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<float>(static_cast<int>(state >> 58U) - 32) / 32.0F;
  }
  return values;
}

/// W + scale B A in the weight's own order.
Floats merged_values(const engine::Parameter& weight, const ExportAdapter& adapter) {
  Floats values = values_of(weight);
  const Floats a = values_of(adapter.a);
  const Floats b = values_of(adapter.b);
  const auto inputs = static_cast<std::size_t>(adapter.a.cols());
  const auto rank = static_cast<std::size_t>(adapter.b.cols());
  const auto outputs = static_cast<std::size_t>(adapter.b.rows());
  for (std::size_t row = 0; row < outputs; ++row) {
    for (std::size_t col = 0; col < inputs; ++col) {
      float sum = 0.0F;
      for (std::size_t k = 0; k < rank; ++k) {
        sum += b[row * rank + k] * a[k * inputs + col];
      }
      values[adapter.transposed ? col * outputs + row : row * inputs + col] +=
          static_cast<float>(adapter.scale) * sum;
    }
  }
  return values;
}

using Merged = std::map<std::string, ExportAdapter>;

class ValueSource final : public engine::WeightSource {
 public:
  explicit ValueSource(Merged merged = {}) : merged_(std::move(merged)) {}
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override {
    const auto adapter = merged_.find(parameter.name);
    const Floats all =
        adapter == merged_.end() ? values_of(parameter) : merged_values(parameter, adapter->second);
    const auto begin = all.begin() + first_row * parameter.cols();
    std::copy(begin, begin + rows * parameter.cols(), out.begin());
    return {};
  }

 private:
  Merged merged_;
};

/// The adapters, each behind its map, as describe_units() has them.
std::vector<ExportAdapter> adapters_in(const engine::ModelSpec& spec) {
  std::vector<ExportAdapter> adapters;
  std::string map;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      if (parameter.adaptable) {
        map = parameter.name;
      } else if (parameter.adapter && (adapters.empty() || adapters.back().weight != map)) {
        adapters.push_back({.weight = map,
                            .transposed = spec.transposed_linears,
                            .scale = static_cast<double>(spec.lora.scale()),
                            .a = parameter,
                            .b = {}});
      } else if (parameter.adapter) {
        adapters.back().b = parameter;
      }
    }
  }
  return adapters;
}

engine::ModelSpec adapted_case(std::string_view name, std::vector<std::string> targets) {
  const TempDirectory directory;
  engine::ModelSpec spec = test::read_case(directory, test::case_named(name)).spec;
  spec.lora = {.rank = 2, .alpha = 4.0, .targets = std::move(targets)};
  return spec;
}

storage::GgufFile written(const std::filesystem::path& out, std::vector<ExportTensor> tensors,
                          GgufExport settings, const engine::WeightSource& source) {
  const ExportRequest request{.directory = out,
                              .tensors = std::move(tensors),
                              .format = gguf_format(std::move(settings)),
                              .config_text = {}};
  const auto report = export_tensors(request, source);
  INFO((report.ok() ? "" : report.error().message));
  REQUIRE(report.ok());
  auto file = storage::GgufFile::open(out / "model.gguf");
  REQUIRE(file);
  return std::move(file).value();
}

Floats elements_of(const storage::GgufFile& file, const std::string& name) {
  const storage::GgufEntry* entry = file.find(name);
  INFO(name);
  REQUIRE(entry != nullptr);
  Floats values(entry->elements_count);
  REQUIRE(file.read_fp32(*entry, 0, values).ok());
  return values;
}

/// What llama.cpp makes of a tensor and its adapter, [outputs, inputs].
Floats applied(const storage::GgufFile& base, const storage::GgufFile& adapter,
               const std::string& name) {
  Floats values = elements_of(base, name);
  const Floats a = elements_of(adapter, name + ".lora_a");
  const Floats b = elements_of(adapter, name + ".lora_b");
  const auto rank = static_cast<std::size_t>(adapter.find(name + ".lora_a")->shape.front());
  const std::size_t inputs = a.size() / rank;
  const auto alpha = static_cast<float>(*adapter.value_of<double>("adapter.lora.alpha"));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float sum = 0.0F;
    for (std::size_t k = 0; k < rank; ++k) {
      sum += b[i / inputs * rank + k] * a[k * inputs + i % inputs];
    }
    values[i] += alpha / static_cast<float>(rank) * sum;
  }
  return values;
}

}  // namespace

TEST_CASE("gguf adapters: a file's tensors with them are those of the merged model",
          "[cli][gguf_adapters]") {
  for (const char* name : {"llama", "mistral_window", "qwen3", "gemma3", "phi3", "olmo2", "gpt2",
                           "neox", "glm4_moe", "gpt_oss"}) {
    INFO(name);
    const engine::ModelSpec spec = adapted_case(name, {"all-linear"});
    const auto adapters = adapters_in(spec);
    REQUIRE_FALSE(adapters.empty());
    const auto made = gguf_adapters(spec, adapters);
    INFO((made.ok() ? "" : made.error().message));
    REQUIRE(made.ok());
    CHECK(made->tensors.size() == 2 * adapters.size());
    Merged merged;
    for (const ExportAdapter& adapter : adapters) {
      merged.emplace(adapter.weight, adapter);
    }
    const TempDirectory directory;
    const auto base = written(directory / "base", test::gguf_tensors(spec), {}, ValueSource());
    const auto whole =
        written(directory / "merged", test::gguf_tensors(spec), {}, ValueSource(merged));
    const auto adapter =
        written(directory / "adapter", made->tensors, made->settings, ValueSource());
    std::size_t changed = 0;
    for (const storage::GgufEntry& entry : base.entries()) {
      INFO(entry.name);
      const Floats wanted = elements_of(whole, entry.name);
      if (adapter.find(entry.name + ".lora_a") != nullptr) {
        CHECK(applied(base, adapter, entry.name) == wanted);
        ++changed;
      } else {
        CHECK(elements_of(base, entry.name) == wanted);
      }
    }
    CHECK(changed == adapters.size());
    CHECK(*adapter.value_of<std::string>("general.type") == "adapter");
    CHECK(*adapter.value_of<std::string>("adapter.type") == "lora");
    CHECK(adapter.value_of<std::string>("general.architecture") != nullptr);
  }
}

TEST_CASE("gguf adapters: the scale is alpha by rank, whatever made it", "[cli][gguf_adapters]") {
  engine::ModelSpec spec = adapted_case("llama", {"q_proj"});
  const auto alpha_of = [&spec] {
    const auto made = gguf_adapters(spec, adapters_in(spec));
    REQUIRE(made.ok());
    for (const storage::GgufField& field : made->settings.metadata) {
      if (field.key == "adapter.lora.alpha") {
        return static_cast<double>(std::get<float>(field.value));
      }
    }
    FAIL("no alpha");
    return 0.0;
  };
  CHECK(alpha_of() == 4.0);
  spec.lora.rslora = true;
  CHECK(alpha_of() / 2.0 == Approx(static_cast<double>(spec.lora.scale())));
}

TEST_CASE("gguf adapters: a model that llama.cpp lacks is refused by its name",
          "[cli][gguf_adapters]") {
  engine::ModelSpec spec = adapted_case("llama", {"q_proj"});
  spec.architecture = "enoki";
  const auto made = gguf_adapters(spec, adapters_in(spec));
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().kind == ErrorKind::user);
  CHECK_THAT(made.error().message, Catch::Contains("enoki") && Catch::Contains("--format peft"));
}

TEST_CASE("gguf adapters: maps to which llama.cpp applies none are refused by name",
          "[cli][gguf_adapters]") {
  const auto error_of = [](const char* name, const char* target) {
    const engine::ModelSpec spec = adapted_case(name, {target});
    const auto made = gguf_adapters(spec, adapters_in(spec));
    return made.ok() ? "written" : made.error().message;
  };
  CHECK(error_of("deepseek3", "o_proj") == "written");
  for (const char* target : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}) {
    CHECK_THAT(error_of("deepseek3", target),
               Catch::Contains(target) && Catch::Contains("--format peft"));
  }
}

}  // namespace train::cli::gguf_adapters_test
