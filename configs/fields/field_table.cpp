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
// TOML's integers are signed, so the upper half of a 64-bit seed cannot be written in a file.
// The largest double below 2^63.
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
     "One start does at most so many steps, saves and ends with exit code 75; 0: all that are "
     "left.",
     run<&RunSection::steps_per_job>, kMayChange, kOptional, kFromZeroSteps},
    {"run", "log_interval_steps", "steps", "A metrics line every this many steps.",
     run<&RunSection::log_interval_steps>, kMayChange, kOptional, kFromOneStep},
    {"run", "digest_interval_steps", "steps",
     "Digests of all tensors every this many steps, in the journal (`actortrain replay`); 0: only "
     "at the end.",
     run<&RunSection::digest_interval_steps>, kMayChange, kOptional, kFromZeroSteps},
    {"run", "sample_prompt", "",
     "Prompt of the sample shown at the end; empty: the end-of-text token.",
     run<&RunSection::sample_prompt>, kMayChange},
    {"run", "sample_tokens", "tokens", "Length of the sample shown at the end; 0: no sample.",
     run<&RunSection::sample_tokens>, kMayChange, kOptional, between(0, 1e6)},
    {"run", "tensorboard", "", "Write TensorBoard event files.", run<&RunSection::tensorboard>,
     kMayChange},

    {"model", "arch", "",
     "Architecture whose dimensions the keys below give; `qwen3` is the old name of `dstar_qwen3`.",
     model<&ModelSection::arch>, kStays, kOptional, kNone, "enoki|dstar_qwen3|qwen3"},
    {"model", "config", "path",
     "Instead of `arch`: a shipped shape (`actortrain describe` lists them) or a config.json; "
     "fresh "
     "weights.",
     model<&ModelSection::config>, kStays},
    {"model", "from", "path",
     "Instead of `arch`: a directory with config.json and safetensors, whose weights are where "
     "training starts.",
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
    {"model", "init_scheme", "", "How weights are first drawn.", model<&ModelSection::init_scheme>,
     kStays, kOptional, kNone, "scaled_gpt|karpathy_gpt2|standard"},
    {"model", "init_std", "", "Standard deviation of weights under `karpathy_gpt2`.",
     model<&ModelSection::init_std>, kStays, kOptional, above(0, 10)},
    {"model", "z_loss_coeff", "",
     "Weight of the mean squared logsumexp of the logits in the loss; 0: off.",
     model<&ModelSection::z_loss_coeff>, kStays, kOptional, between(0, 1e3)},
    {"model", "norm_eps", "", "Epsilon of every norm.", model<&ModelSection::norm_eps>, kStays,
     kOptional, above(0, 1)},
    {"model", "rope_theta", "", "Base of the rotary frequencies.", model<&ModelSection::rope_theta>,
     kStays, kOptional, above(0, 1e12)},
    {"model", "residual_scale", "", "Factor of a block's output where it joins the stream.",
     model<&ModelSection::residual_scale>, kStays, kOptional, above(0, 1e3)},
    {"model", "qk_norm", "", "Normalise queries and keys per head before the rotation.",
     model<&ModelSection::qk_norm>, kStays},
    {"model", "attention_output_gate", "", "qwen3: a sigmoid gate on the attention output.",
     model<&ModelSection::attention_output_gate>, kStays},
    {"model", "tie_embeddings", "",
     "The head uses the embedding's matrix, which is drawn as an embedding and not decayed.",
     model<&ModelSection::tie_embeddings>, kStays},

    {"data", "dir", "path",
     "Directory with `train*.bin` and `val.bin`, or of packed rows (`objective.name`).",
     data<&DataSection::dir>, kMayMove, kRequired},
    {"data", "forget_dir", "path", "sequential_unlearning: packed rows of what is forgotten.",
     data<&DataSection::forget_dir>, kMayMove},
    {"data", "sequence_length", "tokens", "Tokens of a sequence.",
     data<&DataSection::sequence_length>, kStays, kOptional, between(2, 1 << 20)},
    {"data", "order", "",
     "Reading order of training data; `lanes`: a pure function of `run.seed`, step and lane; "
     "`dstar`: that of the DSTAR trainer's reader with as many accumulation steps as lanes.",
     data<&DataSection::order>, kStays, kOptional, kNone, "lanes|dstar"},
    {"data", "seed", "", "dstar: seed of the reading order, the trainer's `data_seed`.",
     data<&DataSection::seed>, kStays, kOptional, between(0, kLargestSeed)},

    {"batch", "lanes", "lanes", "Microbatches of a step, whatever the number of ranks.",
     batch<&BatchSection::lanes>, kStays, kOptional, between(1, 65536)},
    {"batch", "micro_batch", "sequences", "Sequences of a lane.", batch<&BatchSection::micro_batch>,
     kStays, kOptional, between(1, 65536)},

    {"objective", "name", "",
     "What is minimised; `pretrain`: the next token of plain token files; `sft`: the trained "
     "targets of packed rows; `dpo`, `dpo_norm`, `simpo`, `wpo`, `orpo`: a loss of packed pairs; "
     "`kto`: of answers that are each wanted or not; "
     "`sequential_unlearning`: what is forgotten, and what is retained, layer by layer.",
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
     "Decoupled decay of matrices; norms and the embedding are not decayed.",
     optimizer<&OptimizerSection::weight_decay>, kStays, kOptional, between(0, 1e3)},
    {"optimizer", "grad_clip", "", "Largest norm of the whole gradient; 0: no clipping.",
     optimizer<&OptimizerSection::grad_clip>, kStays, kOptional, between(0, 1e9)},
    {"optimizer", "delta", "steps",
     "adana, dana-*: averages move by delta / (delta + t); ademamix*: see `beta3`.",
     optimizer<&OptimizerSection::delta>, kStays, kOptional, above(0, 1e9)},
    {"optimizer", "kappa", "",
     "adana, dana-*: the momentum is scaled by time^(1 - kappa); ademamix*: see `alpha`.",
     optimizer<&OptimizerSection::kappa>, kStays, kOptional, between(0, 2)},
    {"optimizer", "clipsnr", "",
     "dana-mk4, dana-star-mk4: largest value of the scaled signal-to-noise ratio of an element.",
     optimizer<&OptimizerSection::clipsnr>, kStays, kOptional, above(0, 1e9)},
    {"optimizer", "gamma_3_factor", "",
     "adana, dana-*, ademamix*: multiplies the part of the momentum.",
     optimizer<&OptimizerSection::gamma_3_factor>, kStays, kOptional, between(0, 1e6)},
    {"optimizer", "wd_decaying", "",
     "adana, dana-*, *-decaying-wd: weight decay falls with 1 / (1 + t / wd_ts).",
     optimizer<&OptimizerSection::wd_decaying>, kStays},
    {"optimizer", "wd_ts", "steps", "Time scale of a falling weight decay.",
     optimizer<&OptimizerSection::wd_ts>, kStays, kOptional, above(0, kManySteps)},
    {"optimizer", "wd_coupling", "",
     "What those multiply `weight_decay` with: the learning rate, or its share of the peak.",
     optimizer<&OptimizerSection::wd_coupling>, kStays, kOptional, kNone,
     "lr_coupled|schedule_only"},
    {"optimizer", "beta3", "per step",
     "ademamix*: decay of the slow average; 0: 1 - delta / run.steps.",
     optimizer<&OptimizerSection::beta3>, kStays, kOptional, kBelowOne},
    {"optimizer", "alpha", "", "ademamix*: weight of the slow average; 0: run.steps^(1 - kappa).",
     optimizer<&OptimizerSection::alpha>, kStays, kOptional, between(0, 1e6)},
    {"optimizer", "beta3_warmup", "steps",
     "ademamix*: steps in which the slow average slows down from `beta1` to `beta3`; 0: none.",
     optimizer<&OptimizerSection::beta3_warmup>, kStays, kOptional, kFromZeroSteps},
    {"optimizer", "alpha_warmup", "steps",
     "ademamix*: steps in which its weight rises to `alpha`; 0: none.",
     optimizer<&OptimizerSection::alpha_warmup>, kStays, kOptional, kFromZeroSteps},
    {"optimizer", "momentum", "per step", "muon, d-muon: decay of the momentum of matrices.",
     optimizer<&OptimizerSection::momentum>, kStays, kOptional, kBelowOne},
    {"optimizer", "nesterov", "", "muon, d-muon: look one step ahead of the momentum.",
     optimizer<&OptimizerSection::nesterov>, kStays},
    {"optimizer", "ns_steps", "iterations",
     "muon, d-muon: Newton-Schulz iterations of the orthogonalisation.",
     optimizer<&OptimizerSection::ns_steps>, kStays, kOptional, between(1, 100)},
    {"optimizer", "matched_rms", "per lr",
     "muon, d-muon: root mean square of a matrix's update (0.2: about AdamW's).",
     optimizer<&OptimizerSection::matched_rms>, kStays, kOptional, above(0, 1e3)},

    {"schedule", "name", "",
     "Learning rate over the steps: `cos` and `linear` one cycle, `cos_inf` a cosine to a floor, "
     "`wsd` flat, then a decay at the end, `constant` flat.",
     schedule<&ScheduleSection::name>, kStays, kOptional, kNone, "cos|linear|cos_inf|wsd|constant"},
    {"schedule", "warmup_steps", "steps",
     "Steps from the first learning rate to the peak; as many as `run.steps` or more: a tenth of "
     "those.",
     schedule<&ScheduleSection::warmup_steps>, kStays, kOptional, kFromZeroSteps},
    {"schedule", "div_factor", "", "The first learning rate is the peak divided by this.",
     schedule<&ScheduleSection::div_factor>, kStays, kOptional, above(0, 1e12)},
    {"schedule", "final_div_factor", "",
     "cos, linear, cos_inf: the last learning rate is the first one divided by this.",
     schedule<&ScheduleSection::final_div_factor>, kStays, kOptional, above(0, 1e12)},
    {"schedule", "constant_tail_steps", "steps", "cos_inf: last steps, spent at the floor.",
     schedule<&ScheduleSection::constant_tail_steps>, kStays, kOptional, kFromZeroSteps},
    {"schedule", "decay_fraction", "",
     "wsd: share of `run.steps` (rounded down to a step) in which the learning rate falls at the "
     "end.",
     schedule<&ScheduleSection::decay_fraction>, kStays, kOptional, between(0, 1)},
    {"schedule", "decay_shape", "", "wsd: how the learning rate falls.",
     schedule<&ScheduleSection::decay_shape>, kStays, kOptional, kNone,
     "linear|cosine|mirror_cosine|exp|square|sqrt"},
    {"schedule", "decay_floor", "", "wsd: the learning rate falls to the peak times this.",
     schedule<&ScheduleSection::decay_floor>, kStays, kOptional, between(0, 1)},

    {"scaling", "rule", "",
     "Rule that decides the model, `run.steps`, `optimizer.lr` and `optimizer.weight_decay`, as "
     "far "
     "as they are not set: `none`, `enoki`, `qwen3`, or one of `table`.",
     scaling<&ScalingSection::rule>, kMayChange},
    {"scaling", "heads", "heads", "Attention heads that the rule begins with.",
     scaling<&ScalingSection::heads>, kMayChange, kOptional, between(0, 1024)},
    {"scaling", "params", "",
     "Weights that `tokens_per_parameter` counts: all, or those without embedding and head.",
     scaling<&ScalingSection::params>, kMayChange, kOptional, kNone, "total|non_embedding"},
    {"scaling", "tokens_per_parameter", "tokens", "Tokens of the run for each of those weights.",
     scaling<&ScalingSection::tokens_per_parameter>, kMayChange, kOptional, above(0, 1e9)},
    {"scaling", "omega", "", "Weight decay of the run as a whole, whatever its length and rate.",
     scaling<&ScalingSection::omega>, kMayChange, kOptional, between(0, 1e6)},
    {"scaling", "table", "path", "File of scaling rules; empty: the shipped `scaling_rules.toml`.",
     scaling<&ScalingSection::table>, kMayChange},

    {"eval", "interval_steps", "steps", "Evaluate every this many steps and at the end; 0: never.",
     eval<&EvalSection::interval_steps>, kMayChange, kOptional, kFromZeroSteps},
    {"eval", "lanes", "lanes",
     "Lanes of an evaluation, each of `batch.micro_batch` sequences: the first ones of the "
     "validation data, each once.",
     eval<&EvalSection::lanes>, kMayChange, kOptional, between(1, 65536)},
    {"eval", "choices", "paths",
     "Files of multiple-choice questions (JSON lines or Parquet) that are answered by likelihood.",
     eval<&EvalSection::choices>, kMayChange},
    {"eval", "choices_interval_steps", "steps",
     "Answer `eval.choices` every this many steps and at the end; 0: every `eval.interval_steps`.",
     eval<&EvalSection::choices_interval_steps>, kMayChange, kOptional, kFromZeroSteps},

    {"checkpoint", "interval_steps", "steps",
     "Save every this many steps and at the end; 0: only at the end.",
     checkpoint<&CheckpointSection::interval_steps>, kMayChange, kOptional, kFromZeroSteps},
    {"checkpoint", "keep_last", "checkpoints", "Keep the newest this many; 0: keep all.",
     checkpoint<&CheckpointSection::keep_last>, kMayChange, kOptional, between(0, 1e6)},
    {"checkpoint", "keep_every", "steps",
     "Also keep every checkpoint whose step is a multiple of this; 0: off.",
     checkpoint<&CheckpointSection::keep_every>, kMayChange, kOptional, kFromZeroSteps},
    {"checkpoint", "keep_best", "checkpoints",
     "Also keep this many with the lowest validation loss; 0: off. Needs `eval.interval_steps` to "
     "divide `interval_steps`.",
     checkpoint<&CheckpointSection::keep_best>, kMayChange, kOptional, between(0, 1e6)},
    {"checkpoint", "local_dir", "path",
     "Fast directory of each node that checkpoints are written to before they are copied to the "
     "run's directory; `auto`: $SLURM_TMPDIR where it is set; `none`: straight to the run's "
     "directory.",
     checkpoint<&CheckpointSection::local_dir>, kMayChange},
    {"checkpoint", "drain_s", "seconds",
     "When training has ended, wait this long for the last checkpoint to reach the run's "
     "directory.",
     checkpoint<&CheckpointSection::drain_s>, kMayChange, kOptional, between(0, 1e6)},

    {"recovery", "rank_loss", "",
     "When the process of a rank is lost (killed, cut off, silent): start all ranks again and "
     "resume from the newest snapshot or checkpoint, in the same job; or end the run.",
     recovery<&RecoverySection::rank_loss>, kMayChange, kOptional, kNone, "respawn|stop"},
    {"recovery", "max_respawns", "starts",
     "Starts in a row that may be lost without progress; then the run continues with fewer ranks, "
     "or ends if it is one of several nodes. As often a job of `submit` starts the launcher of a "
     "node other than the first again when it is killed.",
     recovery<&RecoverySection::max_respawns>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "start_wait_s", "seconds",
     "When a job of several nodes begins, wait this long for the launchers of all of them; then "
     "the run ends with exit code 75.",
     recovery<&RecoverySection::start_wait_s>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "node_wait_s", "seconds",
     "When a node is cut off or lost, wait this long for it to come back; then the other nodes "
     "continue without it until it does, or the run ends with exit code 75 where they are too few "
     "for its strategy.",
     recovery<&RecoverySection::node_wait_s>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "snapshot_interval_steps", "steps",
     "Every rank copies its shard of the state this often (2 or more) into memory of its node that "
     "outlives its process: ranks that are started again resume from there. 0: only from "
     "checkpoints. No effect where ranks share the launcher's process.",
     recovery<&RecoverySection::snapshot_interval_steps>, kMayChange, kOptional, between(0, 1e6)},
    {"recovery", "buddy_snapshots", "",
     "On several nodes, keep each node's snapshots in memory also on the next node, so that the "
     "run resumes from there when a node is lost with its memory, with the node started again or "
     "without it. Takes as much memory again.",
     recovery<&RecoverySection::buddy_snapshots>, kMayChange},

    {"watchdog", "stall_s", "seconds",
     "When nothing has moved for so long, say who waits for whom; 0: never.",
     watchdog<&WatchdogSection::stall_s>, kMayChange, kOptional, between(0, 1e6)},
    {"watchdog", "abort_after_s", "seconds",
     "A stall that lasts so long ends the run, with exit code 1 and a line that says who waited "
     "for whom; 0: never. No effect with `watchdog.stall_s` = 0.",
     watchdog<&WatchdogSection::abort_after_s>, kMayChange, kOptional, between(0, 1e6)},

    {"status", "listen", "",
     "Address and port at which browsers and programs can watch the run, for example "
     "`127.0.0.1:8080`; port 0 is any that is free; empty: nowhere.",
     status<&StatusSection::listen>, kMayChange},
    {"status", "token_file", "path",
     "File whose first line a browser must know, as `?token=` of the address; needed where "
     "`status.listen` is no loopback address. Only its owner may read it.",
     status<&StatusSection::token_file>, kMayChange},

    {"parallel", "ranks", "ranks", "Ranks of the run, at most `batch.lanes`.",
     parallel<&ParallelSection::ranks>, kMayChange, kOptional, between(1, kManyRanks)},
    {"parallel", "strategy", "",
     "What ranks shard: nothing, the optimizer's state, gradients too, weights too, or all that "
     "within groups of ranks.",
     parallel<&ParallelSection::strategy>, kMayChange, kOptional, kNone, kStrategies},
    {"parallel", "group", "ranks",
     "hybrid: ranks that share one copy of the weights, a divisor of "
     "`ranks`; 0 with any other strategy.",
     parallel<&ParallelSection::group>, kMayChange, kOptional, between(0, kManyRanks)},
    {"parallel", "reshard", "ranks",
     "Gathered weights after the forward pass: kept to the end of the step, freed, or kept split "
     "over so many ranks.",
     parallel<&ParallelSection::reshard>, kMayChange, kOptional, between(2, kManyRanks),
     "never|after_forward", kOrInteger},
    {"parallel", "wrapping", "",
     "What is gathered and reduced as one: `per_block`, `by_size` (neighbours, up to "
     "`wrap_min_parameters`), or patterns of unit names: each matching unit alone, the others "
     "together.",
     parallel<&ParallelSection::wrapping>, kMayChange},
    {"parallel", "wrap_min_parameters", "weights",
     "by_size: neighbouring units are joined until they have this many.",
     parallel<&ParallelSection::wrap_min_parameters>, kMayChange, kOptional, between(1, 1e12)},
    {"parallel", "strategy_by_unit", "",
     "Texts \"pattern = strategy\" for parts of the model; the first that matches a unit's name "
     "wins.",
     parallel<&ParallelSection::strategy_by_unit>, kMayChange},
    {"parallel", "gather_credits", "groups", "Groups whose weights are gathered at a time.",
     parallel<&ParallelSection::gather_credits>, kMayChange, kOptional, between(1, kManyBlocks)},
    {"parallel", "prefetch_forward", "groups", "Groups gathered ahead in the forward pass.",
     parallel<&ParallelSection::prefetch_forward>, kMayChange, kOptional, between(0, kManyBlocks)},
    {"parallel", "prefetch_backward", "groups", "Groups gathered ahead in the backward pass.",
     parallel<&ParallelSection::prefetch_backward>, kMayChange, kOptional, between(0, kManyBlocks)},
    {"parallel", "sync", "lanes",
     "Gradients are sent after every lane, after a rank's last one, or after every so many; "
     "`auto`: after every lane where a strategy splits gradients, else after the last.",
     parallel<&ParallelSection::sync>, kMayChange, kOptional, between(1, 65536),
     "auto|every_lane|last_lane", kOrInteger},
    {"parallel", "transport", "",
     "How bytes travel between ranks: `tcp` between processes, one for each rank; `nccl` the "
     "same, "
     "each rank with a CUDA device of its own, from device to device; `auto`: `nccl` on `cuda`, "
     "else "
     "`tcp`; `inproc` with all ranks in one process. `gloo` is the old name of `tcp`.",
     parallel<&ParallelSection::transport>, kMayChange, kOptional, kNone,
     "auto|tcp|nccl|inproc|gloo"},
    {"parallel", "nodes", "nodes", "Machines that the ranks are divided among evenly.",
     parallel<&ParallelSection::nodes>, kMayChange, kOptional, between(1, kManyRanks)},
    {"parallel", "interface", "", "Network interface that ranks talk over; empty: the loopback.",
     parallel<&ParallelSection::interface>, kMayChange},
    {"parallel", "port", "", "TCP port where the run's ranks report; 0: any that is free.",
     parallel<&ParallelSection::port>, kMayChange, kOptional, between(0, 65535)},

    {"precision", "master", "", "Weights that the optimizer updates, and its state.",
     precision<&PrecisionSection::master>, kStays, kOptional, kNone, "fp32"},
    {"precision", "compute", "",
     "Weights as layers read them, and as they are gathered; on `cuda` activations too, on `cpu` "
     "what matrix products read, where it has AVX512_BF16.",
     precision<&PrecisionSection::compute>, kStays, kOptional, kNone, "fp32|bf16"},
    {"precision", "reduce", "",
     "Gradients on their way between ranks; with `bf16` results depend on the number of ranks.",
     precision<&PrecisionSection::reduce>, kStays, kOptional, kNone, "fp32|bf16"},
    {"precision", "determinism", "",
     "Same bits at any number of ranks (`world`), or at this one alone (`run`, fewer buffers).",
     precision<&PrecisionSection::determinism>, kStays, kOptional, kNone, "world|run"},

    {"memory", "activation_checkpointing", "blocks",
     "Blocks that keep less and compute it again in the backward pass: none, all, or one in so "
     "many.",
     memory<&MemorySection::activation_checkpointing>, kMayChange, kOptional,
     between(1, kManyBlocks), "none|all", kOrInteger},
    {"memory", "checkpointed_part", "",
     "What those compute again: all but their input (`block`), the attention, or the MLP alone.",
     memory<&MemorySection::checkpointed_part>, kMayChange, kOptional, kNone,
     "block|attention|mlp"},
    {"memory", "offload", "",
     "What lies in the host's memory while `cuda` computes: optimizer state, or `parameters`: "
     "that, "
     "the masters and shards of weights.",
     memory<&MemorySection::offload>, kMayChange, kOptional, kNone, "none|optimizer|parameters"},
    {"memory", "bf16_weights", "",
     "The bf16 weights that `cuda` computes with: kept of all layers, or cast from a layer's fp32 "
     "weights whenever it is computed, which saves two bytes a weight for a few percent of the "
     "time. The results are the same.",
     memory<&MemorySection::bf16_weights>, kMayChange, kOptional, kNone, "kept|made"},

    {"train", "freeze", "", "Patterns of parameter or unit names whose weights do not change.",
     train<&TrainSection::freeze>, kStays},
    {"train", "ema", "",
     "Keep a running average of the trained weights, which after each update is ema x itself + "
     "(1 - ema) x the weights; 0: none.",
     train<&TrainSection::ema>, kStays, kOptional, kBelowOne},
    {"train", "ema_warmup", "",
     "Use at most (1 + t) / (10 + t) after update t, so that the average forgets its begin.",
     train<&TrainSection::ema_warmup>, kStays},

    {"lora", "rank", "",
     "Inner dimension of the adapters that are trained in the place of the model's weights; 0: "
     "there are none.",
     lora<&LoraSection::rank>, kStays, kOptional, between(0, 65536)},
    {"lora", "alpha", "", "What adapters add is multiplied by alpha / rank.",
     lora<&LoraSection::alpha>, kStays, kOptional, above(0, 1e6)},
    {"lora", "rslora", "", "Multiply by alpha / sqrt(rank) instead.", lora<&LoraSection::rslora>,
     kStays},
    {"lora", "targets", "",
     "Linear maps of the layers that get one: `all-linear`, or patterns of their names or of the "
     "ends of those behind a dot (`q_proj`).",
     lora<&LoraSection::targets>, kStays},
    {"lora", "dropout", "", "Of the adapters' input; 0 alone is supported.",
     lora<&LoraSection::dropout>, kStays, kOptional, between(0.0, 1.0)},

    {"runtime", "threads", "threads",
     "Compute threads of a rank; 0: every core this process may use.",
     runtime<&RuntimeSection::threads>, kMayChange, kOptional, between(0, 4096)},
    {"runtime", "device", "", "Device that computes; `cuda` where build and machine have one.",
     runtime<&RuntimeSection::device>, kMayChange, kOptional, kNone, "cpu|cuda"},
});

}  // namespace

std::span<const Field> all_fields() {
  static constexpr auto kAll = with_fields(kFields, kObjectiveFields);
  return kAll;
}

}  // namespace train::configs
