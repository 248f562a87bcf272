#include "configs/words/other_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

#include "configs/fields/field_table.hpp"

namespace train::configs {
namespace {

constexpr auto kWords = std::to_array<OtherWords>({
    {"command", "run", "train|fit|resume|continue|start|launch|pretrain|finetune|fine_tune|sft"},
    {"command", "eval", "evaluate|test|benchmark|score"},
    {"command", "generate", "sample|infer|inference|chat|complete|predict"},
    {"command", "board", "dashboard|serve|ui|web|tensorboard"},
    {"command", "status", "watch|monitor|info|progress"},
    {"command", "verify", "validate|check|audit"},
    {"command", "submit", "slurm|sbatch"},
    {"command", "data prepare", "prepare|preprocess|tokenize_data"},
    {"command", "checkpoints list", "list|ls|ckpt"},
    {"command", "config keys", "keys|options|params"},

    {"option", "--tokens", "--max_tokens|--max_new_tokens|--length|--num_tokens"},
    {"option", "--out", "--output|--output_dir|--save|--out_dir"},
    {"option", "--step", "--checkpoint|--ckpt"},
    {"option", "--from", "--step|--start"},
    {"option", "--keep-last", "--keep|--max_keep"},
    {"option", "--val-fraction", "--val|--validation|--test_size|--val_size|--validation_split"},
    {"option", "--temperature", "--temp"},
    {"option", "--fresh", "--restart|--overwrite|--reset|--from_scratch"},
    {"option", "--nodes", "--num_nodes|--nnodes"},
    {"option", "--what", "--metric|--metrics|--key|--keys|--column"},
    {"option", "--listen", "--port|--host|--address|--bind"},

    {"section", "run", "trainer|training|general|experiment"},
    {"section", "data", "dataset|dataloader|corpus"},
    {"section", "optimizer", "optim|adam|adamw"},
    {"section", "schedule", "scheduler|lr_scheduler"},
    {"section", "eval", "evaluation|validation|val"},
    {"section", "checkpoint", "checkpoints|checkpointing|save"},
    {"section", "parallel", "distributed|parallelism|fsdp|ddp|deepspeed"},
    {"section", "precision", "amp|mixed_precision|dtype"},
    {"section", "lora", "peft|adapter|adapters"},
    {"section", "status", "logging|monitoring"},

    {"key", "run.name", "run_name|experiment|experiment_name"},
    {"key", "run.dir", "output_dir|out_dir|save_dir"},
    {"key", "run.seed", "random_seed|manual_seed"},
    {"key", "run.steps",
     "step|max_steps|num_steps|total_steps|train_steps|training_steps|num_train_steps|iterations|"
     "iters|max_iters|num_iters|train_iters|epochs|num_epochs|max_epochs|num_train_epochs"},
    {"key", "run.log_interval_steps", "log_interval|logging_steps|log_every|log_every_n_steps"},
    {"key", "model.from", "model_name_or_path|pretrained|init_from|base_model|model_path"},
    {"key", "model.layers", "n_layer|n_layers|num_layers|num_hidden_layers|depth"},
    {"key", "model.heads", "n_head|n_heads|num_heads|num_attention_heads"},
    {"key", "model.embedding_dim", "hidden_size|n_embd|d_model|dim|hidden_dim|model_dim"},
    {"key", "model.mlp_hidden", "intermediate_size|ffn_hidden_size|d_ff|ffn_dim"},
    {"key", "model.norm_eps", "rms_norm_eps|layer_norm_eps"},
    {"key", "model.tie_embeddings", "tie_word_embeddings|weight_tying"},
    {"key", "data.dir", "dataset|dataset_path|data_path|data_dir|train_file|train_files"},
    {"key", "data.sequence_length",
     "seq_len|seq_length|max_length|max_seq_len|max_seq_length|block_size|context_length|n_ctx|"
     "n_positions|max_position_embeddings|cutoff_len|context_size"},
    {"key", "batch.micro_batch",
     "batch_size|micro_batch_size|train_batch_size|device_batch_size|per_device_batch_size|"
     "per_device_train_batch_size|local_batch_size"},
    {"key", "batch.lanes",
     "gradient_accumulation_steps|gradient_accumulation|grad_accum|grad_accum_steps|"
     "accumulate_grad_batches|accumulation_steps|global_batch_size|total_batch_size"},
    {"key", "optimizer.name", "optim|optimizer_type"},
    {"key", "optimizer.lr", "learning_rate|max_lr|base_lr|peak_lr"},
    {"key", "optimizer.weight_decay", "wd"},
    {"key", "optimizer.grad_clip",
     "max_grad_norm|clip_grad|clip_grad_norm|gradient_clip|gradient_clip_val|gradient_clipping|"
     "grad_clip_norm|max_norm"},
    {"key", "optimizer.beta1", "adam_beta1|betas"},
    {"key", "optimizer.beta2", "adam_beta2"},
    {"key", "optimizer.eps", "epsilon|adam_epsilon|adam_eps"},
    {"key", "schedule.name", "lr_scheduler|lr_scheduler_type|scheduler|lr_decay_style|lr_schedule"},
    {"key", "schedule.warmup_steps",
     "warmup|warmup_iters|num_warmup_steps|lr_warmup_steps|lr_warmup_iters|warmup_ratio"},
    {"key", "schedule.final_div_factor", "min_lr|min_lr_ratio|final_lr"},
    {"key", "eval.interval_steps",
     "eval_steps|eval_interval|eval_every|eval_freq|val_interval|val_check_interval"},
    {"key", "eval.lanes", "eval_iters|eval_batches"},
    {"key", "checkpoint.interval_steps",
     "save_steps|save_interval|save_every|checkpoint_interval|checkpoint_every|ckpt_interval"},
    {"key", "checkpoint.keep_last", "save_total_limit|max_checkpoints|keep_checkpoints"},
    {"key", "parallel.ranks",
     "gpus|num_gpus|n_gpu|ngpu|devices|world_size|nproc|nproc_per_node|num_processes|"
     "data_parallel_size"},
    {"key", "parallel.nodes", "num_nodes|nnodes|num_machines"},
    {"key", "parallel.strategy", "fsdp|ddp|deepspeed|zero_stage|zero|sharding|sharding_strategy"},
    {"key", "parallel.transport", "backend|dist_backend"},
    {"key", "precision.compute", "dtype|torch_dtype|bf16|fp16|mixed_precision|amp"},
    {"key", "memory.activation_checkpointing",
     "gradient_checkpointing|recompute|recomputation|activation_checkpoint|checkpoint_activations"},
    {"key", "memory.offload", "cpu_offload|offload_optimizer"},
    {"key", "train.ema", "ema_decay|use_ema"},
    {"key", "train.freeze", "freeze_layers|frozen"},
    {"key", "lora.rank", "lora_r|r|lora_rank"},
    {"key", "lora.alpha", "lora_alpha"},
    {"key", "lora.targets", "target_modules|lora_target|lora_targets|lora_target_modules"},
    {"key", "runtime.threads", "num_threads|omp_num_threads|cpu_threads"},
    {"key", "runtime.device", "accelerator"},

    {"schedule.name", "cos", "cosine|cosine_decay|cosine_annealing|onecycle|one_cycle|onecyclelr"},
    {"schedule.name", "cos_inf", "cosine_inf|cosine_with_min_lr|infinite_cosine"},
    {"schedule.name", "linear", "linear_decay|linear_with_warmup|polynomial"},
    {"schedule.name", "wsd", "warmup_stable_decay|trapezoid|trapezoidal"},
    {"schedule.name", "constant", "none|fixed|constant_with_warmup|flat"},
    {"optimizer.name", "adamw", "adam|adamw_torch|adamw_torch_fused|adamw_fused|adamw_8bit"},
    {"optimizer.name", "dana-star", "danastar"},
    {"parallel.strategy", "none",
     "ddp|dp|data_parallel|no_shard|replicate|replicated|zero0|zero_0|stage0|deepspeed_stage_0"},
    {"parallel.strategy", "optimizer",
     "zero|zero1|zero_1|stage1|stage_1|zero_stage_1|deepspeed_stage_1|deepspeed"},
    {"parallel.strategy", "gradient",
     "zero2|zero_2|stage2|stage_2|zero_stage_2|deepspeed_stage_2|shard_grad_op|gradients"},
    {"parallel.strategy", "full",
     "fsdp|fsdp2|full_shard|fully_shard|zero3|zero_3|stage3|stage_3|zero_stage_3|"
     "deepspeed_stage_3|sharded"},
    {"parallel.strategy", "hybrid", "hsdp|hybrid_shard|hybrid_sharded|_hybrid_shard_zero2"},
    {"parallel.transport", "inproc", "local|threads|in_process"},
    {"parallel.transport", "tcp", "ethernet|socket|sockets|mpi"},
    {"precision.compute", "bf16",
     "bfloat16|bf16_mixed|bf16_true|torch.bfloat16|amp|mixed|fp16|float16|half|16"},
    {"precision.compute", "fp32", "float32|float|32|32_true|full|tf32|torch.float32"},
    {"precision.reduce", "bf16", "bfloat16|torch.bfloat16|fp16|float16"},
    {"precision.reduce", "fp32", "float32|float|32|torch.float32"},
    {"precision.master", "fp32", "float32|float|32|torch.float32|bf16|bfloat16|fp16"},
    {"runtime.device", "cuda", "gpu|cuda:0|nvidia"},
    {"objective.name", "pretrain", "clm|causal_lm|lm|next_token|pretraining|cross_entropy"},
    {"objective.name", "sft", "instruct|instruction|finetune|finetuning|fine_tuning|supervised"},
    {"memory.activation_checkpointing", "all", "full|true|selective|on"},
    {"memory.activation_checkpointing", "none", "false|off"},
    {"memory.offload", "optimizer", "cpu|host|true"},
    {"recovery.rank_loss", "respawn", "restart|elastic"},
    {"recovery.rank_loss", "stop", "abort|fail"},
    {"model.init_scheme", "karpathy_gpt2", "gpt2|nanogpt|normal"},
});

/// Methods that other programs have and this one has not; one of its own would be another method,
/// however near its name.
constexpr auto kAbsent =
    std::to_array<std::string_view>({"grpo", "ppo", "rlhf", "rloo", "reinforce", "dapo",
                                     "online_dpo", "gkd", "distillation", "reward_model", "mlm"});

std::string normalized(std::string_view word) {
  std::string out(word);
  for (char& letter : out) {
    letter = letter == '-' || letter == ' '
                 ? '_'
                 : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  if (out.starts_with("__")) {
    out.replace(0, 2, "--");  // An option's.
  }
  return out;
}

}  // namespace

std::span<const OtherWords> other_words() { return kWords; }

Vocabulary vocabulary(std::string_view scope) {
  Vocabulary found;
  for (const OtherWords& entry : kWords) {
    if (entry.scope != scope) {
      continue;
    }
    for (std::string& word : split_choices(entry.words)) {
      found.words.push_back(std::move(word));
      found.meant.emplace_back(entry.meant);
    }
  }
  return found;
}

bool is_absent(std::string_view scope, std::string_view word) {
  return scope == "objective.name" && std::ranges::count(kAbsent, normalized(word)) > 0;
}

std::string meaning_of(std::string_view scope, std::string_view word) {
  const Vocabulary all = vocabulary(scope);
  const auto found = std::find(all.words.begin(), all.words.end(), normalized(word));
  return found == all.words.end() ? std::string()
                                  : all.meant[static_cast<std::size_t>(found - all.words.begin())];
}

std::string key_meant(std::string_view name) {
  const std::string own = normalized(name.substr(name.rfind('.') + 1));
  std::vector<std::string> keys;
  for (const Field& field : all_fields()) {
    if (field.name == own) {
      keys.push_back(field.key());
    }
  }
  return keys.size() == 1 ? keys.front() : meaning_of("key", own);
}

}  // namespace train::configs
