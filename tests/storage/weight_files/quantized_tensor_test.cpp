#include "storage/weight_files/quantized_tensor.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "storage/weight_files/weight_directory.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/fixture_file.hpp"

using namespace train;
using namespace train::storage;

namespace {

/// A directory of one file, which the fixture's script made, with some bytes replaced.
class Stored {
 public:
  explicit Stored(const nlohmann::json& fixture, const std::string& from = "",
                  const std::string& to = "") {
    std::string bytes = test::bytes_of_hex(fixture.at("file").get<std::string>());
    if (!from.empty()) {
      const std::size_t at = bytes.find(from);
      REQUIRE(at != std::string::npos);
      REQUIRE(from.size() == to.size());
      bytes.replace(at, from.size(), to);
    }
    std::ofstream(directory_ / "model.safetensors", std::ios::binary) << bytes;
    std::ofstream(directory_ / "config.json") << fixture.at("config").dump();
  }
  [[nodiscard]] WeightDirectory open() const {
    auto opened = WeightDirectory::open(directory_.path());
    REQUIRE(opened.ok());
    return std::move(opened).value();
  }

 private:
  test::TempDirectory directory_;
};

nlohmann::json cases() { return test::read_fixture("quantised.json").at("cases"); }

nlohmann::json case_named(const std::string& name) {
  for (const auto& each : cases()) {
    if (each.at("name") == name) {
      return each;
    }
  }
  FAIL("no case " << name);
  return {};
}

}  // namespace

TEST_CASE("quantised tensors: values have the bits that torch and transformers give them",
          "[storage][weight_files]") {
  std::size_t compared = 0;
  for (const auto& expected : cases()) {
    CAPTURE(expected.at("name").get<std::string>());
    const WeightDirectory directory = Stored(expected).open();
    const auto name = expected.at("tensor").get<std::string>();
    CHECK(directory.names() == std::vector<std::string>{name});
    CHECK(directory.quantized() == 1);
    CHECK(directory.unreadable(name).empty());
    CHECK(directory.find(name)->shape == expected.at("shape").get<std::vector<std::int64_t>>());
    const auto wanted = test::floats_of_hex(expected.at("values").get<std::string>());
    std::vector<float> values(wanted.size());
    REQUIRE(directory.read_floats(name, 0, values).ok());
    CHECK(test::same_bits(values, wanted));
    // Parts of any length from any element on.
    for (std::size_t first = 0; first < wanted.size(); first += 1 + first % 7) {
      const std::size_t count = std::min<std::size_t>(wanted.size() - first, 1 + 5 * first % 67);
      std::vector<float> part(count);
      REQUIRE(directory.read_floats(name, first, part).ok());
      const auto at = wanted.begin() + static_cast<std::ptrdiff_t>(first);
      CHECK(test::same_bits(part, {at, at + static_cast<std::ptrdiff_t>(count)}));
    }
    ++compared;
  }
  CHECK(compared == 9);
}

TEST_CASE("quantised tensors: scales that are missing or fit no blocks are named",
          "[storage][weight_files]") {
  const auto reason = [](const Stored& stored, const std::string& name) {
    const WeightDirectory directory = stored.open();
    const std::string text = directory.unreadable(name);
    std::vector<float> values(1);
    const Status read = directory.read_floats(name, 0, values);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().kind == ErrorKind::user);
    CHECK(read.error().message.ends_with(text));
    return text;
  };
  const nlohmann::json fp8 = case_named("scales of 16 bits");
  CHECK(reason(Stored(fp8, "a.weight_scale_inv", "a.weight_scale_abc"), "a.weight") ==
        "tensor a.weight is of type F8_E4M3 and its scales, tensor a.weight_scale_inv, are "
        "missing: fetch all files of the model; FP8 with scales of other names is not read");
  CHECK(reason(Stored(fp8, "\"shape\":[2,3]", "\"shape\":[6,1]"), "a.weight") ==
        "tensor a.weight [4, 6] of type F8_E4M3 cannot have the scales a.weight_scale_inv [6, 1] "
        "of type BF16");
  const nlohmann::json mxfp4 = case_named("experts of mxfp4");
  CHECK(reason(Stored(mxfp4, "gate_up_proj_scales", "gate_up_proj_scalez"),
               "e.gate_up_proj_blocks") ==
        "tensor e.gate_up_proj_blocks is there and its scales, tensor e.gate_up_proj_scales, are "
        "missing: fetch all files of the model");
  CHECK(reason(Stored(mxfp4, "\"shape\":[3,6,2]", "\"shape\":[3,2,6]"), "e.gate_up_proj_blocks") ==
        "tensor e.gate_up_proj_blocks [3, 6, 2, 16] cannot have the scales e.gate_up_proj_scales "
        "[3, 2, 6] of type U8");
}
