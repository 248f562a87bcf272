#include "configs/fields/field_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <system_error>
#include <type_traits>

#include "base/check.hpp"
#include "configs/fields/named_options.hpp"
#include "configs/fields/optimizer_table.hpp"
#include "configs/fields/source_table.hpp"
#include "configs/fields/toml_text.hpp"

namespace train::configs {
namespace {

// First members of a Field: the key's names are those of its value in the RunConfig.
#define KEY(section, name) \
  [](RunConfig& config) -> FieldPointer { return &config.section.name; }, #section, #name

constexpr BetweenStarts kShapes = BetweenStarts::shapes;
constexpr BetweenStarts kData = BetweenStarts::data;
constexpr BetweenStarts kState = BetweenStarts::state;
constexpr BetweenStarts kOnRequest = BetweenStarts::on_request;
constexpr BetweenStarts kMayChange = BetweenStarts::may_change;
constexpr BetweenStarts kMayMove = BetweenStarts::may_move;
constexpr BetweenStarts kWarns = BetweenStarts::warns;
constexpr bool kRequired = true;
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

constexpr auto kFields = std::to_array<Field>({
    {KEY(run, name), "", "Name of the run: its directory below `run.dir`.", kMayChange, kNone, "",
     false, kRequired},
    {KEY(run, dir), "path", "Parent of all run directories.", kMayChange},
    {KEY(run, seed), "", "Seed of initial weights, data order and sampling.", kData,
     between(0, kLargestSeed)},
    {KEY(run, steps), "steps", "Optimizer steps of the whole run.", kWarns, kFromOneStep},
    {KEY(run, steps_per_job), "steps",
     "Largest number of steps of one start, which then saves and ends with exit code 75; 0: no "
     "limit.",
     kMayChange, kFromZeroSteps},
    {KEY(run, log_interval_steps), "steps", "Write a metrics line every this many steps.",
     kMayChange, kFromOneStep},
    {KEY(run, digest_interval_steps), "steps",
     "Write digests of all tensors to the journal every this many steps (`actortrain replay`); 0: "
     "only at the end.",
     kMayChange, kFromZeroSteps},
    {KEY(run, sample_prompt), "",
     "Prompt of the sample shown at the end; empty: the end-of-text token.", kMayChange},
    {KEY(run, sample_tokens), "tokens",
     "Largest length of a sample, shown at the end or every `run.sample_interval_steps`; 0: no "
     "sample.",
     kMayChange, between(0, 1e6)},
    {KEY(run, sample_interval_steps), "steps",
     "Sample texts every this many steps, before the first and after the last; 0: only at the end, "
     "of `run.sample_prompt`.",
     kMayChange, kFromZeroSteps},
    {KEY(run, sample_prompts), "",
     "Texts that the samples continue; with neither these nor `run.sample_chats`: "
     "`run.sample_prompt`.",
     kMayChange},
    {KEY(run, sample_chats), "",
     "User messages that the samples answer, or JSON lists of messages, in the model's chat "
     "template.",
     kMayChange},
    {KEY(run, sample_temperature), "", "Temperature of the samples; 0: always the likeliest token.",
     kMayChange, between(0, 100)},
    {KEY(run, sample_seed), "", "Seed of the samples, as `--seed` of `actortrain generate`.",
     kMayChange, between(0, kLargestSeed)},
    {KEY(run, tensorboard), "", "Write TensorBoard event files.", kMayChange},

    {KEY(model, arch), "",
     "Architecture with the dimensions of the keys below; `qwen3` is the old name of "
     "`dstar_qwen3`.",
     kShapes, kNone, "enoki|dstar_qwen3|qwen3"},
    {KEY(model, config), "path",
     "Instead of `arch`: a shipped shape (`actortrain describe` lists them) or a config.json; "
     "fresh "
     "weights.",
     kShapes},
    {KEY(model, from), "path",
     "Instead of `arch`: a directory with config.json and safetensors, whose weights training "
     "starts from.",
     kState},
    {KEY(model, layers), "blocks",
     "Transformer blocks; 0: enoki 3/4 of `heads` (rounded down), dstar_qwen3 twice `heads`.",
     kShapes, between(0, kManyBlocks)},
    {KEY(model, heads), "heads", "Attention heads.", kShapes, between(1, 1024)},
    {KEY(model, head_dim), "channels", "Width of a head, even; 0: enoki 64, dstar_qwen3 128.",
     kShapes, between(0, 1024)},
    {KEY(model, embedding_dim), "channels",
     "Width of the residual stream; 0: `heads` times `head_dim`.", kShapes, between(0, 1 << 20)},
    {KEY(model, mlp_hidden), "channels",
     "Width of the MLP; 0: enoki 4 times, dstar_qwen3 3 times the residual stream.", kShapes,
     between(0, 1 << 22)},
    {KEY(model, experts), "experts",
     "Experts of each layer, gated MLPs that take the MLP's place; 0: none.", kShapes,
     between(0, 65536)},
    {KEY(model, experts_per_token), "experts", "Experts that compute a token.", kShapes,
     between(1, 65536)},
    {KEY(model, expert_hidden), "channels", "Width of an expert; 0: `mlp_hidden`.", kShapes,
     between(0, 1 << 22)},
    {KEY(model, shared_expert_hidden), "channels",
     "Width of an expert that computes every token, times a sigmoid gate; 0: none.", kShapes,
     between(0, 1 << 22)},
    {KEY(model, router), "",
     "Weights of the chosen experts; `softmax`: their probabilities among all experts; "
     "`softmax_normalised`: these divided by their sum; `sigmoid`, `sigmoid_normalised`: the same "
     "of sigmoids.",
     kState, kNone, "softmax|softmax_normalised|sigmoid|sigmoid_normalised"},
    {KEY(model, router_scale), "", "Factor of the weights of the chosen experts.", kState,
     above(0, 1e3)},
    {KEY(model, router_groups), "groups",
     "Groups of neighbouring experts, of which a token's best `router_kept_groups` are chosen "
     "first; 1: no groups.",
     kState, between(1, 65536)},
    {KEY(model, router_kept_groups), "groups", "Groups whose experts a token may have.", kState,
     between(1, 65536)},
    {KEY(model, router_bias_rate), "",
     "Step size of the bias that is added to an expert's score for the choice alone, not for its "
     "weight: a step raises it for a load below the mean and lowers it for one above; 0: no bias; "
     "a published model's bias stays as it is.",
     kShapes, between(0, 1)},
    {KEY(model, balance), "",
     "Losses that balance the experts' loads, each `KIND:SCOPE:COEFFICIENT`; kinds: `hf` "
     "(transformers' router_aux_loss_coef), `switch`, `z`; scopes: `lane`, and for `switch` "
     "`sequence`, `previous_step` and `step`; `none`: no loss, also where a config.json has one; "
     "empty: what the config.json says.",
     kState},
    {KEY(model, vocab_size), "tokens",
     "Rows of embedding and head; 0: the data's vocabulary, padded to a multiple of 64.", kShapes,
     between(0, 1 << 24)},
    {KEY(model, init_scheme), "", "Weight initialisation.", kState, kNone,
     "scaled_gpt|karpathy_gpt2|standard"},
    {KEY(model, init_std), "", "Standard deviation of weights initialised by `karpathy_gpt2`.",
     kState, above(0, 10)},
    {KEY(model, z_loss_coeff), "",
     "Weight of the mean squared logsumexp of the logits in the loss; 0: off.", kOnRequest,
     between(0, 1e3)},
    {KEY(model, norm_eps), "", "Epsilon of every norm.", kState, above(0, 1)},
    {KEY(model, rope_theta), "", "Base of the rotary frequencies.", kState, above(0, 1e12)},
    {KEY(model, rope.type), "",
     "Stretch the rotary positions of a published model to a context `rope.factor` times as long; "
     "`none`: as its config.json has them; `yarn` (Peng et al. 2023) or `linear`. Exports have it.",
     kState, kNone, "none|yarn|linear"},
    {KEY(model, rope.factor), "", "Factor of `rope.type`, above 1.", kState, between(1, 1e4)},
    {KEY(model, residual_scale), "",
     "Factor of a block's output where it is added to the residual stream.", kState, above(0, 1e3)},
    {KEY(model, qk_norm), "", "Normalise queries and keys per head before the rotation.", kShapes},
    {KEY(model, attention_output_gate), "", "dstar_qwen3: a sigmoid gate on the attention output.",
     kShapes},
    {KEY(model, tie_embeddings), "",
     "The head shares the embedding's matrix, which is initialised as an embedding and not "
     "decayed.",
     kShapes},

    {KEY(data, dir), "path",
     "Directory with `train*.bin` and `val.bin`, or of packed rows (`objective.name`). With "
     "`data.sources` that of the first of them, and may be left out.",
     kMayMove, kNone, "", false, kRequired},
    {KEY(data, sources), "",
     "Directories that training reads in turn, `[[data.sources]]` each, instead of `data.dir` "
     "alone.",
     kOnRequest},
    {KEY(data, forget_dir), "path", "sequential_unlearning: packed rows to forget.", kMayMove},
    {KEY(data, sequence_length), "tokens", "Tokens per sequence.", kData, between(2, 1 << 20)},
    {KEY(data, order), "",
     "Reading order of training data; `lanes`: a pure function of `run.seed`, step and lane; "
     "`dstar`: the order of the DSTAR trainer's reader with as many accumulation steps as lanes.",
     kData, kNone, "lanes|dstar"},
    {KEY(data, seed), "", "dstar: seed of the reading order, the trainer's `data_seed`.", kData,
     between(0, kLargestSeed)},

    {KEY(batch, lanes), "lanes", "Microbatches per step, for any number of ranks.", kData,
     between(1, 65536)},
    {KEY(batch, micro_batch), "sequences", "Sequences per lane.", kData, between(1, 65536)},
    {KEY(batch, radix), "lanes",
     "Order of the gradients' sum over lanes: a tree whose nodes have this many children, added "
     "left to right, from the lanes upward (the last number repeats). A first number of 16 keeps "
     "one sum in place of four for 16 lanes of a rank; each value gives its own bits, at any "
     "number "
     "of ranks.",
     kOnRequest, between(2, 65536)},

    {KEY(objective, name), "",
     "Training objective; `pretrain`: next-token cross-entropy on plain token files; `sft`: "
     "cross-entropy on the trained targets of packed rows; `dpo`, `dpo_norm`, `simpo`, `wpo`, "
     "`orpo`: preference losses on packed pairs; `kto`: a loss on answers labelled desirable or "
     "undesirable; `sequential_unlearning`: forget one data set and retain another, layer by "
     "layer.",
     kData, kNone, kObjectiveNames},
    {KEY(objective, loss), "", "dpo: loss of a preference pair.", kOnRequest, kNone, kPairLosses},
    {KEY(objective, beta), "",
     "DPO/KTO: β. orpo: λ of the odds-ratio term. sequential_unlearning with `npo`: β of NPO.",
     kOnRequest, above(0, 1e6)},
    {KEY(objective, label_smoothing), "",
     "sft: probability mass of a target that is spread over the whole vocabulary; pairs: assumed "
     "fraction of flipped labels.",
     kOnRequest, kBelowOne},
    {KEY(objective, gamma_beta_ratio), "", "simpo: target reward margin γ, divided by β.",
     kOnRequest, between(0, 1e6)},
    {KEY(objective, discopop_tau), "", "dpo with loss `discopop`: temperature of its mixture.",
     kOnRequest, above(0, 1e6)},
    {KEY(objective, desirable_weight), "", "kto: weight of the losses of desirable answers.",
     kOnRequest, between(0, 1e6)},
    {KEY(objective, undesirable_weight), "", "kto: weight of the losses of undesirable answers.",
     kOnRequest, between(0, 1e6)},
    {KEY(objective, reference), "",
     "Source of the reference model's log-probabilities (the model before the first step); "
     "`cache`: computed once, and kept in the run directory; `live`: computed in every step from a "
     "frozen copy of the weights.",
     kState, kNone, "cache|live"},

    {KEY(objective, first_layer), "layers",
     "Layer to train first; layers are numbered from 0; -1: the last one.", kState,
     between(-1, kManyBlocks)},
    {KEY(objective, last_layer), "layers", "Lowest layer to train.", kState,
     between(0, kManyBlocks)},
    {KEY(objective, layer_stride), "layers", "Distance from one trained layer down to the next.",
     kState, between(1, kManyBlocks)},
    {KEY(objective, steps_per_layer), "steps",
     "Steps per trained layer; `run.steps` must be the total.", kState, between(1, 1e9)},
    {KEY(objective, retain_loss), "",
     "Loss on the rows of `data.dir`; `nll`: cross-entropy; `kl`: divergence from a frozen copy of "
     "the model before the first step; `l2`: distance of the trained layers' outputs from those of "
     "that copy.",
     kState, kNone, "nll|kl|l2"},
    {KEY(objective, forget_loss), "",
     "Loss on the rows of `data.forget_dir`; `random_targets`: cross-entropy with random tokens; "
     "`max_entropy`: cross-entropy with the uniform distribution; `top_k_entropy`: the same among "
     "the `top_k` likeliest tokens. These are divided by the logarithm of the number of tokens. "
     "`npo`: negative preference optimisation against a frozen copy of the model before the first "
     "step. `max_update`: negative distance of the trained layers' weights from those before the "
     "first step, without `data.forget_dir`.",
     kState, kNone, "random_targets|max_entropy|top_k_entropy|npo|max_update"},
    {KEY(objective, top_k), "tokens", "`top_k_entropy`: number of likeliest tokens.", kOnRequest,
     between(2, 1e9)},
    {KEY(objective, retain_coefficient), "",
     "Factor of the retain loss; ramps from 1/4 in a layer's first step to nearly all in its last.",
     kOnRequest, between(0, 1e6)},
    {KEY(objective, forget_coefficient), "",
     "Factor of the forget loss; ramps from all in a layer's first step to a little above 3/4 in "
     "its last.",
     kOnRequest, between(0, 1e6)},
    {KEY(objective, ramp_retain_from_zero), "",
     "Start the ramp of `retain_coefficient` at 0 in each layer.", kOnRequest},
    {KEY(objective, forget_layer_scale), "",
     "Above 1: `forget_coefficient` grows with the distance from `first_layer`, up to this factor "
     "at layer 0.",
     kOnRequest, between(1, 1e6)},
    {KEY(objective, l2sp_coefficient), "",
     "Coefficient of L2-SP: penalises the squared distance of a trained layer's weights from those "
     "before the first step, in the retain pass.",
     kState, between(0, 1e6)},
    {KEY(objective, gradient_join), "",
     "Combination of the retain and forget gradients r, f, per element; `sum`: r + f; `same_sign`: "
     "r + f if the signs agree, otherwise 0; `same_sign_forget`: r + f if they agree, otherwise r.",
     kOnRequest, kNone, "sum|same_sign|same_sign_forget"},
    {KEY(objective, frozen_layers), "",
     "Update of layers that the current phase does not train; `skip_update`: none; `zero`: an "
     "update with gradient 0, so that weight decay and momentum continue.",
     kState, kNone, "skip_update|zero"},
    {KEY(objective, maintain_unlearned), "", "Each step also trains the layers of earlier phases.",
     kState},
    {KEY(objective, target_seed), "", "Seed of the random targets.", kData, between(0, 1e18)},

    {KEY(optimizer, name), "", "Optimizer.", kShapes, kNone, kOptimizerNames},
    {KEY(optimizer, lr), "", "Peak learning rate.", kOnRequest, above(0, 1e3)},
    {KEY(optimizer, beta1), "per step", "Decay of the first moment.", kState, kBelowOne},
    {KEY(optimizer, beta2), "per step", "Decay of the second moment.", kState, kBelowOne},
    {KEY(optimizer, eps), "", "Added to the root of the second moment.", kOnRequest, above(0, 1)},
    {KEY(optimizer, weight_decay), "per lr",
     "Decoupled weight decay of matrices; norms and the embedding are not decayed.", kOnRequest,
     between(0, 1e3)},
    {KEY(optimizer, grad_clip), "", "Largest global gradient norm; 0: no clipping.", kOnRequest,
     between(0, 1e9)},
    {KEY(optimizer, delta), "steps",
     "adana, dana-*: averages move by delta / (delta + t); ademamix*: see `beta3`.", kState,
     above(0, 1e9)},
    {KEY(optimizer, kappa), "",
     "adana, dana-*: the momentum is scaled by time^(1 - kappa); ademamix*: see `alpha`.",
     kOnRequest, between(0, 2)},
    {KEY(optimizer, clipsnr), "",
     "dana-mk4, dana-star-mk4: clip of an element's scaled signal-to-noise ratio.", kOnRequest,
     above(0, 1e9)},
    {KEY(optimizer, gamma_3_factor), "", "adana, dana-*, ademamix*: factor of the momentum term.",
     kOnRequest, between(0, 1e6)},
    {KEY(optimizer, wd_decaying), "",
     "adana, dana-*, *-decaying-wd: multiply weight decay by 1 / (1 + t / wd_ts).", kOnRequest},
    {KEY(optimizer, wd_ts), "steps", "Time scale of the decaying weight decay.", kOnRequest,
     above(0, kManySteps)},
    {KEY(optimizer, wd_coupling), "",
     "`lr_coupled`: decay × lr. `schedule_only`: decay × lr/peak_lr.", kOnRequest, kNone,
     "lr_coupled|schedule_only"},
    {KEY(optimizer, beta3), "per step",
     "ademamix*: decay of the slow average; 0: 1 - delta / run.steps.", kState, kBelowOne},
    {KEY(optimizer, alpha), "", "ademamix*: weight of the slow average; 0: run.steps^(1 - kappa).",
     kOnRequest, between(0, 1e6)},
    {KEY(optimizer, beta3_warmup), "steps",
     "ademamix*: steps over which the slow average's decay rises from `beta1` to `beta3`; 0: none.",
     kState, kFromZeroSteps},
    {KEY(optimizer, alpha_warmup), "steps",
     "ademamix*: steps over which the slow average's weight rises from 0 to `alpha`; 0: none.",
     kOnRequest, kFromZeroSteps},
    {KEY(optimizer, momentum), "per step", "muon, d-muon: momentum decay of matrices.", kState,
     kBelowOne},
    {KEY(optimizer, nesterov), "", "muon, d-muon: use Nesterov momentum.", kOnRequest},
    {KEY(optimizer, ns_steps), "iterations",
     "muon, d-muon: Newton-Schulz iterations of the orthogonalisation.", kOnRequest,
     between(1, 100)},
    {KEY(optimizer, matched_rms), "per lr",
     "muon, d-muon: root mean square of a matrix's update (0.2 is about AdamW's).", kOnRequest,
     above(0, 1e3)},

    {KEY(schedule, name), "",
     "Learning rate schedule: `cos` and `linear` one cycle, `cos_inf` a cosine to a floor, `wsd` "
     "constant, then a decay at the end, `constant` constant.",
     kOnRequest, kNone, "cos|linear|cos_inf|wsd|constant"},
    {KEY(schedule, warmup_steps), "steps",
     "Steps from the first learning rate to the peak; a value of `run.steps` or more is reduced to "
     "a tenth of those.",
     kOnRequest, kFromZeroSteps},
    {KEY(schedule, div_factor), "", "First learning rate: peak / div_factor.", kOnRequest,
     above(0, 1e12)},
    {KEY(schedule, final_div_factor), "",
     "cos, linear, cos_inf: last learning rate: first learning rate / final_div_factor.",
     kOnRequest, above(0, 1e12)},
    {KEY(schedule, constant_tail_steps), "steps", "cos_inf: number of last steps at the floor.",
     kOnRequest, kFromZeroSteps},
    {KEY(schedule, decay_fraction), "",
     "wsd: final fraction of `run.steps` (rounded down to a step) over which the learning rate "
     "decays.",
     kOnRequest, between(0, 1)},
    {KEY(schedule, decay_shape), "", "wsd: shape of the decay.", kOnRequest, kNone,
     "linear|cosine|mirror_cosine|exp|square|sqrt"},
    {KEY(schedule, decay_floor), "", "wsd: last learning rate, as a fraction of the peak.",
     kOnRequest, between(0, 1)},

    {KEY(scaling, rule), "",
     "Rule that sets the model, `run.steps`, `optimizer.lr` and `optimizer.weight_decay` unless "
     "they are given: `none`, `enoki`, `qwen3`, or one of `table`.",
     kMayChange},
    {KEY(scaling, heads), "heads", "Attention heads, from which the rule derives the rest.",
     kMayChange, between(0, 1024)},
    {KEY(scaling, params), "",
     "Weights counted by `tokens_per_parameter`: all, or those without embedding and head.",
     kMayChange, kNone, "total|non_embedding"},
    {KEY(scaling, tokens_per_parameter), "tokens", "Training tokens per such weight.", kMayChange,
     above(0, 1e9)},
    {KEY(scaling, omega), "",
     "Total weight decay of the run, independent of its length and learning rate.", kMayChange,
     between(0, 1e6)},
    {KEY(scaling, table), "path", "File of scaling rules; empty: the shipped `scaling_rules.toml`.",
     kMayChange},

    {KEY(eval, interval_steps), "steps", "Evaluate every this many steps and at the end; 0: never.",
     kMayChange, kFromZeroSteps},
    {KEY(eval, lanes), "lanes",
     "Lanes per evaluation, each of `batch.micro_batch` sequences: the first sequences of the "
     "validation data, each once.",
     kMayChange, between(1, 65536)},
    {KEY(eval, choices), "paths",
     "Files of multiple-choice questions (JSON lines or Parquet), scored by likelihood.",
     kMayChange},
    {KEY(eval, choices_interval_steps), "steps",
     "Score `eval.choices` every this many steps and at the end; 0: every `eval.interval_steps`.",
     kMayChange, kFromZeroSteps},

    {KEY(checkpoint, interval_steps), "steps",
     "Save every this many steps and at the end; 0: only at the end.", kMayChange, kFromZeroSteps},
    {KEY(checkpoint, keep_last), "checkpoints", "Keep this many newest checkpoints; 0: all.",
     kMayChange, between(0, 1e6)},
    {KEY(checkpoint, keep_every), "steps",
     "Also keep every checkpoint whose step is a multiple of this; 0: off.", kMayChange,
     kFromZeroSteps},
    {KEY(checkpoint, keep_best), "checkpoints",
     "Also keep this many with the lowest validation loss, of those evaluated; 0: off. More than 1 "
     "needs `eval.interval_steps` to divide `interval_steps`.",
     kMayChange, between(0, 1e6)},
    {KEY(checkpoint, local_dir), "path",
     "Fast local directory of each node: checkpoints are written there, then copied to the run's "
     "directory; `auto`: $SLURM_TMPDIR if set; `none`: straight to the run's directory.",
     kMayChange},
    {KEY(checkpoint, drain_s), "seconds",
     "After the last step, wait this long for the last checkpoint to reach the run's directory.",
     kMayChange, between(0, 1e6)},

    {KEY(recovery, rank_loss), "",
     "Reaction to a lost rank process (killed, cut off, silent): `respawn`: start all ranks again "
     "and resume from the newest snapshot or checkpoint, in the same job; `stop`: end the run.",
     kMayChange, kNone, "respawn|stop"},
    {KEY(recovery, max_respawns), "starts",
     "Largest number of consecutive respawns without progress; then the run continues with fewer "
     "ranks, or ends if it is one of several nodes. A job of `submit` restarts the killed launcher "
     "of a node other than the first as often.",
     kMayChange, between(0, 1e6)},
    {KEY(recovery, start_wait_s), "seconds",
     "At the start of a job of several nodes, wait this long for all launchers; then end the run "
     "with exit code 75.",
     kMayChange, between(0, 1e6)},
    {KEY(recovery, node_wait_s), "seconds",
     "Wait this long for a node that is cut off or lost; then continue without it until it "
     "returns, or end the run with exit code 75 if the other nodes are too few for its strategy.",
     kMayChange, between(0, 1e6)},
    {KEY(recovery, snapshot_interval_steps), "steps",
     "Interval at which every rank copies its shard of the state into its node's memory, where it "
     "survives the process (2 or more): respawned ranks resume from there. 0: only from "
     "checkpoints. No effect if ranks share the launcher's process.",
     kMayChange, between(0, 1e6)},
    {KEY(recovery, buddy_snapshots), "",
     "With several nodes: also copy each node's snapshots into the next node's memory, so that the "
     "run resumes from there when a node is lost with its memory, whether the node is restarted or "
     "left out. Takes the same memory again.",
     kMayChange},

    {KEY(watchdog, stall_s), "seconds",
     "Report which actor waits for which after this long without progress; 0: never.", kMayChange,
     between(0, 1e6)},
    {KEY(watchdog, abort_after_s), "seconds",
     "Stall that ends the run, with exit code 1 and a line that says which actor waited for which; "
     "0: never. No effect with `watchdog.stall_s` = 0.",
     kMayChange, between(0, 1e6)},

    {KEY(status, listen), "",
     "Address and port of the run's status page and API, for example `127.0.0.1:8080`; port 0: any "
     "free port; empty: off.",
     kMayChange},
    {KEY(status, token_file), "path",
     "File whose first line is the access token, passed as `?token=` in the address; required "
     "unless `status.listen` is a loopback address. Only its owner may have read permission.",
     kMayChange},

    {KEY(parallel, ranks), "ranks", "Number of ranks, at most `batch.lanes`.", kMayChange,
     between(1, kManyRanks)},
    {KEY(parallel, strategy), "",
     "State sharded across ranks: none, optimizer state, also gradients, also weights (`full`), or "
     "all of it within groups of ranks (`hybrid`).",
     kMayChange, kNone, "none|optimizer|gradient|full|hybrid"},
    {KEY(parallel, group), "ranks",
     "hybrid: ranks per sharding group, which holds one copy of the weights; divides `ranks`; 0 "
     "with any other strategy.",
     kMayChange, between(0, kManyRanks)},
    {KEY(parallel, reshard), "ranks",
     "Gathered weights after the forward pass: kept to the end of the step, freed, or resharded "
     "over this many ranks.",
     kMayChange, between(2, kManyRanks), "never|after_forward", kOrInteger},
    {KEY(parallel, wrapping), "",
     "Units gathered and reduced together: `per_block`, `by_size` (neighbours, up to "
     "`wrap_min_parameters`), or patterns of unit names: each matching unit alone, the others "
     "together.",
     kMayChange},
    {KEY(parallel, wrap_min_parameters), "weights",
     "by_size: neighbouring units are merged until they have this many weights.", kMayChange,
     between(1, 1e12)},
    {KEY(parallel, strategy_by_unit), "",
     "Overrides \"pattern = strategy\" for parts of the model; the first pattern that matches a "
     "unit's name applies.",
     kMayChange},
    {KEY(parallel, gather_credits), "groups",
     "Largest number of groups whose weights are gathered at a time.", kMayChange,
     between(1, kManyBlocks)},
    {KEY(parallel, prefetch_forward), "groups", "Groups prefetched in the forward pass.",
     kMayChange, between(0, kManyBlocks)},
    {KEY(parallel, prefetch_backward), "groups", "Groups prefetched in the backward pass.",
     kMayChange, between(0, kManyBlocks)},
    {KEY(parallel, sync), "lanes",
     "When gradients are reduced: after every lane, after a rank's last lane, or after every this "
     "many; `auto`: after every lane if the strategy shards gradients, otherwise after the last.",
     kMayChange, between(1, 65536), "auto|every_lane|last_lane", kOrInteger},
    {KEY(parallel, transport), "",
     "Transport between ranks: `tcp`: one process per rank; `nccl`: one process and CUDA device "
     "per rank, from device to device; `auto`: `nccl` on `cuda`, otherwise `tcp`; `inproc`: all "
     "ranks in one process. `gloo` is the old name of `tcp`.",
     kMayChange, kNone, "auto|tcp|nccl|inproc|gloo"},
    {KEY(parallel, nodes), "nodes", "Number of nodes, which share the ranks evenly.", kMayChange,
     between(1, kManyRanks)},
    {KEY(parallel, interface), "",
     "Network interface for traffic between ranks; empty: the loopback.", kMayChange},
    {KEY(parallel, port), "", "TCP port of the control connection; 0: any free port.", kMayChange,
     between(0, 65535)},

    {KEY(precision, master), "", "Type of the master weights and the optimizer state.", kState,
     kNone, "fp32"},
    {KEY(precision, compute), "",
     "Type of the weights that are gathered and computed with; on `cuda` also of activations; on "
     "`cpu` of the inputs of matrix products, if the processor has AVX512_BF16.",
     kState, kNone, "fp32|bf16"},
    {KEY(precision, reduce), "",
     "Type of gradients in reductions between ranks; with `bf16` results depend on the number of "
     "ranks.",
     kState, kNone, "fp32|bf16"},
    {KEY(precision, determinism), "",
     "Bitwise reproducibility: at any number of ranks (`world`), or only at the same number "
     "(`run`, fewer buffers).",
     kState, kNone, "world|run"},

    {KEY(memory, activation_checkpointing), "blocks",
     "Blocks that store less and recompute it in the backward pass: none, all, or every N-th.",
     kMayChange, between(1, kManyBlocks), "none|all", kOrInteger},
    {KEY(memory, checkpointed_part), "",
     "Part of each checkpointed block that is recomputed in backward: everything after its input "
     "(`block`), the attention, the MLP, or what latent attention expands its latents to "
     "(`latent`).",
     kMayChange, kNone, "block|attention|latent|mlp"},
    {KEY(memory, offload), "",
     "State kept in host memory while `cuda` computes: the optimizer state, or (`parameters`) also "
     "the master weights and weight shards.",
     kMayChange, kNone, "none|optimizer|parameters"},
    {KEY(memory, bf16_weights), "",
     "Source of the bf16 weights that `cuda` computes with: kept for all layers, or cast from a "
     "layer's fp32 weights at each use, which saves two bytes per weight for a few percent of the "
     "time. The results are the same.",
     kMayChange, kNone, "kept|made"},

    {KEY(train, freeze), "", "Patterns of parameter or unit names to freeze.", kShapes},
    {KEY(train, ema), "",
     "Decay of an exponential moving average of the trained weights: after each update it becomes "
     "ema x itself + (1 - ema) x the weights; 0: none.",
     kState, kBelowOne},
    {KEY(train, ema_warmup), "",
     "Limit the decay to (1 + t) / (10 + t) after update t, so that early weights are forgotten.",
     kState},
    {KEY(train, stop_after.metric), "",
     "Value of evaluations that must improve for the run to go on: `val_loss` fall, or "
     "`val_accuracy` rise.",
     kMayChange, kNone, "val_loss|val_accuracy"},
    {KEY(train, stop_after.patience), "evaluations",
     "End the run, as after its last step, when this many evaluations in a row are not better than "
     "the best before them; 0: never.",
     kMayChange, between(0, 1e6)},

    {KEY(lora, rank), "",
     "Rank of the LoRA adapters that are trained instead of the model's weights; 0: no adapters.",
     kShapes, between(0, 65536)},
    {KEY(lora, alpha), "", "Scales the adapters' output by alpha / rank.", kState, above(0, 1e6)},
    {KEY(lora, rslora), "", "Scale by alpha / sqrt(rank) instead (rsLoRA).", kState},
    {KEY(lora, targets), "",
     "Linear layers with adapters: `all-linear`, or patterns of their names or of the last parts "
     "of their names (`q_proj`).",
     kShapes},
    {KEY(lora, dropout), "", "Dropout on the adapters' input; only 0 is supported.", kState,
     between(0.0, 1.0)},

    {KEY(runtime, threads), "threads",
     "Compute threads per rank; 0: every core this process may use.", kMayChange, between(0, 4096)},
    {KEY(runtime, device), "", "Compute device; `cuda` if build and machine have it.", kMayChange,
     kNone, "cpu|cuda"},
});

#undef KEY

}  // namespace

std::span<const Field> all_fields() { return kFields; }

// Text output of fields: TOML values, ranges, the printed table.

namespace {

std::string_view between_starts_text(BetweenStarts rule) {
  switch (rule) {
    case BetweenStarts::shapes:
    case BetweenStarts::data:
    case BetweenStarts::state:
      return "stays";
    case BetweenStarts::on_request:
      return "with `--accept-config`";
    case BetweenStarts::may_change:
      return "may change";
    case BetweenStarts::may_move:
      return "may move";
    case BetweenStarts::warns:
      return "may change, with a warning";
    case BetweenStarts::unsaid:
      break;
  }
  TRAIN_CHECK(false, "a key that does not say what another value means for a run that goes on");
}

bool is_whole(const Field& field) {
  const std::string_view type = type_name(field);
  return type == "integer" || type == "list of integers" || field.or_integer;
}

std::string list_text(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  std::transform(values.begin(), values.end(), std::back_inserter(parts), toml_quoted);
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

/// `text` in lines of at most 100 columns, those after the first indented.
std::string folded(std::string_view text, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::string out;
  while (text.size() > kColumns - (out.empty() ? 0 : indent)) {
    const std::size_t room = kColumns - (out.empty() ? 0 : indent);
    const std::size_t blank = text.rfind(' ', room);
    const std::size_t end = blank == std::string_view::npos || blank < room / 2 ? room : blank;
    out += fmt::format("{:{}}{}\n", "", out.empty() ? 0 : indent, text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + (end == blank ? 1 : 0)));
  }
  return out + fmt::format("{:{}}{}\n", "", out.empty() ? 0 : indent, text);
}

std::string limit_text(const Field& field, double limit) {
  return is_whole(field) ? fmt::format("{:.0f}", limit) : fmt::format("{}", limit);
}

}  // namespace

std::string toml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (letter == '\n') {
      out += "\\n";
    } else if (letter == '\t') {
      out += "\\t";
    } else if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\u{:04X}", code);
    } else {
      out += letter;
    }
  }
  return out + '"';
}

