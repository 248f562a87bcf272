#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

// Where the build has the objects of CUDA kernels.
namespace train::kernels::testing {

/// The object of a source, "norm/norm_forward.cu", below ACTORTRAIN_DEVICE_OBJECTS: its own, or
/// that of the piece that includes it (actortrain_cuda_sources in cmake/ActorTrain.cmake).
inline std::string device_object_of(const std::string& source) {
  const std::filesystem::path pieces = ACTORTRAIN_BINARY_DIR "/kernels/pieces";
  for (const auto& piece : std::filesystem::directory_iterator(pieces)) {
    std::ifstream file(piece.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find("\"kernels/" + source + "\"") != std::string::npos) {
      return "pieces/" + piece.path().filename().string() + ".o";
    }
  }
  return source + ".o";
}

/// The sources of all CUDA kernels.
inline std::set<std::string> device_sources() {
  const std::filesystem::path kernels = ACTORTRAIN_SOURCE_DIR "/kernels";
  std::set<std::string> sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kernels)) {
    if (entry.path().extension() == ".cu") {
      sources.insert(entry.path().lexically_relative(kernels).string());
    }
  }
  return sources;
}

}  // namespace train::kernels::testing
