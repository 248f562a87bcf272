#include "checkpoint/models/published_weights.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/model.hpp"
#include "storage/safetensors_writer.hpp"
#include "storage/weight_files/element_types.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;
using storage::TensorHeading;
using train::test::TempDirectory;

constexpr const char* kTinyGpt2 = R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 8,
  "n_embd": 8, "n_layer": 1, "n_head": 2})";

engine::ModelSpec tiny_gpt2() { return engine::spec_from_config(kTinyGpt2, "test", 0).value(); }

/// Element `i` of the `tensor`th tensor.
float published_value(std::size_t tensor, std::size_t i) {
  return static_cast<float>(tensor) + static_cast<float>(i) / 1024.0F;
}

/// The model's tensors, as `change` leaves their headings; the last one perhaps with the first
/// one's values.
void write_published(const fs::path& directory, const engine::ModelSpec& spec,
                     const std::function<void(std::vector<TensorHeading>&)>& change,
                     bool last_as_first = false) {
  std::vector<TensorHeading> headings;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      headings.push_back({parameter.name, parameter.shape, "F32"});
    }
  }
  change(headings);
  auto writer = storage::SafetensorsWriter::create(directory / "model.safetensors", headings);
  REQUIRE(writer.ok());
  for (std::size_t tensor = 0; tensor < headings.size(); ++tensor) {
    std::size_t count = 1;
    for (const std::int64_t dimension : headings[tensor].shape) {
      count *= static_cast<std::size_t>(dimension);
    }
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const bool first = last_as_first && tensor + 1 == headings.size();
      values[i] = published_value(first ? 0 : tensor, i);
    }
    REQUIRE(writer->write(std::as_bytes(std::span(values))).ok());
  }
  REQUIRE(writer->commit().ok());
}

/// Writes the tensors of `shapes`, with the weights that `source` has.
void write_stacked(const fs::path& directory, const engine::ModelSpec& spec,
                   const std::map<std::string, std::vector<std::int64_t>>& shapes,
                   const PublishedWeights& source) {
  std::vector<TensorHeading> headings;
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, shape] : shapes) {
    headings.push_back({name, shape, "F32"});
    std::size_t count = 1;
    for (const std::int64_t dimension : shape) {
      count *= static_cast<std::size_t>(dimension);
    }
    tensors[name].resize(count);
  }
  for (const engine::MappedParameter& mapped : tensor_map(spec, engine::Dialect::stacked)) {
    std::vector<float> values(static_cast<std::size_t>(mapped.parameter.count()));
    REQUIRE(source.read_rows(mapped.parameter, 0, mapped.parameter.rows(), values).ok());
    for (const engine::TensorPart& part : mapped.parts) {
      store(part, 0, values, tensors.at(part.name));
    }
  }
  auto writer = storage::SafetensorsWriter::create(directory / "model.safetensors", headings);
  REQUIRE(writer.ok());
  for (const TensorHeading& heading : headings) {
    REQUIRE(writer->write(std::as_bytes(std::span(tensors.at(heading.name)))).ok());
  }
  REQUIRE(writer->commit().ok());
}

std::string published_error(const fs::path& directory) {
  const auto opened = PublishedWeights::open(directory, tiny_gpt2());
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().kind == ErrorKind::user);
  CHECK(opened.error().message.find('\n') == std::string::npos);
  return opened.error().message;
}

TensorHeading& heading_of(std::vector<TensorHeading>& headings, const std::string& name) {
  for (TensorHeading& heading : headings) {
    if (heading.name == name) {
      return heading;
    }
  }
  FAIL("no " << name);
  return headings.front();
}

}  // namespace

TEST_CASE("published weights: rows of every parameter, under any of the names",
          "[checkpoint][published_weights]") {
  const std::string dropped = GENERATE("", "transformer.");
  const TempDirectory directory;
  const engine::ModelSpec spec = tiny_gpt2();
  write_published(directory.path(), spec, [&](auto& headings) {
    for (TensorHeading& heading : headings) {
      heading.name = heading.name.substr(dropped.size());
    }
    headings.push_back({"h.0.attn.bias", {1, 1, 8, 8}, "F32"});  // a mask, no weight
  });
  const auto opened = PublishedWeights::open(directory.path(), spec);
  REQUIRE(opened.ok());
  std::size_t tensor = 0;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      CAPTURE(parameter.name);
      const std::int64_t first = parameter.rows() / 2;
      std::vector<float> rows(
          static_cast<std::size_t>((parameter.rows() - first) * parameter.cols()));
      REQUIRE((*opened)->read_rows(parameter, first, parameter.rows() - first, rows).ok());
      const auto skipped = static_cast<std::size_t>(first * parameter.cols());
      CHECK(rows.front() == published_value(tensor, skipped));
      CHECK(rows.back() == published_value(tensor, skipped + rows.size() - 1));
      ++tensor;
    }
  }
}

