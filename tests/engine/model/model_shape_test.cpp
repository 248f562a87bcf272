#include "engine/model/model_shape.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "engine/model/experts/experts_block.hpp"

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

TEST_CASE("model shape: experts take the place of every MLP", "[engine][model_shape]") {
  const char* arch = GENERATE("enoki", "dstar_qwen3");
  auto model = section(arch, 2);
  const ModelShape dense = resolve_shape(model, 0).value();
  CHECK(dense.experts == 0);
  model.experts = 6;
  model.experts_per_token = 3;
  ModelShape shape = resolve_shape(model, 0).value();
  CHECK(shape.expert_hidden == dense.mlp_hidden);
  model.expert_hidden = 20;
  model.shared_expert_hidden = 12;
  model.router = "softmax";
  shape = resolve_shape(model, 0).value();
  const ModelSpec spec = shape;
  const auto& experts = block_of<ExpertsSpec>(spec.layers.back());
  CHECK(experts.experts == 6);
  CHECK(experts.slots == 3);
  CHECK(experts.hidden == 20);
  CHECK(experts.shared.hidden == 12);
  CHECK(experts.shared.gated);
  CHECK(experts.router == kernels::RouterKind::softmax);
  CHECK(experts.index == shape.layers - 1);
  CHECK(experts.layers == shape.layers);
  const bool gated = std::string(arch) != "enoki";
  const std::int64_t width = shape.embedding_dim;
  const std::int64_t mlp = (gated ? 3 : 2) * width * dense.mlp_hidden;
  const std::int64_t router = 6 * width, one = 3 * width * 20, shared = 3 * width * 12 + width;
  const ParameterCount count = count_parameters(spec);
  CHECK(count.total - count_parameters(dense).total ==
        shape.layers * (router + 6 * one + shared - mlp));
  CHECK(count.total - count.active == shape.layers * 3 * one);
  const ModelShape again = shape_of(spec);
  CHECK(again.experts == 6);
  CHECK(again.experts_per_token == 3);
  CHECK(again.expert_hidden == 20);
  CHECK(again.shared_expert_hidden == 12);
  CHECK(again.router == kernels::RouterKind::softmax);
  CHECK(again.router_groups == 1);
  CHECK(again.router_bias_rate == 0.0);
}

TEST_CASE("model shape: a sigmoid router, its factor, groups and bias", "[engine][model_shape]") {
  auto model = section("dstar_qwen3", 2);
  model.experts = 8;
  model.expert_hidden = 20;
  model.router = "sigmoid";
  const ParameterCount without = count_parameters(resolve_shape(model, 0).value());
  model.router_scale = 2.5;
  model.router_groups = 4;
  model.router_kept_groups = 2;
  model.router_bias_rate = 0.25;
  const ModelSpec spec = resolve_shape(model, 0).value();
  const auto& experts = block_of<ExpertsSpec>(spec.layers.front());
  CHECK(experts.router == kernels::RouterKind::sigmoid);
  CHECK(experts.scale == 2.5F);
  CHECK(experts.groups == 4);
  CHECK(experts.kept_groups == 2);
  CHECK(experts.choice_bias == "mlp.gate.e_score_correction_bias");
  CHECK(experts.choice_bias_rate == 0.25);
  CHECK(experts.mistake().empty());
  CHECK(count_parameters(spec).total == without.total);  // Transformers: a buffer.
  const ModelShape again = shape_of(spec);
  CHECK(again.router == kernels::RouterKind::sigmoid);
  CHECK(again.router_scale == 2.5F);
  CHECK(again.router_groups == 4);
  CHECK(again.router_kept_groups == 2);
  CHECK(again.router_bias_rate == 0.25);
  model.router = "sigmoid_normalised";
  CHECK(resolve_shape(model, 0).value().router == kernels::RouterKind::sigmoid_normalised);
}

TEST_CASE("model shape: FLOPs count the experts that a token uses", "[engine][model_shape]") {
  auto model = section("dstar_qwen3", 2);
  model.experts = 8;
  model.expert_hidden = 32;
  model.experts_per_token = 2;
  const ModelShape two = resolve_shape(model, 0).value();
  const double flops = flops_per_token(two, 128);
  model.experts_per_token = 5;
  const double of_five = flops_per_token(resolve_shape(model, 0).value(), 128);
  CHECK(of_five - flops ==
        Approx(6.0 * 3.0 * 3.0 * 32.0 * static_cast<double>(two.embedding_dim * two.layers)));
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
