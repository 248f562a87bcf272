#include "engine/model/tensor_map.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"

namespace train::engine::tensor_map_test {
namespace {

using Values = std::vector<float>;
using Rules = std::vector<TensorRule>;

constexpr const char* kExperts = "experts.weight";

MappedParameter mapped(std::vector<std::int64_t> shape, const Rules& rules) {
  MappedParameter all{.parameter = {.name = kExperts, .shape = std::move(shape)}};
  all.parts = parts_of(all.parameter, rules);
  return all;
}

Values counted(std::int64_t count) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(i));
  }
  return values;
}

/// Stored tensors in memory, and what was read of them.
struct Files {
  std::map<std::string, Values> tensors;
  std::map<std::string, std::int64_t> read;  ///< Elements.

  /// Stores a parameter whose element i is i, in pieces of one row.
  void add(const MappedParameter& parameter) {
    const Values elements = counted(parameter.parameter.count());
    const std::int64_t cols = parameter.parameter.cols();
    for (const TensorPart& part : parameter.parts) {
      std::int64_t count = 1;
      for (const std::int64_t places : part.shape) {
        count *= places;
      }
      Values& stored = tensors[part.name];
      stored.resize(static_cast<std::size_t>(count), -1.0F);
      const RowRange rows = rows_of(part, cols);
      for (std::int64_t row = rows.first; row < rows.first + rows.count; ++row) {
        store(part, row * cols,
              std::span(elements).subspan(static_cast<std::size_t>(row * cols),
                                          static_cast<std::size_t>(cols)),
              stored);
      }
    }
  }

  Values rows(const MappedParameter& parameter, std::int64_t first, std::int64_t count) {
    Values out(static_cast<std::size_t>(count * parameter.parameter.cols()), -1.0F);
    const auto read_one = [this](const std::string& name, std::int64_t from,
                                 std::span<float> to) -> Status {
      const Values& stored = tensors.at(name);
      read[name] += static_cast<std::int64_t>(to.size());
      for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] = stored.at(static_cast<std::size_t>(from) + i);
      }
      return {};
    };
    REQUIRE(read_rows(parameter, first, count, read_one, out).ok());
    return out;
  }
};

/// Any rows of the parameter come back as they were stored.
void check_there_and_back(const MappedParameter& parameter) {
  Files files;
  files.add(parameter);
  const std::int64_t cols = parameter.parameter.cols();
  const Values all = counted(parameter.parameter.count());
  for (std::int64_t first = 0; first < parameter.parameter.rows(); ++first) {
    for (std::int64_t count = 1; first + count <= parameter.parameter.rows(); ++count) {
      CAPTURE(first, count);
      CHECK(files.rows(parameter, first, count) ==
            Values(all.begin() + first * cols, all.begin() + (first + count) * cols));
    }
  }
}

}  // namespace

TEST_CASE("tensor map: experts of a tensor each, of which those of the rows are read",
          "[engine][tensor_map]") {
  const MappedParameter gate = mapped({3, 2, 4}, {{kExperts, "experts.{}.gate_proj.weight"}});
  REQUIRE(gate.parts.size() == 3);
  CHECK(gate.parts[2].name == "experts.2.gate_proj.weight");
  CHECK(gate.parts[2].shape == std::vector<std::int64_t>{2, 4});
  CHECK_FALSE(gate.is_copy());
  check_there_and_back(gate);
  Files files;
  files.add(gate);
  CHECK(files.tensors.at("experts.1.gate_proj.weight") == Values{8, 9, 10, 11, 12, 13, 14, 15});
  (void)files.rows(gate, 1, 1);
  CHECK(files.read == std::map<std::string, std::int64_t>{{"experts.1.gate_proj.weight", 8}});
  const MappedParameter turned =
      mapped({3, 2, 4}, {{kExperts, "{}.down", TensorOrder::transposed}});
  CHECK(turned.parts[0].shape == std::vector<std::int64_t>{4, 2});
  check_there_and_back(turned);
  files.add(turned);
  CHECK(files.tensors.at("0.down") == Values{0, 4, 1, 5, 2, 6, 3, 7});
}

TEST_CASE("tensor map: experts of one tensor that two parameters share", "[engine][tensor_map]") {
  const auto half = [](std::int64_t first) {
    return mapped({3, 2, 4}, {{.parameter = kExperts,
                               .stored = "gate_up",
                               .within = {.axis = 1, .first = first, .count = 4}}});
  };
  const MappedParameter gate = half(0);
  const MappedParameter up = half(2);
  CHECK(gate.parts.front().shape == std::vector<std::int64_t>{3, 4, 4});
  CHECK_FALSE(gate.is_copy());
  check_there_and_back(gate);
  check_there_and_back(up);
  Files files;
  files.add(gate);
  files.add(up);
  CHECK(files.tensors.at("gate_up") == Values{0,  1,  2,  3,  4,  5,  6,  7,  0,  1,  2,  3,
                                              4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                              8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                              20, 21, 22, 23, 16, 17, 18, 19, 20, 21, 22, 23});
  (void)files.rows(up, 2, 1);
  CHECK(files.read.at("gate_up") == 8);  // of 48
}

