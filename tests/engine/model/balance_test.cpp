#include "engine/model/balance.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/experts/experts_block.hpp"

namespace train::engine::balance_test {
namespace {

using kernels::BalanceKind;
using kernels::BalanceScope;
using kernels::BalanceTerm;
using Texts = std::vector<std::string>;

std::string refusal_of(const Texts& texts) {
  const auto terms = parse_balance(texts);
  if (terms.ok()) {
    return "accepted";
  }
  CHECK(terms.error().kind == ErrorKind::user);
  CHECK(terms.error().message.starts_with("model.balance has "));
  CHECK(terms.error().message.find('\n') == std::string::npos);
  return terms.error().message;
}

ModelSpec tiny(const char* experts) {
  const std::string text =
      std::string(R"({"vocab_size": 16, "hidden_size": 8, "intermediate_size": 4,
                      "num_hidden_layers": 2, "num_attention_heads": 2,
                      "num_key_value_heads": 1, )") +
      experts + "}";
  return spec_from_config(text, "c.json", 0).value();
}

}  // namespace

TEST_CASE("balance: terms are a kind, a scope and a coefficient", "[engine][balance]") {
  const Texts texts = {"switch:previous_step:0.01", "switch:sequence:1e-3", "z:2"};
  const auto terms = parse_balance(texts);
  REQUIRE(terms.ok());
  REQUIRE(terms->size() == 3);
  CHECK((*terms)[0].kind == BalanceKind::switch_loss);
  CHECK((*terms)[0].scope == BalanceScope::previous_step);
  CHECK((*terms)[0].coeff == 0.01F);
  CHECK((*terms)[1].scope == BalanceScope::sequence);
  CHECK((*terms)[2].kind == BalanceKind::z);
  CHECK((*terms)[2].scope == BalanceScope::lane);
  CHECK((*terms)[2].coeff == 2.0F);
  CHECK(parse_balance(Texts{"hf:lane:1"})->front().kind == BalanceKind::hf);
  CHECK(parse_balance(Texts{"switch:step:1"})->front().scope == BalanceScope::step);
  CHECK(parse_balance(Texts{"none"})->empty());
  CHECK(parse_balance(Texts{"switch:0.01", "none"}).error().message ==
        "model.balance has \"none\": it stands alone, for no loss; leave it out beside others");
  CHECK(parse_balance(Texts{})->empty());
}

TEST_CASE("balance: what no term is and what does not go together is named", "[engine][balance]") {
  const auto has = [](const Texts& texts, const char* part) {
    INFO(refusal_of(texts));
    CHECK(refusal_of(texts).find(part) != std::string::npos);
  };
  for (const char* text : {"switch", "switch:", "even:0.1", "switch:next_step:0.1", ":0.1", "",
                           "switch:lane:0.1:2", "lane:switch:0.1"}) {
    CAPTURE(text);
    CHECK(refusal_of({text}) != "accepted");
  }
  has({"even:0.1"}, "with a kind of hf, switch or z");
  for (const char* text : {"z:0", "z:-1", "z:nan", "z:inf", "z:1x", "z:0x1"}) {
    CAPTURE(text);
    has({text}, "must be a number above 0");
  }
  has({"hf:sequence:0.1"}, "hf has the scope lane only");
  has({"z:previous_step:0.1"}, "z has the scope lane only");
  has({"hf:step:0.1"}, "hf has the scope lane only");
  has({"switch:0.1", "switch:lane:0.2"}, "already has a coefficient");
  has({"switch:sequence:0.1", "hf:0.1"}, "does not go with terms by sequences");
  has({"none", "z:1"}, "\"none\"");
  CHECK(refusal_of({"hf:1", "switch:1", "switch:previous_step:1", "z:1"}) == "accepted");
}

TEST_CASE("balance: run files replace what a config.json says, in every layer",
          "[engine][balance]") {
  ModelSpec model =
      tiny(R"("model_type": "mixtral", "output_router_logits": true, "router_aux_loss_coef": 0.5)");
  const auto balance = [&](std::size_t layer) {
    return block_of<ExpertsSpec>(model.layers[layer]).balance;
  };
  REQUIRE(balance(1).size() == 1);
  CHECK(balance(1)[0].kind == BalanceKind::hf);
  CHECK(balance(1)[0].scope == BalanceScope::lane);
  CHECK(balance(1)[0].coeff == 0.5F);
  REQUIRE(set_balance({{.kind = BalanceKind::z, .coeff = 0.25F}}, model).ok());
  for (const std::size_t layer : {0U, 1U}) {
    REQUIRE(balance(layer).size() == 1);
    CHECK(balance(layer)[0].kind == BalanceKind::z);
    CHECK(block_of<ExpertsSpec>(model.layers[layer]).index == static_cast<std::int64_t>(layer));
    CHECK(block_of<ExpertsSpec>(model.layers[layer]).layers == 2);
  }
  REQUIRE(set_balance({}, model).ok());
  CHECK(balance(0).empty());
  CHECK(block_of<ExpertsSpec>(tiny(R"("model_type": "mixtral")").layers[0]).balance.empty());

  auto sigmoid = std::make_shared<ExpertsSpec>(block_of<ExpertsSpec>(model.layers[0]));
  sigmoid->router = kernels::RouterKind::sigmoid;
  model.layers[0].branches.back().block = std::move(sigmoid);
  const Status refused = set_balance({{.kind = BalanceKind::hf, .coeff = 1.0F}}, model);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.starts_with("model.balance: balancing loss hf is defined for a "));
}

TEST_CASE("balance: terms of a model without experts are refused", "[engine][balance]") {
  ModelSpec model = tiny(R"("model_type": "llama")");
  CHECK(set_balance({}, model).ok());
  const Status refused = set_balance({{.coeff = 1.0F}}, model);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("model.balance") == 0);
}

TEST_CASE("balance: the rate of a correction bias is given where a model has one, else refused",
          "[engine][balance]") {
  ModelSpec corrected = tiny(
      R"("model_type": "glm4_moe", "n_routed_experts": 4, "num_experts_per_tok": 2,
         "first_k_dense_replace": 1, "moe_intermediate_size": 4)");
  REQUIRE(set_choice_bias_rate(0.25, corrected).ok());
  CHECK(block_of<ExpertsSpec>(corrected.layers[1]).choice_bias_rate == 0.25);
  REQUIRE(set_choice_bias_rate(0.0, corrected).ok());
  CHECK(block_of<ExpertsSpec>(corrected.layers[1]).choice_bias_rate == 0.0);
  for (const char* type : {"mixtral", "llama"}) {
    ModelSpec model = tiny(fmt::format(R"("model_type": "{}")", type).c_str());
    CHECK(set_choice_bias_rate(0.0, model).ok());
    const Status refused = set_choice_bias_rate(0.25, model);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().kind == ErrorKind::user);
    CHECK(refused.error().message.find("model.router_bias_rate is 0.25, but") == 0);
  }
}

}  // namespace train::engine::balance_test
