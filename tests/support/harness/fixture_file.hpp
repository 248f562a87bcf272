#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace train::test {

/// Reads a file of tests/reference/fixtures: from share/fixtures in a bundle (the program lies in
/// bin/), else from the sources. Throws std::runtime_error with the path if it does not exist.
inline nlohmann::json read_fixture(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path packed =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share" / "fixtures";
  const fs::path directory =
      fs::exists(packed) ? packed : fs::path(ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures");
  std::ifstream file(directory / name);
  if (!file) {
    throw std::runtime_error("no fixture " + (directory / name).string());
  }
  return nlohmann::json::parse(file);
}

}  // namespace train::test