TEST_CASE("tensor map: parameters that lie in a stack, of which their own part is read",
          "[engine][tensor_map]") {
  // Two experts [2, 4] each with a gate and an up matrix, one above the other.
  const auto in_stack = [](std::int64_t place, std::int64_t first) {
    return mapped({2, 4}, {{.parameter = kExperts,
                            .stored = "gate_up",
                            .within = {.first = first, .count = 4},
                            .stack = {.place = place, .count = 2}}});
  };
  Files files;
  for (const std::int64_t place : {0, 1}) {
    for (const std::int64_t first : {0, 2}) {
      CAPTURE(place, first);
      const MappedParameter one = in_stack(place, first);
      CHECK(one.parts.front().shape == std::vector<std::int64_t>{2, 4, 4});
      CHECK_FALSE(one.is_copy());
      check_there_and_back(one);
      files.add(one);
    }
  }
  const Values once = {0, 1, 2, 3, 4, 5, 6, 7};
  Values all;
  for (int i = 0; i < 4; ++i) {
    all.insert(all.end(), once.begin(), once.end());
  }
  CHECK(files.tensors.at("gate_up") == all);
  CHECK(files.rows(in_stack(1, 2), 1, 1) == Values{4, 5, 6, 7});
  CHECK(files.read.at("gate_up") == 4);  // of 32
  const MappedParameter turned = mapped({2, 3}, {{.parameter = kExperts,
                                                  .stored = "down",
                                                  .order = TensorOrder::transposed,
                                                  .stack = {.place = 2, .count = 3}}});
  CHECK(turned.parts.front().shape == std::vector<std::int64_t>{3, 3, 2});
  check_there_and_back(turned);
  files.add(turned);
  CHECK(Values(files.tensors.at("down").begin() + 12, files.tensors.at("down").end()) ==
        Values{0, 3, 1, 4, 2, 5});
}

TEST_CASE("tensor map: one parameter of slices that lie in several tensors",
          "[engine][tensor_map]") {
  const auto rows = [](const char* name, std::int64_t first, std::int64_t count, TensorOrder order,
                       std::int64_t heads) {
    return TensorRule{.parameter = kExperts,
                      .stored = name,
                      .order = order,
                      .heads = heads,
                      .slice = {.axis = 0, .first = first, .count = count}};
  };
  const MappedParameter fused = mapped(
      {8, 3}, {rows("q", 0, 4, TensorOrder::rotary_pairs, 1), rows("k", 4, 2, TensorOrder::same, 0),
               rows("v", 6, 2, TensorOrder::transposed, 0)});
  check_there_and_back(fused);
  Files files;
  files.add(fused);
  CHECK(files.tensors.at("q") == Values{0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11});
  CHECK(files.tensors.at("v") == Values{18, 21, 19, 22, 20, 23});
  CHECK_FALSE(files.read.contains("k"));
  (void)files.rows(fused, 4, 1);
  CHECK(files.read == std::map<std::string, std::int64_t>{{"k", 3}});
}

TEST_CASE("tensor map: orders of rows, and values of another zero", "[engine][tensor_map]") {
  const auto stored = [](const MappedParameter& parameter) {
    check_there_and_back(parameter);
    Files files;
    files.add(parameter);
    return files.tensors.begin()->second;
  };
  CHECK(stored(mapped({8, 1}, {{kExperts, "a", TensorOrder::rotary_pairs, 2}})) ==
        Values{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(stored(mapped({12}, {{kExperts, "a", TensorOrder::by_parts, 2}})) ==
        Values{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
  CHECK(stored(mapped({3}, {{kExperts, "a", TensorOrder::same, 0, 1.0F}})) == Values{1, 2, 3});
}

TEST_CASE("tensor map: a model's own names are those of hf, adapters are peft's",
          "[engine][tensor_map]") {
  auto spec = spec_from_config(
      R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 8, "n_embd": 8, "n_layer": 1,
          "n_head": 2})",
      "test", 0);
  REQUIRE(spec.ok());
  spec->lora = {.rank = 2, .targets = {"c_fc"}};
  std::set<std::string> names;
  for (const MappedParameter& one : tensor_map(*spec, Dialect::hf)) {
    CHECK(one.is_copy());
    CHECK(one.parts.front().name == one.parameter.name);
    names.insert(one.parts.front().name);
  }
  CHECK(names.size() == 16);
  const auto adapters = tensor_map(*spec, Dialect::peft);
  REQUIRE(adapters.size() == 2);
  CHECK(adapters[0].parts.front().name ==
        "base_model.model.transformer.h.0.mlp.c_fc.lora_A.weight");
  CHECK(adapters[1].is_copy());
}

}  // namespace train::engine::tensor_map_test