TEST_CASE("published weights: experts of a tensor each, and stacked in one of a layer",
          "[checkpoint][published_weights]") {
  const std::string type = GENERATE("mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "jamba");
  CAPTURE(type);
  const std::string text = fmt::format(
      R"({{"model_type": "{}", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6,
          "moe_intermediate_size": 6, "shared_expert_intermediate_size": 4, "{}": 3,
          "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 1{}}})",
      type, type == "mixtral" ? "num_local_experts" : "num_experts",
      type == "jamba" ? R"(, "expert_layer_period": 1, "expert_layer_offset": 0)" : "");
  const engine::ModelSpec spec = engine::spec_from_config(text, "test", 0).value();
  const TempDirectory apart, stacked;
  write_published(apart.path(), spec, [](auto&) {});
  // transformers' own form in memory.
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const engine::MappedParameter& mapped : tensor_map(spec, engine::Dialect::stacked)) {
    for (const engine::TensorPart& part : mapped.parts) {
      shapes[part.name] = part.shape;
    }
  }
  const std::string module = type == "jamba" ? "feed_forward." : "mlp.";
  const std::string router = type == "jamba" ? "router.weight" : "gate.weight";
  CHECK(shapes.at("model.layers.1." + module + "experts.gate_up_proj") ==
        std::vector<std::int64_t>{3, 12, 8});
  CHECK(shapes.at("model.layers.1." + module + "experts.down_proj") ==
        std::vector<std::int64_t>{3, 8, 6});
  CHECK(shapes.at("model.layers.0." + module + router) == std::vector<std::int64_t>{3, 8});
  const auto one = PublishedWeights::open(apart.path(), spec);
  REQUIRE(one.ok());
  write_stacked(stacked.path(), spec, shapes, **one);
  const auto other = PublishedWeights::open(stacked.path(), spec);
  INFO((other.ok() ? "" : other.error().message));
  REQUIRE(other.ok());
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      CAPTURE(parameter.name);
      const std::int64_t first = parameter.rows() / 2;
      const std::int64_t rows = parameter.rows() - first;
      std::vector<float> wanted(static_cast<std::size_t>(rows * parameter.cols()), -1.0F);
      std::vector<float> found(wanted.size(), -2.0F);
      REQUIRE((*one)->read_rows(parameter, first, rows, wanted).ok());
      REQUIRE((*other)->read_rows(parameter, first, rows, found).ok());
      CHECK(wanted == found);
    }
  }
}

TEST_CASE("published weights: an expert that is missing or misshapen is named",
          "[checkpoint][published_weights]") {
  const engine::ModelSpec spec =
      engine::spec_from_config(
          R"({"model_type": "olmoe", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6,
              "num_experts": 9, "num_experts_per_tok": 2, "num_hidden_layers": 1,
              "num_attention_heads": 2})",
          "test", 0)
          .value();
  const TempDirectory directory;
  const std::string name = "model.layers.0.mlp.experts.4.up_proj.weight";
  const auto error_after = [&](const std::function<void(std::vector<TensorHeading>&)>& change) {
    write_published(directory.path(), spec, change);
    const auto opened = PublishedWeights::open(directory.path(), spec);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().kind == ErrorKind::user);
    CHECK(opened.error().message.find('\n') == std::string::npos);
    return opened.error().message;
  };
  CHECK_THAT(error_after([&](auto& all) {
               std::erase_if(all, [&](const auto& one) { return one.name == name; });
             }),
             Catch::Contains("tensor " + name + " is missing"));
  CHECK_THAT(error_after([&](auto& all) {
               heading_of(all, name).shape = {8, 6};
             }),
             Catch::Contains(name + " has shape [8, 6], but config.json says [6, 8]"));
  CHECK_THAT(error_after([&](auto& all) {
               all.push_back({"model.layers.0.mlp.experts.9.up_proj.weight", {6, 8}, "F32"});
             }),
             Catch::Contains("experts.9.up_proj.weight is not part of the model"));
}