std::string float_text(double value) {
  TRAIN_CHECK(std::isfinite(value));
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string Field::key() const { return fmt::format("{}.{}", section, name); }

ConstFieldPointer Field::value_in(const RunConfig& config) const {
  // locate() changes nothing; a copy of a configuration for each of its keys took a start's time.
  return std::visit([](const auto* value) -> ConstFieldPointer { return value; },
                    locate(const_cast<RunConfig&>(config)));
}

const Field* find_field(std::string_view key) {
  const std::span<const Field> fields = all_fields();
  const auto found = std::find_if(fields.begin(), fields.end(), [key](const Field& field) {
    return key.size() == field.section.size() + 1 + field.name.size() &&
           key.starts_with(field.section) && key[field.section.size()] == '.' &&
           key.ends_with(field.name);
  });
  return found == fields.end() ? nullptr : &*found;
}

std::string_view type_name(const Field& field) {
  static const RunConfig kDefaults;
  return std::visit(
      [&](const auto* value) -> std::string_view {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, bool>) {
          return "boolean";
        } else if constexpr (std::is_same_v<Value, double>) {
          return "number";
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer ? "text or integer" : "text";
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return "list of texts";
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          return "list of integers";
        } else if constexpr (std::is_same_v<Value, std::vector<DataSource>>) {
          return "list of tables";
        } else {
          return "integer";
        }
      },
      field.value_in(kDefaults));
}

