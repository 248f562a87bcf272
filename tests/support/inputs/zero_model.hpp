#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/model.hpp"
#include "engine/model/spec.hpp"

// Published model of zeros, in sparse files: created at once at any size.
namespace train::test {

/// Writes a safetensors file of zeros.
inline void write_shard(const std::filesystem::path& path, const nlohmann::json& header,
                        std::uint64_t data_bytes) {
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;
  file.close();
  std::filesystem::resize_file(path, sizeof(size) + size + data_bytes);
}

/// Writes the model's tensors in bf16, all zeros, in files of about `shard_bytes` with their index.
inline void write_zeros(const std::filesystem::path& directory, const engine::ModelSpec& spec,
                        std::uint64_t shard_bytes) {
  nlohmann::json map = nlohmann::json::object();
  nlohmann::json header = nlohmann::json::object();
  std::uint64_t begin = 0;
  std::size_t shards = 0;
  const auto name = [&] { return "part-" + std::to_string(shards) + ".safetensors"; };
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      const std::uint64_t end = begin + 2 * static_cast<std::uint64_t>(parameter.count());
      header[parameter.name] = {
          {"dtype", "BF16"}, {"shape", parameter.shape}, {"data_offsets", {begin, end}}};
      map[parameter.name] = name();
      begin = end;
      if (begin >= shard_bytes) {
        write_shard(directory / name(), header, begin);
        ++shards;
        header = nlohmann::json::object();
        begin = 0;
      }
    }
  }
  if (begin > 0) {
    write_shard(directory / name(), header, begin);
  }
  std::ofstream(directory / "model.safetensors.index.json")
      << nlohmann::json{{"weight_map", map}}.dump();
}

}  // namespace train::test