TEST_CASE("published weights: missing, surplus and misshapen tensors are named",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  const engine::ModelSpec spec = tiny_gpt2();
  const auto error_after = [&](const std::function<void(std::vector<TensorHeading>&)>& change) {
    write_published(directory.path(), spec, change);
    return published_error(directory.path());
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(error_after([](auto& all) { all.pop_back(); }), "tensor transformer.ln_f.bias is missing");
  has(error_after([](auto& all) { all.erase(all.begin() + 3, all.begin() + 5); }),
      "(and 1 more like it)");
  has(error_after([](auto& all) {
        all.push_back({"transformer.h.0.extra", {3}, "F32"});
      }),
      "tensor transformer.h.0.extra is not part of");
  has(error_after([](auto& all) {
        heading_of(all, "transformer.h.0.attn.c_attn.weight").shape = {24, 8};
      }),
      "c_attn.weight has shape [24, 8], but config.json says [8, 24]");
  has(error_after([](auto& all) { heading_of(all, "transformer.ln_f.bias").dtype = "I32"; }),
      "transformer.ln_f.bias is of type I32");
}

TEST_CASE("published weights: tensors of other parts are left out, and named",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  write_published(directory.path(), tiny_gpt2(), [](auto& all) {
    all.push_back({"mtp.fc.weight", {3}, "I32"});
    all.push_back({"vision_tower.patch.weight", {3}, "F32"});
  });
  const auto opened = PublishedWeights::open(directory.path(), tiny_gpt2());
  REQUIRE(opened.ok());
  REQUIRE((*opened)->notes().size() == 1);
  CHECK((*opened)->notes()[0] ==
        "2 tensors of parts that the model does not have are left out, the first mtp.fc.weight");
}

TEST_CASE("published weights: layers behind the model's own are kept for exports",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  write_published(directory.path(), tiny_gpt2(), [](auto& all) {
    all.push_back({"transformer.h.1.eh_proj.weight", {2, 4}, "F32"});
    all.push_back({"transformer.h.10.eh_proj.weight", {3}, "F32"});
  });
  engine::ModelSpec spec = tiny_gpt2();
  spec.kept = {"transformer.h.1."};
  CHECK(published_error(directory.path()).find("h.1.eh_proj.weight") != std::string::npos);
  spec.kept.emplace_back("transformer.h.10.");
  const auto opened = PublishedWeights::open(directory.path(), spec);
  REQUIRE(opened.ok());
  REQUIRE((*opened)->kept().size() == 2);
  CHECK((*opened)->kept()[0].name == "transformer.h.1.eh_proj.weight");
  CHECK((*opened)->notes() ==
        std::vector<std::string>{
            "2 tensors of layers that predict further tokens are not trained; exports keep them, "
            "the first transformer.h.1.eh_proj.weight"});
  const engine::Parameter kept{.name = "transformer.h.1.eh_proj.weight", .shape = {2, 4}};
  std::vector<float> row(4);
  REQUIRE((*opened)->read_rows(kept, 1, 1, row).ok());
  const std::size_t tensor = (*opened)->directory().names().size() - 2;  // Written behind the rest.
  CHECK(row[0] == published_value(tensor, 4));
}

TEST_CASE("published weights: a head beside the embedding that it is tied to is compared with it",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  const bool equal = GENERATE(false, true);
  const auto with_head = [](auto& all) { all.push_back({"lm_head.weight", {11, 8}, "F32"}); };
  write_published(directory.path(), tiny_gpt2(), with_head, equal);
  const auto opened = PublishedWeights::open(directory.path(), tiny_gpt2());
  REQUIRE(opened.ok());
  CHECK((*opened)->model().tie_embeddings == equal);
  CHECK((*opened)->notes().size() == (equal ? 0 : 1));
  if (!equal) {
    CHECK((*opened)->notes()[0].find("lm_head.weight is another matrix") == 0);
    std::vector<float> head(88);
    REQUIRE((*opened)->read_rows({.name = "lm_head.weight", .shape = {11, 8}}, 0, 11, head).ok());
    CHECK(head[0] != published_value(0, 0));
  }
}

TEST_CASE("published weights: a tied matrix may be there under the head's name alone",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  write_published(directory.path(), tiny_gpt2(), [](auto& all) {
    heading_of(all, "transformer.wte.weight").name = "lm_head.weight";
  });
  const auto opened = PublishedWeights::open(directory.path(), tiny_gpt2());
  REQUIRE(opened.ok());
  CHECK((*opened)->model().tie_embeddings);
  CHECK((*opened)->name_in_files("transformer.wte.weight") == "lm_head.weight");
  std::vector<float> matrix(88);
  CHECK((*opened)
            ->read_rows({.name = "transformer.wte.weight", .shape = {11, 8}}, 0, 11, matrix)
            .ok());
  CHECK((*opened)->notes().size() == 1);
}

TEST_CASE("published weights: the embedding has the name of Mamba's original program, too",
          "[checkpoint][published_weights][state_space]") {
  const bool with_head = GENERATE(false, true);
  const TempDirectory directory;
  const engine::ModelSpec spec =
      engine::spec_from_config(R"({"d_model": 16, "n_layer": 1, "vocab_size": 12,
        "ssm_cfg": {"d_state": 4}})",
                               "test", 0)
          .value();
  write_published(
      directory.path(), spec,
      [&](auto& all) {
        heading_of(all, "backbone.embeddings.weight").name = "backbone.embedding.weight";
        if (with_head) {
          all.push_back({"lm_head.weight", {16, 16}, "F32"});
        }
      },
      /*last_as_first=*/with_head);
  const auto opened = PublishedWeights::open(directory.path(), spec);
  INFO((opened.ok() ? "" : opened.error().message));
  REQUIRE(opened.ok());
  CHECK((*opened)->model().tie_embeddings);
  std::vector<float> matrix(256);
  REQUIRE((*opened)
              ->read_rows({.name = "backbone.embeddings.weight", .shape = {16, 16}}, 0, 16, matrix)
              .ok());
  CHECK(matrix[17] == published_value(0, 17));
}

