#include "engine/model/config_json/config_keys.hpp"

#include <algorithm>
#include <array>

namespace train::engine {
namespace {

constexpr std::string_view kCausal =
    "attention is causal here; set it back, or train the model with a program for encoders";

constexpr auto kKeys = std::to_array<ConfigKeys>({
    {"is_causal", KeyUse::refused, kCausal, "true"},
    {"use_bidirectional_attention", KeyUse::refused, kCausal, "false"},
    {"add_cross_attention", KeyUse::refused, "a layer reads its own text alone", "false"},
    {"attn_logit_softcapping", KeyUse::refused,
     "scores of this family have no cap, in transformers neither; set it to null", "null"},
    {"per_layer_config", KeyUse::refused, "layers have one configuration here", "{}"},
    {"pruned_heads", KeyUse::refused, "layers have all their heads here", "{}"},
    {"compression_config", KeyUse::refused,
     "give the weights as they were before they were compressed", "null"},
    {"moe_num_experts n_routed_experts num_experts num_local_experts", KeyUse::refused,
     "models of this model_type have no experts under that name; set model_type or the name right",
     "0"},
    {"input_jitter_noise", KeyUse::refused, "routers read their input without noise; set it to 0",
     "0.0"},
    {"capacity_factor eval_capacity_factor expert_capacity expert_capacity_factor "
     "moe_capacity_factor moe_expert_capacity_factor train_capacity_factor",
     KeyUse::refused, "experts compute every token that chooses them; set it to null", "null"},
    {"scoring_func", KeyUse::refused, "routers score by softmax here", R"("softmax")"},
    {"routed_scaling_factor", KeyUse::refused, "weights of experts have no other factor here",
     "1.0"},
    {"n_group topk_group", KeyUse::refused, "routers choose among all experts here", "1"},
    {"norm_before_gate mamba_norm_before_gate ssm_cfg.norm_before_gate ssm_cfg.D_has_hdim",
     KeyUse::refused, "the gate comes before the norm, and a head has one skip; set it to false",
     "false"},
    {"ssm_cfg.layer", KeyUse::refused, "\"Mamba1\" and \"Mamba2\" are the kinds known",
     R"("Mamba1")"},
    {"ssm_cfg.rmsnorm", KeyUse::refused, "Mamba-2 has its gated norm; set it to true", "true"},
    {"ssm_cfg.d_ssm", KeyUse::refused, "all channels are scanned; set it to null", "null"},
    {"attn_layer_idx", KeyUse::refused,
     "layers of attention among Mamba's are not read; leave it empty", "[]"},
    {"d_intermediate", KeyUse::refused, "layers have a mixer alone; set it to 0", "0"},
    {"attention_dropout attn_pdrop resid_pdrop embd_pdrop hidden_dropout", KeyUse::dropout},
    // Weights that are quantised are refused where they are read; full ones may lie beside their
    // quantization_config.
    {"_name_or_path architectures auto_map dtype finetuning_task model_type name_or_path "
     "tokenizer_class quantization_config torch_dtype transformers_version",
     KeyUse::no_effect, "says what the file is"},
    {"begin_suppress_tokens bos_token_id cls_token_id decoder_start_token_id eos_token_id "
     "pad_token_id sep_token_id",
     KeyUse::no_effect, "ids of tokens, which the tokenizer and `generate` use"},
    {"embedding_initializer_range initializer_range rescale_prenorm_residual ssm_cfg.A_init_range",
     KeyUse::no_effect, "initial weights of a fresh model, which are this engine's own"},
    {"_attn_implementation _attn_implementation_autoset _sliding_window_pattern "
     "attn_implementation attn_implementation_new cache_implementation "
     "calc_logits_for_entire_prompt chunk_size chunk_size_feed_forward gradient_checkpointing "
     "fused_add_norm is_decoder is_encoder_decoder n_ctx output_attentions output_hidden_states "
     "output_past "
     "output_router_logits pretraining_tp reorder_and_upcast_attn return_dict "
     "tie_encoder_decoder tie_last_hidden_states torchscript use_associative_scan use_bfloat16 "
     "use_cache use_mamba_kernels use_mambapy num_logits_to_keep seq_length",
     KeyUse::no_effect, "how transformers runs the model and what it returns"},
    {"classifier_dropout id2label label2id num_labels problem_type summary_activation "
     "summary_first_dropout summary_proj_to_labels summary_type summary_use_proj",
     KeyUse::no_effect, "heads that are no language model's"},
    {"bad_words_ids diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size "
     "exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty "
     "max_length min_length no_repeat_ngram_size num_beam_groups num_beams "
     "num_return_sequences output_scores prefix remove_invalid_values repetition_penalty "
     "return_dict_in_generate suppress_tokens task_specific_params temperature top_k top_p "
     "typical_p",
     KeyUse::no_effect, "how transformers samples"},
    {"attn_cfg pad_vocab_size_multiple ssm_cfg time_step_rank time_step_scale "
     "time_step_init_scheme",
     KeyUse::no_effect, "what a state space's other program, or another kind of it, has"},
    {"audio_config audio_token_id boi_token_index eoi_token_index image_token_id "
     "image_token_index mm_tokens_per_image multimodal_projector_bias projector_hidden_act "
     "spatial_merge_size vision_config vision_feature_layer vision_feature_select_strategy",
     KeyUse::no_effect, "parts of a model that also sees or hears"},
});

/// True if `name` is one of the words of `names`.
bool has_word(std::string_view names, std::string_view name) {
  for (std::size_t at = names.find(name); at != std::string_view::npos;
       at = names.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' ')) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::span<const ConfigKeys> config_keys() { return kKeys; }

const ConfigKeys* find_config_key(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(), [&](const ConfigKeys& keys) {
    return has_word(keys.names, name);
  });
  return found == kKeys.end() ? nullptr : &*found;
}

}  // namespace train::engine
