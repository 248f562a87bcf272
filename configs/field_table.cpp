#include "configs/field_table.hpp"

#include <fmt/format.h>

#include <array>
#include <type_traits>

namespace train::configs {
namespace {

template <auto Section, auto Member>
FieldPointer at(RunConfig& config) {
  return &((config.*Section).*Member);
}

template <auto Member>
constexpr auto run = at<&RunConfig::run, Member>;
template <auto Member>
constexpr auto model = at<&RunConfig::model, Member>;
template <auto Member>
constexpr auto data = at<&RunConfig::data, Member>;
template <auto Member>
constexpr auto batch = at<&RunConfig::batch, Member>;
template <auto Member>
constexpr auto optimizer = at<&RunConfig::optimizer, Member>;
template <auto Member>
constexpr auto schedule = at<&RunConfig::schedule, Member>;
template <auto Member>
constexpr auto eval = at<&RunConfig::eval, Member>;
template <auto Member>
constexpr auto checkpoint = at<&RunConfig::checkpoint, Member>;
template <auto Member>
constexpr auto parallel = at<&RunConfig::parallel, Member>;
template <auto Member>
constexpr auto runtime = at<&RunConfig::runtime, Member>;

constexpr bool kRequired = true;
constexpr bool kOptional = false;
constexpr Limits kNone{};
constexpr double kManySteps = 1e9;
// TOML's integers are signed, so the upper half of a 64-bit seed cannot be written in a file.
// The largest double below 2^63.
constexpr double kLargestSeed = 9223372036854774784.0;
constexpr Limits kFromOneStep{.low = 1, .high = kManySteps};
constexpr Limits kFromZeroSteps{.low = 0, .high = kManySteps};
constexpr Limits kDecay{.low = 0, .high = 1, .high_excluded = true};

constexpr Limits between(double low, double high) { return {.low = low, .high = high}; }
constexpr Limits above(double low, double high) {
  return {.low = low, .high = high, .low_excluded = true};
}

constexpr auto kFields = std::to_array<Field>({
    {"run", "name", "", "Name of the run: its directory below `run.dir`.", run<&RunSection::name>,
     kRequired},
    {"run", "dir", "path", "Parent of all run directories.", run<&RunSection::dir>},
    {"run", "seed", "", "Seed of initial weights, data order and sampling.", run<&RunSection::seed>,
     kOptional, between(0, kLargestSeed)},
    {"run", "steps", "steps", "Optimizer steps of the whole run.", run<&RunSection::steps>,
     kOptional, kFromOneStep},
    {"run", "log_interval_steps", "steps", "A metrics line every this many steps.",
     run<&RunSection::log_interval_steps>, kOptional, kFromOneStep},
    {"run", "digest_interval_steps", "steps",
     "A digest of the weights every this many steps; 0: only at the end.",
     run<&RunSection::digest_interval_steps>, kOptional, kFromZeroSteps},
    {"run", "sample_prompt", "",
     "Prompt of the sample shown at the end; empty: the end-of-text token.",
     run<&RunSection::sample_prompt>},
    {"run", "sample_tokens", "tokens", "Length of the sample shown at the end; 0: no sample.",
     run<&RunSection::sample_tokens>, kOptional, between(0, 1e6)},
    {"run", "tensorboard", "", "Write TensorBoard event files.", run<&RunSection::tensorboard>},

    {"model", "arch", "", "Architecture.", model<&ModelSection::arch>, kRequired, kNone,
     "enoki|qwen3"},
    {"model", "layers", "blocks",
     "Transformer blocks; 0: enoki 3/4 of `heads` (rounded down), qwen3 twice `heads`.",
     model<&ModelSection::layers>, kOptional, between(0, 4096)},
    {"model", "heads", "heads", "Attention heads.", model<&ModelSection::heads>, kOptional,
     between(1, 1024)},
    {"model", "head_dim", "channels", "Width of a head, even; 0: enoki 64, qwen3 128.",
     model<&ModelSection::head_dim>, kOptional, between(0, 1024)},
    {"model", "embedding_dim", "channels",
     "Width of the residual stream; 0: `heads` times `head_dim`.",
     model<&ModelSection::embedding_dim>, kOptional, between(0, 1 << 20)},
    {"model", "mlp_hidden", "channels",
     "Width of the MLP; 0: enoki 4 times, qwen3 3 times the residual stream.",
     model<&ModelSection::mlp_hidden>, kOptional, between(0, 1 << 22)},
    {"model", "vocab_size", "tokens",
     "Rows of embedding and head; 0: the data's vocabulary, padded to a multiple of 64.",
     model<&ModelSection::vocab_size>, kOptional, between(0, 1 << 24)},
    {"model", "init_scheme", "", "How weights are first drawn.", model<&ModelSection::init_scheme>,
     kOptional, kNone, "scaled_gpt|karpathy_gpt2|standard"},
    {"model", "init_std", "", "Standard deviation of weights under `karpathy_gpt2`.",
     model<&ModelSection::init_std>, kOptional, above(0, 10)},
    {"model", "z_loss_coeff", "",
     "Weight of the mean squared logsumexp of the logits in the loss; 0: off.",
     model<&ModelSection::z_loss_coeff>, kOptional, between(0, 1e3)},
    {"model", "norm_eps", "", "Epsilon of every norm.", model<&ModelSection::norm_eps>, kOptional,
     above(0, 1)},
    {"model", "rope_theta", "", "Base of the rotary frequencies.", model<&ModelSection::rope_theta>,
     kOptional, above(0, 1e12)},
    {"model", "residual_scale", "", "Factor of a block's output where it joins the stream.",
     model<&ModelSection::residual_scale>, kOptional, above(0, 1e3)},
    {"model", "qk_norm", "", "Normalise queries and keys per head before the rotation.",
     model<&ModelSection::qk_norm>},
    {"model", "attention_output_gate", "", "qwen3: a sigmoid gate on the attention output.",
     model<&ModelSection::attention_output_gate>},

    {"data", "dir", "path", "Directory with `train*.bin` and `val.bin`.", data<&DataSection::dir>,
     kRequired},
    {"data", "sequence_length", "tokens", "Tokens of a sequence.",
     data<&DataSection::sequence_length>, kOptional, between(2, 1 << 20)},
    {"data", "order", "", "Reading order; `lanes`: a pure function of seed, step and lane.",
     data<&DataSection::order>, kOptional, kNone, "lanes"},

    {"batch", "lanes", "lanes", "Microbatches of a step, whatever the number of ranks.",
     batch<&BatchSection::lanes>, kOptional, between(1, 65536)},
    {"batch", "micro_batch", "sequences", "Sequences of a lane.", batch<&BatchSection::micro_batch>,
     kOptional, between(1, 65536)},

    {"optimizer", "name", "", "Optimizer.", optimizer<&OptimizerSection::name>, kOptional, kNone,
     "adamw"},
    {"optimizer", "lr", "", "Peak learning rate.", optimizer<&OptimizerSection::lr>, kOptional,
     above(0, 1e3)},
    {"optimizer", "beta1", "per step", "Decay of the first moment.",
     optimizer<&OptimizerSection::beta1>, kOptional, kDecay},
    {"optimizer", "beta2", "per step", "Decay of the second moment.",
     optimizer<&OptimizerSection::beta2>, kOptional, kDecay},
    {"optimizer", "eps", "", "Added to the root of the bias-corrected second moment.",
     optimizer<&OptimizerSection::eps>, kOptional, above(0, 1)},
    {"optimizer", "weight_decay", "per lr",
     "Decoupled decay of matrices; norms and the embedding are not decayed.",
     optimizer<&OptimizerSection::weight_decay>, kOptional, between(0, 1e3)},
    {"optimizer", "grad_clip", "", "Largest norm of the whole gradient; 0: no clipping.",
     optimizer<&OptimizerSection::grad_clip>, kOptional, between(0, 1e9)},

    {"schedule", "name", "", "Learning rate over the steps: one cycle, with a floor, or flat.",
     schedule<&ScheduleSection::name>, kOptional, kNone, "cos|cos_inf|constant"},
    {"schedule", "warmup_steps", "steps", "Steps from the first learning rate to the peak.",
     schedule<&ScheduleSection::warmup_steps>, kOptional, kFromZeroSteps},
    {"schedule", "div_factor", "", "The first learning rate is the peak divided by this.",
     schedule<&ScheduleSection::div_factor>, kOptional, above(0, 1e12)},
    {"schedule", "final_div_factor", "", "The last learning rate is the first one divided by this.",
     schedule<&ScheduleSection::final_div_factor>, kOptional, above(0, 1e12)},
    {"schedule", "constant_tail_steps", "steps", "cos_inf: last steps, spent at the floor.",
     schedule<&ScheduleSection::constant_tail_steps>, kOptional, kFromZeroSteps},

    {"eval", "interval_steps", "steps", "Evaluate every this many steps and at the end; 0: never.",
     eval<&EvalSection::interval_steps>, kOptional, kFromZeroSteps},
    {"eval", "lanes", "lanes", "Lanes of an evaluation, each of `batch.micro_batch` sequences.",
     eval<&EvalSection::lanes>, kOptional, between(1, 65536)},

    {"checkpoint", "interval_steps", "steps",
     "Save every this many steps and at the end; 0: only at the end.",
     checkpoint<&CheckpointSection::interval_steps>, kOptional, kFromZeroSteps},
    {"checkpoint", "keep_last", "checkpoints", "Keep the newest this many; 0: keep all.",
     checkpoint<&CheckpointSection::keep_last>, kOptional, between(0, 1e6)},

    {"parallel", "ranks", "ranks", "Ranks of the run; this version runs one.",
     parallel<&ParallelSection::ranks>, kOptional, between(1, 1)},
    {"parallel", "strategy", "", "What ranks split; `none`: one rank keeps everything.",
     parallel<&ParallelSection::strategy>, kOptional, kNone, "none"},

    {"runtime", "threads", "threads",
     "Compute threads of a rank; 0: every core this process may use.",
     runtime<&RuntimeSection::threads>, kOptional, between(0, 4096)},
    {"runtime", "device", "", "Device that computes.", runtime<&RuntimeSection::device>, kOptional,
     kNone, "cpu"},
});

}  // namespace

std::span<const Field> all_fields() { return kFields; }

}  // namespace train::configs
