#include "storage/weight_files/weight_directory.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "storage/safetensors_writer.hpp"
#include "storage/weight_files/element_types.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;
using train::test::TempDirectory;

/// A file of tensors of 6 elements each, which count on from one to the next.
void write_tensors(const fs::path& path, const std::vector<std::string>& names, WeightType type,
                   float first = 0.0F) {
  std::vector<TensorHeading> headings;
  for (const std::string& name : names) {
    headings.push_back({name, {2, 3}, stored_name(type)});
  }
  auto writer = SafetensorsWriter::create(path, headings, {{"format", "pt"}});
  REQUIRE(writer.ok());
  std::vector<float> values(6 * names.size());
  std::iota(values.begin(), values.end(), first);
  std::vector<std::byte> bytes(values.size() * size_of(type));
  REQUIRE(from_floats(type, values, bytes));
  REQUIRE(writer->write(bytes).ok());
  REQUIRE(writer->commit().ok());
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

std::string error_of_open(const fs::path& path) {
  const auto opened = WeightDirectory::open(path);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().kind == ErrorKind::user);
  CHECK(opened.error().message.find('\n') == std::string::npos);
  return opened.error().message;
}

constexpr const char* kIndex = "model.safetensors.index.json";

}  // namespace

TEST_CASE("weight directory: one file, in any of the types, from any element on",
          "[storage][weight_files]") {
  const auto type = GENERATE(WeightType::f32, WeightType::bf16, WeightType::f16);
  const TempDirectory directory;
  write_tensors(directory / "model.safetensors", {"b", "a"}, type);
  const auto opened = WeightDirectory::open(directory.path());
  REQUIRE(opened.ok());
  CHECK(opened->names() == std::vector<std::string>{"a", "b"});
  CHECK(opened->tensor_bytes() == 12 * size_of(type));
  CHECK(opened->find("c") == nullptr);
  REQUIRE(opened->find("a") != nullptr);
  CHECK(opened->find("a")->shape == std::vector<std::int64_t>{2, 3});
  std::vector<float> rows(4);
  REQUIRE(opened->read_floats("a", 2, rows).ok());
  CHECK(rows == std::vector<float>{8, 9, 10, 11});
  CHECK(WeightDirectory::open(directory / "model.safetensors").ok());
}

TEST_CASE("weight directory: shards by their index", "[storage][weight_files]") {
  const TempDirectory directory;
  write_tensors(directory / "one.safetensors", {"a"}, WeightType::f32);
  write_tensors(directory / "two.safetensors", {"b"}, WeightType::bf16, 20.0F);
  write_text(directory / kIndex, R"({"metadata": {"total_size": 36},
      "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  const auto opened = WeightDirectory::open(directory.path());
  REQUIRE(opened.ok());
  std::vector<float> values(6);
  REQUIRE(opened->read_floats("b", 0, values).ok());
  CHECK(values == std::vector<float>{20, 21, 22, 23, 24, 25});
}

TEST_CASE("weight directory: an index says which files there are; what it lists besides is known",
          "[storage][weight_files]") {
  const TempDirectory directory;
  write_tensors(directory / "one.safetensors", {"a", "b"}, WeightType::f32);
  write_text(directory / kIndex, R"({"weight_map": {"a": "one.safetensors",
      "mtp.c": "one.safetensors"}})");
  const auto opened = WeightDirectory::open(directory.path());
  REQUIRE(opened.ok());
  CHECK(opened->names() == std::vector<std::string>{"a", "b"});
  REQUIRE(opened->absent().size() == 1);
  CHECK(opened->absent().begin()->first == "mtp.c");
  CHECK(opened->absent().begin()->second == "one.safetensors");
}

TEST_CASE("weight directory: of two files with a tensor the index says which one it is in",
          "[storage][weight_files]") {
  const auto [meant, first] =
      GENERATE(table<const char*, float>({{"one.safetensors", 0.0F}, {"two.safetensors", 20.0F}}));
  const TempDirectory directory;
  write_tensors(directory / "one.safetensors", {"a"}, WeightType::f32);
  write_tensors(directory / "two.safetensors", {"a", "b"}, WeightType::f32, 20.0F);
  write_text(directory / kIndex, fmt::format(R"({{"weight_map": {{"a": "{}", "b": "two.safetensors",
      "c": "one.safetensors"}}}})",
                                             meant));
  const auto opened = WeightDirectory::open(directory.path());
  REQUIRE(opened.ok());
  CHECK(opened->doubled() == std::vector<std::string>{"a"});
  std::vector<float> values(1);
  REQUIRE(opened->read_floats("a", 0, values).ok());
  CHECK(values.front() == first);
}

TEST_CASE("weight directory: what is there in the place of weights is named, and what to do",
          "[storage][weight_files]") {
  const auto [file, part] = GENERATE(table<const char*, const char*>(
      {{"pytorch_model.bin", "save the model as safetensors"},
       {"model-00001-of-00002.safetensors", "which shards belong to the model the index says"},
       {"adapter_config.json", "an adapter for a model, not a model"}}));
  const TempDirectory directory;
  write_text(directory / file, "");
  const std::string error = error_of_open(directory.path());
  INFO(error);
  CHECK(error.find(part) != std::string::npos);
}

TEST_CASE("weight directory: what does not fit is named in one line", "[storage][weight_files]") {
  const TempDirectory directory;
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(error_of_open(directory.path()), "neither model.safetensors nor");
  has(error_of_open(directory / "nothing"), "neither model.safetensors nor");
  write_tensors(directory / "one.safetensors", {"a"}, WeightType::f32);
  write_tensors(directory / "two.safetensors", {"b"}, WeightType::f32);
  const auto with_map = [&](const std::string& map) {
    write_text(directory / kIndex, R"({"weight_map": )" + map + "}");
    return error_of_open(directory.path());
  };
  has(with_map("{}"), "it names no tensor");
  has(with_map("[]"), "no index of weights");
  has(with_map(R"({"a": "../one.safetensors"})"), "no file beside it");
  has(with_map(R"({"a": 3})"), "no file beside it");
  has(with_map(R"({"a": "three.safetensors"})"), "three.safetensors");
  write_tensors(directory / "two.safetensors", {"a"}, WeightType::f32);
  has(with_map(R"({"c": "one.safetensors", "b": "two.safetensors"})"),
      "say in model.safetensors.index.json which one is meant");
  write_text(directory / kIndex, "{");
  has(error_of_open(directory.path()), "no index of weights");
  write_tensors(directory / "two.safetensors", {"b"}, WeightType::f32);
  fs::resize_file(directory / "two.safetensors", fs::file_size(directory / "two.safetensors") - 1);
  has(with_map(R"({"a": "one.safetensors", "b": "two.safetensors"})"),
      "two.safetensors is not a usable safetensors file");
}

TEST_CASE("weight directory: a type that holds no weights is named when it is read",
          "[storage][weight_files]") {
  const TempDirectory directory;
  const std::vector<TensorHeading> headings{{"ids", {2}, "I64"}};
  auto writer = SafetensorsWriter::create(directory / "model.safetensors", headings);
  REQUIRE(writer.ok());
  REQUIRE(writer->write(std::vector<std::byte>(16)).ok());
  REQUIRE(writer->commit().ok());
  const auto opened = WeightDirectory::open(directory.path());
  REQUIRE(opened.ok());
  std::vector<float> values(2);
  const Status read = opened->read_floats("ids", 0, values);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().message.find("tensor ids is of type I64") != std::string::npos);
}

}  // namespace train::storage