std::vector<std::string> split_choices(std::string_view joined) {
  std::vector<std::string> out;
  while (!joined.empty()) {
    const std::size_t end = std::min(joined.find('|'), joined.size());
    out.emplace_back(joined.substr(0, end));
    joined.remove_prefix(std::min(end + 1, joined.size()));
  }
  return out;
}

std::string allowed_values(const Field& field) {
  const std::string_view type = type_name(field);
  if (type == "boolean") {
    return "true, false";
  }
  if (type == "list of texts" || type == "list of tables") {
    return "any";
  }
  const std::string texts = fmt::format("\"{}\"", fmt::join(split_choices(field), "\", \""));
  if (type == "text") {
    return field.choices.empty() ? "any" : texts;
  }
  const Limits& limits = field.limits;
  const std::string low = limit_text(field, limits.low);
  const std::string high = limit_text(field, limits.high);
  if (field.or_integer) {
    return fmt::format("{}, {} .. {}", texts, low, high);
  }
  if (is_whole(field)) {
    return fmt::format("{} .. {}", low, high);
  }
  return fmt::format("{} {} x {} {}", low,
                     limits.low_excluded ? "<" : "<=", limits.high_excluded ? "<" : "<=", high);
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = code == std::errc() && stop == text.data() + text.size();
  return whole && text == fmt::format("{}", value) && value >= 0 ? std::optional(value)
                                                                 : std::nullopt;
}

