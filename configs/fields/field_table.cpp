#include "configs/fields/field_table.hpp"

#include <fmt/format.h>

#include <array>
#include <type_traits>

#include "configs/fields/field_locations.hpp"
#include "configs/fields/objective_fields.hpp"
#include "configs/fields/optimizer_table.hpp"

namespace train::configs {
namespace {

using namespace locations;

constexpr BetweenStarts kMayChange = BetweenStarts::may_change;
constexpr BetweenStarts kMayMove = BetweenStarts::may_move;
constexpr BetweenStarts kWarns = BetweenStarts::warns;
constexpr bool kRequired = true;
constexpr bool kOptional = false;
constexpr Limits kNone{};
constexpr double kManySteps = 1e9;
constexpr double kManyRanks = 65536;
constexpr double kManyBlocks = 4096;
constexpr bool kOrInteger = true;
// Largest double below 2^63: TOML integers are signed, so a file cannot contain the upper half of
// 64-bit seeds.
constexpr double kLargestSeed = 9223372036854774784.0;
constexpr Limits kFromOneStep{.low = 1, .high = kManySteps};
constexpr Limits kFromZeroSteps{.low = 0, .high = kManySteps};
constexpr Limits kBelowOne{.low = 0, .high = 1, .high_excluded = true};

constexpr Limits between(double low, double high) { return {.low = low, .high = high}; }
constexpr Limits above(double low, double high) {
  return {.low = low, .high = high, .low_excluded = true};
}

constexpr std::string_view kStrategies = "none|optimizer|gradient|full|hybrid";

constexpr auto kFields = std::to_array<Field>({
    {"run", "name", "", "Name of the run: its directory below `run.dir`.", run<&RunSection::name>,
     kMayChange, kRequired},
    {"run", "dir", "path", "Parent of all run directories.", run<&RunSection::dir>, kMayChange},
    {"run", "seed", "", "Seed of initial weights, data order and sampling.", run<&RunSection::seed>,
     kStays, kOptional, between(0, kLargestSeed)},
    {"run", "steps", "steps", "Optimizer steps of the whole run.", run<&RunSection::steps>, kWarns,
     kOptional, kFromOneStep},
    {"run", "steps_per_job", "steps",
     "Largest number of steps of one start, which then saves and ends with exit code 75; 0: no "
     "limit.",
     run<&RunSection::steps_per_job>, kMayChange, kOptional, kFromZeroSteps},
    {"run", "log_interval_steps", "steps", "Write a metrics line every this many steps.",
     run<&RunSection::log_interval_steps>, kMayChange, kOptional, kFromOneStep},
    {"run", "digest_interval_steps", "steps",
     "Write digests of all tensors to the journal every this many steps (`actortrain replay`); 0: "
     "only at the end.",
     run<&RunSection::digest_interval_steps>, kMayChange, kOptional, kFromZeroSteps},
    {"run", "sample_prompt", "",
     "Prompt of the sample shown at the end; empty: the end-of-text token.",
     run<&RunSection::sample_prompt>, kMayChange},
    {"run", "sample_tokens", "tokens", "Length of the sample shown at the end; 0: no sample.",
     run<&RunSection::sample_tokens>, kMayChange, kOptional, between(0, 1e6)},
    {"run", "tensorboard", "", "Write TensorBoard event files.", run<&RunSection::tensorboard>,
     kMayChange},

    {"model", "arch", "",
     "Architecture with the dimensions of the keys below; `qwen3` is the old name of "
     "`dstar_qwen3`.",
     model<&ModelSection::arch>, kStays, kOptional, kNone, "enoki|dstar_qwen3|qwen3"},
    {"model", "config", "path",
     "Instead of `arch`: a shipped shape (`actortrain describe` lists them) or a config.json; "
     "fresh "
     "weights.",
     model<&ModelSection::config>, kStays},
    {"model", "from", "path",
     "Instead of `arch`: a directory with config.json and safetensors, whose weights training "
     "starts from.",
     model<&ModelSection::from>, kStays},
    {"model", "layers", "blocks",
     "Transformer blocks; 0: enoki 3/4 of `heads` (rounded down), qwen3 twice `heads`.",
     model<&ModelSection::layers>, kStays, kOptional, between(0, kManyBlocks)},
    {"model", "heads", "heads", "Attention heads.", model<&ModelSection::heads>, kStays, kOptional,
     between(1, 1024)},
    {"model", "head_dim", "channels", "Width of a head, even; 0: enoki 64, qwen3 128.",
     model<&ModelSection::head_dim>, kStays, kOptional, between(0, 1024)},
    {"model", "embedding_dim", "channels",
     "Width of the residual stream; 0: `heads` times `head_dim`.",
     model<&ModelSection::embedding_dim>, kStays, kOptional, between(0, 1 << 20)},
    {"model", "mlp_hidden", "channels",
     "Width of the MLP; 0: enoki 4 times, qwen3 3 times the residual stream.",
     model<&ModelSection::mlp_hidden>, kStays, kOptional, between(0, 1 << 22)},
    {"model", "vocab_size", "tokens",
     "Rows of embedding and head; 0: the data's vocabulary, padded to a multiple of 64.",
     model<&ModelSection::vocab_size>, kStays, kOptional, between(0, 1 << 24)},
    {"model", "init_scheme", "", "Weight initialisation.", model<&ModelSection::init_scheme>,
     kStays, kOptional, kNone, "scaled_gpt|karpathy_gpt2|standard"},
    {"model", "init_std", "", "Standard deviation of weights initialised by `karpathy_gpt2`.",
     model<&ModelSection::init_std>, kStays, kOptional, above(0, 10)},
    {"model", "z_loss_coeff", "",
     "Weight of the mean squared logsumexp of the logits in the loss; 0: off.",
     model<&ModelSection::z_loss_coeff>, kStays, kOptional, between(0, 1e3)},
    {"model", "norm_eps", "", "Epsilon of every norm.", model<&ModelSection::norm_eps>, kStays,
     kOptional, above(0, 1)},
    {"model", "rope_theta", "", "Base of the rotary frequencies.", model<&ModelSection::rope_theta>,
     kStays, kOptional, above(0, 1e12)},
    {"model", "residual_scale", "",
     "Factor of a block's output where it is added to the residual stream.",
     model<&ModelSection::residual_scale>, kStays, kOptional, above(0, 1e3)},
    {"model", "qk_norm", "", "Normalise queries and keys per head before the rotation.",
     model<&ModelSection::qk_norm>, kStays},
    {"model", "attention_output_gate", "", "qwen3: a sigmoid gate on the attention output.",
     model<&ModelSection::attention_output_gate>, kStays},
    {"model", "tie_embeddings", "",
     "The head shares the embedding's matrix, which is initialised as an embedding and not "
     "decayed.",
     model<&ModelSection::tie_embeddings>, kStays},

    {"data", "dir", "path",
     "Directory with `train*.bin` and `val.bin`, or of packed rows (`objective.name`).",
     data<&DataSection::dir>, kMayMove, kRequired},
    {"data", "forget_dir", "path", "sequential_unlearning: packed rows to forget.",
     data<&DataSection::forget_dir>, kMayMove},
    {"data", "sequence_length", "tokens", "Tokens per sequence.",
     data<&DataSection::sequence_length>, kStays, kOptional, between(2, 1 << 20)},
    {"data", "order", "",
     "Reading order of training data; `lanes`: a pure function of `run.seed`, step and lane; "
     "`dstar`: the order of the DSTAR trainer's reader with as many accumulation steps as lanes.",
     data<&DataSection::order>, kStays, kOptional, kNone, "lanes|dstar"},
    {"data", "seed", "", "dstar: seed of the reading order, the trainer's `data_seed`.",
     data<&DataSection::seed>, kStays, kOptional, between(0, kLargestSeed)},

    {"batch", "lanes", "lanes", "Microbatches per step, for any number of ranks.",
     batch<&BatchSection::lanes>, kStays, kOptional, between(1, 65536)},
    {"batch", "micro_batch", "sequences", "Sequences per lane.", batch<&BatchSection::micro_batch>,
     kStays, kOptional, between(1, 65536)},

    {"objective", "name", "",
     "Training objective; `pretrain`: next-token cross-entropy on plain token files; `sft`: "
     "cross-entropy on the trained targets of packed rows; `dpo`, `dpo_norm`, `simpo`, `wpo`, "
     "`orpo`: preference losses on packed pairs; `kto`: a loss on answers labelled desirable or "
     "undesirable; `sequential_unlearning`: forget one data set and retain another, layer by "
     "layer.",
     objective<&ObjectiveSection::name>, kStays, kOptional, kNone, kObjectiveNames},

    {"optimizer", "name", "", "Optimizer.", optimizer<&OptimizerSection::name>, kStays, kOptional,
     kNone, kOptimizerNames},
    {"optimizer", "lr", "", "Peak learning rate.", optimizer<&OptimizerSection::lr>, kStays,
     kOptional, above(0, 1e3)},
    {"optimizer", "beta1", "per step", "Decay of the first moment.",
     optimizer<&OptimizerSection::beta1>, kStays, kOptional, kBelowOne},
    {"optimizer", "beta2", "per step", "Decay of the second moment.",
     optimizer<&OptimizerSection::beta2>, kStays, kOptional, kBelowOne},
    {"optimizer", "eps", "", "Added to the root of the second moment.",
     optimizer<&OptimizerSection::eps>, kStays, kOptional, above(0, 1)},
    {"optimizer", "weight_decay", "per lr",
     "Decoupled weight decay of matrices; norms and the embedding are not decayed.",
     optimizer<&OptimizerSection::weight_decay>, kStays, kOptional, between(0, 1e3)},
    {"optimizer", "grad_clip", "", "Largest global gradient norm; 0: no clipping.",
     optimizer<&OptimizerSection::grad_clip>, kStays, kOptional, between(0, 1e9)},
    {"optimizer", "delta", "steps",
     "adana, dana-*: averages move by delta / (delta + t); ademamix*: see `beta3`.",
     optimizer<&OptimizerSection::delta>, kStays, kOptional, above(0, 1e9)},
    {"optimizer", "kappa", "",
     "adana, dana-*: the momentum is scaled by time^(1 - kappa); ademamix*: see `alpha`.",
     optimizer<&OptimizerSection::kappa>, kStays, kOptional, between(0, 2)},
    {"optimizer", "clipsnr", "",
     "dana-mk4, dana-star-mk4: clip of an element's scaled signal-to-noise ratio.",
     optimizer<&OptimizerSection::clipsnr>, kStays, kOptional, above(0, 1e9)},
    {"optimizer", "gamma_3_factor", "", "adana, dana-*, ademamix*: factor of the momentum term.",
     optimizer<&OptimizerSection::gamma_3_factor>, kStays, kOptional, between(0, 1e6)},
    {"optimizer", "wd_decaying", "",
     "adana, dana-*, *-decaying-wd: multiply weight decay by 1 / (1 + t / wd_ts).",
     optimizer<&OptimizerSection::wd_decaying>, kStays},
    {"optimizer", "wd_ts", "steps", "Time scale of the decaying weight decay.",
     optimizer<&OptimizerSection::wd_ts>, kStays, kOptional, above(0, kManySteps)},
    {"optimizer", "wd_coupling", "",
     "`lr_coupled`: decay × lr. `schedule_only`: decay × lr/peak_lr.",
     optimizer<&OptimizerSection::wd_coupling>, kStays, kOptional, kNone,
     "lr_coupled|schedule_only"},
    {"optimizer", "beta3", "per step",
     "ademamix*: decay of the slow average; 0: 1 - delta / run.steps.",
     optimizer<&OptimizerSection::beta3>, kStays, kOptional, kBelowOne},
    {"optimizer", "alpha", "", "ademamix*: weight of the slow average; 0: run.steps^(1 - kappa).",
     optimizer<&OptimizerSection::alpha>, kStays, kOptional, between(0, 1e6)},
    {"optimizer", "beta3_warmup", "steps",
     "ademamix*: steps over which the slow average's decay rises from `beta1` to `beta3`; 0: none.",
     optimizer<&OptimizerSection::beta3_warmup>, kStays, kOptional, kFromZeroSteps},
    {"optimizer", "alpha_warmup", "steps",
     "ademamix*: steps over which the slow average's weight rises from 0 to `alpha`; 0: none.",
     optimizer<&OptimizerSection::alpha_warmup>, kStays, kOptional, kFromZeroSteps},
    {"optimizer", "momentum", "per step", "muon, d-muon: momentum decay of matrices.",
     optimizer<&OptimizerSection::momentum>, kStays, kOptional, kBelowOne},
    {"optimizer", "nesterov", "", "muon, d-muon: use Nesterov momentum.",
     optimizer<&OptimizerSection::nesterov>, kStays},
    {"optimizer", "ns_steps", "iterations",
     "muon, d-muon: Newton-Schulz iterations of the orthogonalisation.",
     optimizer<&OptimizerSection::ns_steps>, kStays, kOptional, between(1, 100)},
    {"optimizer", "matched_rms", "per lr",
     "muon, d-muon: root mean square of a matrix's update (0.2 is about AdamW's).",
     optimizer<&OptimizerSection::matched_rms>, kStays, kOptional, above(0, 1e3)},

    {"schedule", "name", "",
     "Learning rate schedule: `cos` and `linear` one cycle, `cos_inf` a cosine to a floor, `wsd` "
     "constant, then a decay at the end, `constant` constant.",
     schedule<&ScheduleSection::name>, kStays, kOptional, kNone, "cos|linear|cos_inf|wsd|constant"},
    {"schedule", "warmup_steps", "steps",
     "Steps from the first learning rate to the peak; a value of `run.steps` or more is reduced to "
     "a tenth of those.",
     schedule<&ScheduleSection::warmup_steps>, kStays, kOptional, kFromZeroSteps},
    {"schedule", "div_factor", "", "First learning rate: peak / div_factor.",
     schedule<&ScheduleSection::div_factor>, kStays, kOptional, above(0, 1e12)},
    {"schedule", "final_div_factor", "",
     "cos, linear, cos_inf: last learning rate: first learning rate / final_div_factor.",
     schedule<&ScheduleSection::final_div_factor>, kStays, kOptional, above(0, 1e12)},
    {"schedule", "constant_tail_steps", "steps", "cos_inf: number of last steps at the floor.",
     schedule<&ScheduleSection::constant_tail_steps>, kStays, kOptional, kFromZeroSteps},
    {"schedule", "decay_fraction", "",
     "wsd: final fraction of `run.steps` (rounded down to a step) over which the learning rate "
     "decays.",
     schedule<&ScheduleSection::decay_fraction>, kStays, kOptional, between(0, 1)},
    {"schedule", "decay_shape", "", "wsd: shape of the decay.",
     schedule<&ScheduleSection::decay_shape>, kStays, kOptional, kNone,
     "linear|cosine|mirror_cosine|exp|square|sqrt"},
    {"schedule", "decay_floor", "", "wsd: last learning rate, as a fraction of the peak.",
     schedule<&ScheduleSection::decay_floor>, kStays, kOptional, between(0, 1)},

    {"scaling", "rule", "",
     "Rule that sets the model, `run.steps`, `optimizer.lr` and `optimizer.weight_decay` unless "
     "they are given: `none`, `enoki`, `qwen3`, or one of `table`.",
     scaling<&ScalingSection::rule>, kMayChange},
    {"scaling", "heads", "heads", "Attention heads, from which the rule derives the rest.",
     scaling<&ScalingSection::heads>, kMayChange, kOptional, between(0, 1024)},
    {"scaling", "params", "",
     "Weights counted by `tokens_per_parameter`: all, or those without embedding and head.",
     scaling<&ScalingSection::params>, kMayChange, kOptional, kNone, "total|non_embedding"},
    {"scaling", "tokens_per_parameter", "tokens", "Training tokens per such weight.",
     scaling<&ScalingSection::tokens_per_parameter>, kMayChange, kOptional, above(0, 1e9)},
    {"scaling", "omega", "",
     "Total weight decay of the run, independent of its length and learning rate.",
     scaling<&ScalingSection::omega>, kMayChange, kOptional, between(0, 1e6)},
    {"scaling", "table", "path", "File of scaling rules; empty: the shipped `scaling_rules.toml`.",
     scaling<&ScalingSection::table>, kMayChange},

    {"eval", "interval_steps", "steps", "Evaluate every this many steps and at the end; 0: never.",
     eval<&EvalSection::interval_steps>, kMayChange, kOptional, kFromZeroSteps},
    {"eval", "lanes", "lanes",
     "Lanes per evaluation, each of `batch.micro_batch` sequences: the first sequences of the "
     "validation data, each once.",
     eval<&EvalSection::lanes>, kMayChange, kOptional, between(1, 65536)},
    {"eval", "choices", "paths",
     "Files of multiple-choice questions (JSON lines or Parquet), scored by likelihood.",
     eval<&EvalSection::choices>, kMayChange},
    {"eval", "choices_interval_steps", "steps",
     "Score `eval.choices` every this many steps and at the end; 0: every `eval.interval_steps`.",
     eval<&EvalSection::choices_interval_steps>, kMayChange, kOptional, kFromZeroSteps},

    {"checkpoint", "interval_steps", "steps",
     "Save every this many steps and at the end; 0: only at the end.",
     checkpoint<&CheckpointSection::interval_steps>, kMayChange, kOptional, kFromZeroSteps},
    {"checkpoint", "keep_last", "checkpoints", "Keep this many newest checkpoints; 0: all.",
     checkpoint<&CheckpointSection::keep_last>, kMayChange, kOptional, between(0, 1e6)},
    {"checkpoint", "keep_every", "steps",
     "Also keep every checkpoint whose step is a multiple of this; 0: off.",
     checkpoint<&CheckpointSection::keep_every>, kMayChange, kOptional, kFromZeroSteps},
    {"checkpoint", "keep_best", "checkpoints",
     "Also keep this many with the lowest validation loss; 0: off. Needs `eval.interval_steps` to "
     "divide `interval_steps`.",
     checkpoint<&CheckpointSection::keep_best>, kMayChange, kOptional, between(0, 1e6)},
    {"checkpoint", "local_dir", "path",
     "Fast local directory of each node: checkpoints are written there, then copied to the run's "
     "directory; `auto`: $SLURM_TMPDIR if set; `none`: straight to the run's directory.",
     checkpoint<&CheckpointSection::local_dir>, kMayChange},
    {"checkpoint", "drain_s", "seconds",
     "After the last step, wait this long for the last checkpoint to reach the run's directory.",
     checkpoint<&CheckpointSection::drain_s>, kMayChange, kOptional, between(0, 1e6)},

    {"recovery", "rank_loss", "",
     "Reaction to a lost rank process (killed, cut off, silent): `respawn`: start all ranks again "
     "and resume from the newest snapshot or checkpoint, in the same job; `stop`: end the run.",
     recovery<&RecoverySection::rank_loss>, kMayChange, kOptional, kNone, "respawn|stop"},
    {"recovery", "max_respawns", "starts",
     "Largest number of consecutive respawns without progress; then the run continues with fewer "
     "ranks, or ends if it is one of several nodes. A job of `submit` restarts the killed launcher "
     "of a node other than the first as often.",
     recovery<&RecoverySection::max_respawns>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "start_wait_s", "seconds",
     "At the start of a job of several nodes, wait this long for all launchers; then end the run "
     "with exit code 75.",
     recovery<&RecoverySection::start_wait_s>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "node_wait_s", "seconds",
     "Wait this long for a node that is cut off or lost; then continue without it until it "
     "returns, or end the run with exit code 75 if the other nodes are too few for its strategy.",
     recovery<&RecoverySection::node_wait_s>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "snapshot_interval_steps", "steps",
     "Interval at which every rank copies its shard of the state into its node's memory, where it "
     "survives the process (2 or more): respawned ranks resume from there. 0: only from "
     "checkpoints. No effect if ranks share the launcher's process.",
     recovery<&RecoverySection::snapshot_interval_steps>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "buddy_snapshots", "",
     "With several nodes: also copy each node's snapshots into the next node's memory, so that the "
     "run resumes from there when a node is lost with its memory, whether the node is restarted or "
     "left out. Takes the same memory again.",
     recovery<&RecoverySection::buddy_snapshots>, kMayChange},

    {"watchdog", "stall_s", "seconds",
     "Report which actor waits for which after this long without progress; 0: never.",
     watchdog<&WatchdogSection::stall_s>, kMayChange, kOptional, between(0, 1e6)},
    {"watchdog", "abort_after_s", "seconds",
     "Stall that ends the run, with exit code 1 and a line that says which actor waited for which; "
     "0: never. No effect with `watchdog.stall_s` = 0.",
     watchdog<&WatchdogSection::abort_after_s>, kMayChange, kOptional, between(0, 1e6)},

    {"status", "listen", "",
     "Address and port of the run's status page and API, for example `127.0.0.1:8080`; port 0: any "
     "free port; empty: off.",
     status<&StatusSection::listen>, kMayChange},
    {"status", "token_file", "path",
     "File whose first line is the access token, passed as `?token=` in the address; required "
     "unless `status.listen` is a loopback address. Only its owner may have read permission.",
     status<&StatusSection::token_file>, kMayChange},

    {"parallel", "ranks", "ranks", "Number of ranks, at most `batch.lanes`.",
     parallel<&ParallelSection::ranks>, kMayChange, kOptional, between(1, kManyRanks)},
    {"parallel", "strategy", "",
     "State sharded across ranks: none, optimizer state, also gradients, also weights (`full`), or "
     "all of it within groups of ranks (`hybrid`).",
     parallel<&ParallelSection::strategy>, kMayChange, kOptional, kNone, kStrategies},
    {"parallel", "group", "ranks",
     "hybrid: ranks per sharding group, which holds one copy of the weights; divides `ranks`; 0 "
     "with any other strategy.",
     parallel<&ParallelSection::group>, kMayChange, kOptional, between(0, kManyRanks)},
    {"parallel", "reshard", "ranks",
     "Gathered weights after the forward pass: kept to the end of the step, freed, or resharded "
     "over this many ranks.",
     parallel<&ParallelSection::reshard>, kMayChange, kOptional, between(2, kManyRanks),
     "never|after_forward", kOrInteger},
    {"parallel", "wrapping", "",
     "Units gathered and reduced together: `per_block`, `by_size` (neighbours, up to "
     "`wrap_min_parameters`), or patterns of unit names: each matching unit alone, the others "
     "together.",
     parallel<&ParallelSection::wrapping>, kMayChange},
    {"parallel", "wrap_min_parameters", "weights",
     "by_size: neighbouring units are merged until they have this many weights.",
     parallel<&ParallelSection::wrap_min_parameters>, kMayChange, kOptional, between(1, 1e12)},
    {"parallel", "strategy_by_unit", "",
     "Overrides \"pattern = strategy\" for parts of the model; the first pattern that matches a "
     "unit's name applies.",
     parallel<&ParallelSection::strategy_by_unit>, kMayChange},
    {"parallel", "gather_credits", "groups",
     "Largest number of groups whose weights are gathered at a time.",
     parallel<&ParallelSection::gather_credits>, kMayChange, kOptional, between(1, kManyBlocks)},
    {"parallel", "prefetch_forward", "groups", "Groups prefetched in the forward pass.",
     parallel<&ParallelSection::prefetch_forward>, kMayChange, kOptional, between(0, kManyBlocks)},
    {"parallel", "prefetch_backward", "groups", "Groups prefetched in the backward pass.",
     parallel<&ParallelSection::prefetch_backward>, kMayChange, kOptional, between(0, kManyBlocks)},
    {"parallel", "sync", "lanes",
     "When gradients are reduced: after every lane, after a rank's last lane, or after every this "
     "many; `auto`: after every lane if the strategy shards gradients, otherwise after the last.",
     parallel<&ParallelSection::sync>, kMayChange, kOptional, between(1, 65536),
     "auto|every_lane|last_lane", kOrInteger},
    {"parallel", "transport", "",
     "Transport between ranks: `tcp`: one process per rank; `nccl`: one process and CUDA device "
     "per rank, from device to device; `auto`: `nccl` on `cuda`, otherwise `tcp`; `inproc`: all "
     "ranks in one process. `gloo` is the old name of `tcp`.",
     parallel<&ParallelSection::transport>, kMayChange, kOptional, kNone,
     "auto|tcp|nccl|inproc|gloo"},
    {"parallel", "nodes", "nodes", "Number of nodes, which share the ranks evenly.",
     parallel<&ParallelSection::nodes>, kMayChange, kOptional, between(1, kManyRanks)},
    {"parallel", "interface", "",
     "Network interface for traffic between ranks; empty: the loopback.",
     parallel<&ParallelSection::interface>, kMayChange},
    {"parallel", "port", "", "TCP port of the control connection; 0: any free port.",
     parallel<&ParallelSection::port>, kMayChange, kOptional, between(0, 65535)},

    {"precision", "master", "", "Type of the master weights and the optimizer state.",
     precision<&PrecisionSection::master>, kStays, kOptional, kNone, "fp32"},
    {"precision", "compute", "",
     "Type of the weights that are gathered and computed with; on `cuda` also of activations; on "
     "`cpu` of the inputs of matrix products, if the processor has AVX512_BF16.",
     precision<&PrecisionSection::compute>, kStays, kOptional, kNone, "fp32|bf16"},
    {"precision", "reduce", "",
     "Type of gradients in reductions between ranks; with `bf16` results depend on the number of "
     "ranks.",
     precision<&PrecisionSection::reduce>, kStays, kOptional, kNone, "fp32|bf16"},
    {"precision", "determinism", "",
     "Bitwise reproducibility: at any number of ranks (`world`), or only at the same number "
     "(`run`, fewer buffers).",
     precision<&PrecisionSection::determinism>, kStays, kOptional, kNone, "world|run"},

    {"memory", "activation_checkpointing", "blocks",
     "Blocks that store less and recompute it in the backward pass: none, all, or every N-th.",
     memory<&MemorySection::activation_checkpointing>, kMayChange, kOptional,
     between(1, kManyBlocks), "none|all", kOrInteger},
    {"memory", "checkpointed_part", "",
     "Part of each checkpointed block that is recomputed in backward: everything after its input "
     "(`block`), the attention, or the MLP.",
     memory<&MemorySection::checkpointed_part>, kMayChange, kOptional, kNone,
     "block|attention|mlp"},
    {"memory", "offload", "",
     "State kept in host memory while `cuda` computes: the optimizer state, or (`parameters`) also "
     "the master weights and weight shards.",
     memory<&MemorySection::offload>, kMayChange, kOptional, kNone, "none|optimizer|parameters"},
    {"memory", "bf16_weights", "",
     "Source of the bf16 weights that `cuda` computes with: kept for all layers, or cast from a "
     "layer's fp32 weights at each use, which saves two bytes per weight for a few percent of the "
     "time. The results are the same.",
     memory<&MemorySection::bf16_weights>, kMayChange, kOptional, kNone, "kept|made"},

    {"train", "freeze", "", "Patterns of parameter or unit names to freeze.",
     train<&TrainSection::freeze>, kStays},
    {"train", "ema", "",
     "Decay of an exponential moving average of the trained weights: after each update it becomes "
     "ema x itself + (1 - ema) x the weights; 0: none.",
     train<&TrainSection::ema>, kStays, kOptional, kBelowOne},
    {"train", "ema_warmup", "",
     "Limit the decay to (1 + t) / (10 + t) after update t, so that early weights are forgotten.",
     train<&TrainSection::ema_warmup>, kStays},

    {"lora", "rank", "",
     "Rank of the LoRA adapters that are trained instead of the model's weights; 0: no adapters.",
     lora<&LoraSection::rank>, kStays, kOptional, between(0, 65536)},
    {"lora", "alpha", "", "Scales the adapters' output by alpha / rank.", lora<&LoraSection::alpha>,
     kStays, kOptional, above(0, 1e6)},
    {"lora", "rslora", "", "Scale by alpha / sqrt(rank) instead (rsLoRA).",
     lora<&LoraSection::rslora>, kStays},
    {"lora", "targets", "",
     "Linear layers with adapters: `all-linear`, or patterns of their names or of the last parts "
     "of their names (`q_proj`).",
     lora<&LoraSection::targets>, kStays},
    {"lora", "dropout", "", "Dropout on the adapters' input; only 0 is supported.",
     lora<&LoraSection::dropout>, kStays, kOptional, between(0.0, 1.0)},

    {"runtime", "threads", "threads",
     "Compute threads per rank; 0: every core this process may use.",
     runtime<&RuntimeSection::threads>, kMayChange, kOptional, between(0, 4096)},
    {"runtime", "device", "", "Compute device; `cuda` if build and machine have it.",
     runtime<&RuntimeSection::device>, kMayChange, kOptional, kNone, "cpu|cuda"},
});

}  // namespace

std::span<const Field> all_fields() {
  static constexpr auto kAll = with_fields(kFields, kObjectiveFields);
  return kAll;
}

}  // namespace train::configs