TEST_CASE("published weights: wrong tensors of a scan are named",
          "[checkpoint][published_weights][state_space]") {
  const engine::ModelSpec spec =
      engine::spec_from_config(R"({"model_type": "mamba", "hidden_size": 16, "vocab_size": 12,
        "num_hidden_layers": 1, "state_size": 4})",
                               "test", 0)
          .value();
  const auto error = [&](const std::function<void(std::vector<TensorHeading>&)>& change) {
    const TempDirectory directory;
    write_published(directory.path(), spec, change);
    const auto opened = PublishedWeights::open(directory.path(), spec);
    return opened.ok() ? std::string("accepted") : opened.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  CHECK(error([](auto&) {}) == "accepted");
  has(error([](auto& all) { heading_of(all, "backbone.layers.0.mixer.D").name = "other"; }),
      "tensor backbone.layers.0.mixer.D is missing");
  has(error([](auto& all) {
        heading_of(all, "backbone.layers.0.mixer.conv1d.weight").shape = {32, 4};
      }),
      "conv1d.weight has shape [32, 4], but config.json says [32, 1, 4]");
  has(error([](auto& all) {
        heading_of(all, "backbone.layers.0.mixer.A_log").shape = {32, 8};
      }),
      "A_log has shape [32, 8], but config.json says [32, 4]");
  has(error([](auto& all) {
        all.push_back({"backbone.layers.0.mixer.norm.weight", {32}, "F32"});
      }),
      "mixer.norm.weight is not part of the model");
}

TEST_CASE("published weights: names behind a wrapper's prefix are read, and it is named",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  write_published(directory.path(), tiny_gpt2(), [](auto& all) {
    for (TensorHeading& heading : all) {
      heading.name = "_orig_mod." + heading.name;
    }
  });
  const auto opened = PublishedWeights::open(directory.path(), tiny_gpt2());
  REQUIRE(opened.ok());
  REQUIRE((*opened)->notes().size() == 1);
  CHECK((*opened)->notes()[0].find("_orig_mod.") != std::string::npos);
}

TEST_CASE("published weights: a value that is not finite is named where it is read",
          "[checkpoint][published_weights]") {
  const TempDirectory directory;
  write_published(directory.path(), tiny_gpt2(), [](auto&) {});
  {
    std::fstream file(directory.path() / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write("\x00\x00\xc0\x7f", 4);
  }
  const auto opened = PublishedWeights::open(directory.path(), tiny_gpt2());
  REQUIRE(opened.ok());
  std::vector<float> bias(8);
  const Status read =
      (*opened)->read_rows({.name = "transformer.ln_f.bias", .shape = {8}}, 0, 8, bias);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().kind == ErrorKind::user);
  CHECK(read.error().message.find("tensor transformer.ln_f.bias has nan at element 7") !=
        std::string::npos);
}

}  // namespace train::checkpoint
