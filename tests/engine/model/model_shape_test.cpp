#include "engine/model/model_shape.hpp"

#include <catch2/catch.hpp>

namespace train::engine::model_shape_test {
namespace {

configs::ModelSection section(const char* arch, std::int64_t heads) {
  configs::ModelSection model;
  model.arch = arch;
  model.heads = heads;
  return model;
}

}  // namespace

TEST_CASE("model shape: enoki's rules", "[engine][model_shape]") {
  struct Row {
    std::int64_t heads, dim, layers, hidden, matrices;
  };
  const auto row = GENERATE(Row{3, 192, 2, 768, 884736}, Row{4, 256, 3, 1024, 2359296},
                            Row{12, 768, 9, 3072, 63700992}, Row{24, 1536, 18, 6144, 509607936});
  const ModelShape shape = resolve_shape(section("enoki", row.heads), 0).value();
  CHECK(shape.embedding_dim == row.dim);
  CHECK(shape.layers == row.layers);
  CHECK(shape.mlp_hidden == row.hidden);
  CHECK(shape.head_dim == 64);
  CHECK(shape.vocab_size == 50304);
  CHECK_FALSE(shape.output_gate);
  const ParameterCount count = count_parameters(shape);
  CHECK(count.non_embedding() == row.matrices + row.layers * (2 * row.dim + 128) + row.dim);
  CHECK(count.embedding == 50304 * row.dim);
  CHECK(count.head == 50304 * row.dim);
}

TEST_CASE("model shape: qwen3's rules", "[engine][model_shape]") {
  const ModelShape shape = resolve_shape(section("qwen3", 2), 0).value();
  CHECK(shape.embedding_dim == 256);
  CHECK(shape.layers == 4);
  CHECK(shape.mlp_hidden == 768);
  CHECK(shape.output_gate);
  CHECK(count_parameters(shape).non_embedding() == 4 * (14 * 256 * 256 + 2 * 128 + 2 * 256) + 256);
}

TEST_CASE("model shape: one head still has one block", "[engine][model_shape]") {
  CHECK(resolve_shape(section("enoki", 1), 0).value().layers == 1);
}

TEST_CASE("model shape: given keys win over the rules", "[engine][model_shape]") {
  auto model = section("enoki", 4);
  model.layers = 5;
  model.head_dim = 16;
  model.embedding_dim = 96;
  model.mlp_hidden = 100;
  model.vocab_size = 777;
  model.attention_output_gate = true;
  const ModelShape shape = resolve_shape(model, 700).value();
  CHECK(shape.layers == 5);
  CHECK(shape.heads * shape.head_dim == 64);
  CHECK(shape.embedding_dim == 96);
  CHECK(shape.mlp_hidden == 100);
  CHECK(shape.vocab_size == 777);
  CHECK_FALSE(shape.output_gate);
}

TEST_CASE("model shape: the data's vocabulary is padded to a multiple of 64",
          "[engine][model_shape]") {
  CHECK(resolve_shape(section("enoki", 1), 50257).value().vocab_size == 50304);
  CHECK(resolve_shape(section("enoki", 1), 256).value().vocab_size == 256);
  CHECK(resolve_shape(section("enoki", 1), 257).value().vocab_size == 320);
}

TEST_CASE("model shape: what cannot be is an error that names the key", "[engine][model_shape]") {
  const auto message = [](const configs::ModelSection& model, std::int64_t vocab) {
    const Result<ModelShape> shape = resolve_shape(model, vocab);
    REQUIRE_FALSE(shape.ok());
    CHECK(shape.error().kind == ErrorKind::user);
    return shape.error().message;
  };
  auto model = section("enoki", 2);
  model.vocab_size = 100;
  CHECK_THAT(message(model, 200), Catch::Contains("model.vocab_size") && Catch::Contains("200"));
  model = section("enoki", 2);
  model.head_dim = 7;
  CHECK_THAT(message(model, 0), Catch::Contains("model.head_dim"));
  CHECK_THAT(message(section("enoki", 0), 0), Catch::Contains("model.heads"));
  CHECK_THAT(message(section("llama", 2), 0), Catch::Contains("model.arch"));
  model = section("qwen3", 2);
  model.mlp_hidden = -4;
  CHECK_THAT(message(model, 0), Catch::Contains("model.mlp_hidden"));
}

TEST_CASE("model shape: a tied head has no weights of its own", "[engine][model_shape]") {
  auto model = section("enoki", 3);
  const ModelShape untied = resolve_shape(model, 0).value();
  model.tie_embeddings = true;
  const ModelShape tied = resolve_shape(model, 0).value();
  CHECK_FALSE(untied.tie_embeddings);
  CHECK(tied.tie_embeddings);
  const ParameterCount count = count_parameters(tied);
  CHECK(count.head == 0);
  CHECK(count.embedding == 50304 * 192);
  CHECK(count.total == count_parameters(untied).total - 50304 * 192);
  CHECK(count.non_embedding() == count_parameters(untied).non_embedding());
  CHECK(flops_per_token(tied, 1024) == flops_per_token(untied, 1024));
}

TEST_CASE("model shape: FLOPs of a token count matmuls and causal attention",
          "[engine][model_shape]") {
  const ModelShape shape = resolve_shape(section("enoki", 3), 0).value();
  const double matrices = 884736.0 + 50304.0 * 192.0;
  CHECK(flops_per_token(shape, 1024) == 6.0 * matrices + 6.0 * 2.0 * 192.0 * 1024.0);
}

}  // namespace train::engine::model_shape_test