std::string toml_value(const Field& field, const RunConfig& config) {
  return std::visit(
      [&](const auto* value) -> std::string {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, double>) {
          return float_text(*value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer && whole_number(*value) ? *value : toml_quoted(*value);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return list_text(*value);
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          return fmt::format("[{}]", fmt::join(*value, ", "));
        } else if constexpr (std::is_same_v<Value, std::vector<DataSource>>) {
          return configs::toml_value(*value);
        } else {
          return fmt::format("{}", *value);
        }
      },
      field.value_in(config));
}

std::string to_toml(const RunConfig& config, Origins origins) {
  std::string out;
  std::string_view section;
  for (const Field& field : all_fields()) {
    if (!applies(field, config)) {
      continue;
    }
    if (field.section != section) {
      section = field.section;
      out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    }
    const auto origin = config.origins.find(field.key());
    const bool shown = origins == Origins::shown && origin != config.origins.end();
    out += fmt::format("{} = {}{}\n", field.name, toml_value(field, config),
                       shown ? fmt::format("  # {}", origin->second) : "");
  }
  return out;
}

namespace {

/// Line of the tables of keys: a key, or a member of the tables of data.sources.
struct KeyLine {
  std::string key;
  std::string_view type, unit;
  std::string value;  ///< The default; empty: required.
  std::string allowed;
  BetweenStarts between_starts;
  std::string_view sentence;
};

std::vector<KeyLine> key_lines() {
  const RunConfig defaults;
  std::vector<KeyLine> lines;
  for (const Field& field : all_fields()) {
    lines.push_back({field.key(), type_name(field), field.unit,
                     field.required ? std::string() : toml_value(field, defaults),
                     allowed_values(field), field.between_starts, field.sentence});
    if (type_name(field) != "list of tables") {
      continue;
    }
    for (const SourceMember& member : source_members()) {
      lines.push_back({fmt::format("{}[].{}", field.key(), member.name), type_name(member),
                       member.unit,
                       member.required ? std::string() : toml_value(member, DataSource()),
                       allowed_values(member), member.between_starts, member.sentence});
    }
  }
  return lines;
}

}  // namespace

std::string describe_keys(std::string_view prefix) {
  std::string out;
  for (const KeyLine& line : key_lines()) {
    if (!line.key.starts_with(prefix)) {
      continue;
    }
    std::string text =
        fmt::format("{:<34} {}{}{}", line.key, line.value.empty() ? "required" : line.value,
                    line.unit.empty() ? "" : fmt::format(" {}", line.unit),
                    line.allowed == "any" ? "" : fmt::format("  ({})", line.allowed));
    out +=
        folded(text, 34) + folded(fmt::format("  {}", line.sentence), 2) +
        folded(fmt::format("  Between starts: {}.", between_starts_text(line.between_starts)), 2);
  }
  return out;
}

std::string describe_keys_markdown() {
  std::string out =
      "| key | type | unit | default | allowed | between starts | what it does |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const KeyLine& line : key_lines()) {
    const std::string value = line.value.empty() ? "required" : fmt::format("`{}`", line.value);
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", line.key, line.type,
                       line.unit.empty() ? "–" : line.unit, value, line.allowed,
                       between_starts_text(line.between_starts), line.sentence);
  }
  return out;
}

}  // namespace train::configs
