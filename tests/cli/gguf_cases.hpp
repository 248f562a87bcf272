#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/models/export.hpp"
#include "checkpoint/models/gguf_model.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/tensor_map.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/fixture_file.hpp"

// Models of tests/reference/fixtures/gguf_models.json, and the tensors that their files have.
namespace train::test {

/// A model and the file that it was read from.
struct ReadModel {
  checkpoint::GgufModel model;
  engine::ModelSpec spec;
};

inline ReadModel read_model(const std::filesystem::path& path, bool whole) {
  auto model = checkpoint::GgufModel::open(path);
  INFO((model.ok() ? "" : model.error().message));
  REQUIRE(model.ok());
  auto spec = engine::spec_from_config(model->config_text(), "config", 0);
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  if (whole) {
    const Status checked = model->check(*spec);
    INFO((checked.ok() ? "" : checked.error().message));
    REQUIRE(checked.ok());
  }
  return {std::move(model).value(), std::move(spec).value()};
}

/// A case of the fixture, written to a file.
inline ReadModel read_case(const TempDirectory& directory, const nlohmann::json& entry) {
  write_bytes(directory / "model.gguf",
              bytes_of_hex(entry.at("file").get_ref<const std::string&>()));
  return read_model(directory / "model.gguf", entry.contains("weights"));
}

inline nlohmann::json case_named(std::string_view name) {
  const nlohmann::json fixture = read_fixture("gguf_models.json");
  for (const nlohmann::json& entry : fixture.at("cases")) {
    if (entry.at("name") == name) {
      return entry;
    }
  }
  FAIL("no case " << name);
  return {};
}

/// All tensors of the model in a GGUF file.
inline std::vector<checkpoint::ExportTensor> gguf_tensors(const engine::ModelSpec& spec) {
  std::vector<checkpoint::ExportTensor> tensors;
  std::map<std::string, std::size_t> places;
  for (const auto& mapped : engine::tensor_map(spec, engine::Dialect::gguf)) {
    for (const engine::TensorPart& part : mapped.parts) {
      if (places.emplace(part.name, tensors.size()).second) {
        tensors.push_back({part.name, part.shape});
      }
      tensors[places.at(part.name)].parts.push_back({mapped.parameter, part});
    }
  }
  return tensors;
}

}  // namespace train::test
