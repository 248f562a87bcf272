// Safetensors files, whole (ST-3).
#include <cstddef>
#include <fstream>
#include <iterator>
#include <set>
#include <span>

#include "storage/safetensors.hpp"
#include "storage/safetensors_header.hpp"
#include "tests/fuzz/scratch_directory.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

namespace train::fuzz {
namespace {

void require_table(const storage::SafetensorsFile& file) {
  std::set<std::string_view> names;
  std::uint64_t end = 0;
  for (const storage::TensorEntry& entry : file.entries()) {
    require(entry.begin == end && entry.end >= entry.begin, "entries follow each other");
    end = entry.end;
    require(storage::tensor_size_bytes(entry.dtype, entry.shape) == entry.end - entry.begin,
            "an entry fits its shape");
    require(names.insert(entry.name).second, "names are distinct");
    require(file.find(entry.name) == &entry, "every entry is found by its name");
    require(bool(test::read_all(file, entry)), "every entry can be read");
  }
  require(file.data_start() + end == file.file().size_bytes(), "entries cover the file");
}

void run(std::string_view input) {
  static const ScratchDirectory directory;
  const auto file = storage::SafetensorsFile::open(directory.put("file", input));
  if (!file) {
    require_readable(file.error());
    return;
  }
  require_table(*file);
}

std::string written(std::span<const test::TensorBytes> tensors,
                    const storage::TensorMetadata& metadata) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "file";
  require(bool(test::write_safetensors(path, tensors, metadata)), "a file can be written");
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<std::string> seeds() {
  static const std::byte bytes[48] = {};
  const auto first = [](std::size_t count) { return std::span(bytes).first(count); };
  const std::vector<test::TensorBytes> tensors = {
      {"model.embedding", {4, 3}, first(48)},
      {"a", {2, 3}, first(12), "BF16"},
      {"empty", {0, 7}, first(0)},
      {"scalar", {}, first(8), "I64"},
  };
  return {written({}, {}), written(tensors, {{"format", "pt"}, {"step", "10"}}),
          written(std::span(tensors).first(1), {})};
}

}  // namespace

Target safetensors_target() {
  return {"safetensors",
          run,
          seeds,
          {"\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"", "\"F32\"", "\"BF16\"",
           "\"U8\"", "\"F8_E4M3\"", "[0,0]", "[]", "{}", ":{", "},\"", "9223372036854775807",
           "4294967296", "-1", "1e400", "\\u0061", "\\ud800"}};
}

}  // namespace train::fuzz
