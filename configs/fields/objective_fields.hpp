#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "configs/fields/field_locations.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/objective_list.hpp"

// Keys of [objective] except its name.

namespace train::configs {

inline constexpr BetweenStarts kStays = BetweenStarts::stays;

inline constexpr Limits kAboveZero{.low = 0, .high = 1e6, .low_excluded = true};
inline constexpr Limits kFromZero{.low = 0, .high = 1e6};

inline constexpr auto kObjectiveFields = std::to_array<Field>({
    {"objective",
     "loss",
     "",
     "dpo: loss of a preference pair.",
     locations::objective<&ObjectiveSection::loss>,
     kStays,
     false,
     {},
     kPairLosses},
    {"objective", "beta", "",
     "DPO/KTO: β. orpo: λ of the odds-ratio term. sequential_unlearning with `npo`: β of NPO.",
     locations::objective<&ObjectiveSection::beta>, kStays, false, kAboveZero},
    {"objective",
     "label_smoothing",
     "",
     "sft: probability mass of a target that is spread over the whole vocabulary; pairs: assumed "
     "fraction of flipped labels.",
     locations::objective<&ObjectiveSection::label_smoothing>,
     kStays,
     false,
     {.low = 0, .high = 1, .high_excluded = true}},
    {"objective", "gamma_beta_ratio", "", "simpo: target reward margin γ, divided by β.",
     locations::objective<&ObjectiveSection::gamma_beta_ratio>, kStays, false, kFromZero},
    {"objective", "discopop_tau", "", "dpo with loss `discopop`: temperature of its mixture.",
     locations::objective<&ObjectiveSection::discopop_tau>, kStays, false, kAboveZero},
    {"objective", "desirable_weight", "", "kto: weight of the losses of desirable answers.",
     locations::objective<&ObjectiveSection::desirable_weight>, kStays, false, kFromZero},
    {"objective", "undesirable_weight", "", "kto: weight of the losses of undesirable answers.",
     locations::objective<&ObjectiveSection::undesirable_weight>, kStays, false, kFromZero},
    {"objective",
     "reference",
     "",
     "Source of the reference model's log-probabilities (the model before the first step); "
     "`cache`: computed once, and kept in the run directory; `live`: computed in every step from a "
     "frozen copy of the weights.",
     locations::objective<&ObjectiveSection::reference>,
     kStays,
     false,
     {},
     "cache|live"},

    {"objective",
     "first_layer",
     "layers",
     "Layer to train first; layers are numbered from 0; -1: the last one.",
     locations::objective<&ObjectiveSection::first_layer>,
     kStays,
     false,
     {.low = -1, .high = 4096}},
    {"objective",
     "last_layer",
     "layers",
     "Lowest layer to train.",
     locations::objective<&ObjectiveSection::last_layer>,
     kStays,
     false,
     {.low = 0, .high = 4096}},
    {"objective",
     "layer_stride",
     "layers",
     "Distance from one trained layer down to the next.",
     locations::objective<&ObjectiveSection::layer_stride>,
     kStays,
     false,
     {.low = 1, .high = 4096}},
    {"objective",
     "steps_per_layer",
     "steps",
     "Steps per trained layer; `run.steps` must be the total.",
     locations::objective<&ObjectiveSection::steps_per_layer>,
     kStays,
     false,
     {.low = 1, .high = 1e9}},
    {"objective",
     "retain_loss",
     "",
     "Loss on the rows of `data.dir`; `nll`: cross-entropy; `kl`: divergence from a frozen copy of "
     "the model before the first step; `l2`: distance of the trained layers' outputs from those of "
     "that copy.",
     locations::objective<&ObjectiveSection::retain_loss>,
     kStays,
     false,
     {},
     "nll|kl|l2"},
    {"objective",
     "forget_loss",
     "",
     "Loss on the rows of `data.forget_dir`; `random_targets`: cross-entropy with random tokens; "
     "`max_entropy`: cross-entropy with the uniform distribution; `top_k_entropy`: the same among "
     "the `top_k` likeliest tokens. These are divided by the logarithm of the number of tokens. "
     "`npo`: negative preference optimisation against a frozen copy of the model before the first "
     "step. `max_update`: negative distance of the trained layers' weights from those before the "
     "first step, without `data.forget_dir`.",
     locations::objective<&ObjectiveSection::forget_loss>,
     kStays,
     false,
     {},
     "random_targets|max_entropy|top_k_entropy|npo|max_update"},
    {"objective",
     "top_k",
     "tokens",
     "`top_k_entropy`: number of likeliest tokens.",
     locations::objective<&ObjectiveSection::top_k>,
     kStays,
     false,
     {.low = 2, .high = 1e9}},
    {"objective",
     "retain_coefficient",
     "",
     "Factor of the retain loss; ramps from 1/4 in a layer's first step to nearly all in its last.",
     locations::objective<&ObjectiveSection::retain_coefficient>,
     kStays,
     false,
     {.low = 0, .high = 1e6}},
    {"objective",
     "forget_coefficient",
     "",
     "Factor of the forget loss; ramps from all in a layer's first step to a little above 3/4 in "
     "its last.",
     locations::objective<&ObjectiveSection::forget_coefficient>,
     kStays,
     false,
     {.low = 0, .high = 1e6}},
    {"objective", "ramp_retain_from_zero", "",
     "Start the ramp of `retain_coefficient` at 0 in each layer.",
     locations::objective<&ObjectiveSection::ramp_retain_from_zero>, kStays},
    {"objective",
     "forget_layer_scale",
     "",
     "Above 1: `forget_coefficient` grows with the distance from `first_layer`, up to this factor "
     "at layer 0.",
     locations::objective<&ObjectiveSection::forget_layer_scale>,
     kStays,
     false,
     {.low = 1, .high = 1e6}},
    {"objective", "l2sp_coefficient", "",
     "Coefficient of L2-SP: penalises the squared distance of a trained layer's weights from those "
     "before the first step, in the retain pass.",
     locations::objective<&ObjectiveSection::l2sp_coefficient>, kStays, false, kFromZero},
    {"objective",
     "gradient_join",
     "",
     "Combination of the retain and forget gradients r, f, per element; `sum`: r + f; `same_sign`: "
     "r + f if the signs agree, otherwise 0; `same_sign_forget`: r + f if they agree, otherwise r.",
     locations::objective<&ObjectiveSection::gradient_join>,
     kStays,
     false,
     {},
     "sum|same_sign|same_sign_forget"},
    {"objective",
     "frozen_layers",
     "",
     "Update of layers that the current phase does not train; `skip_update`: none; `zero`: an "
     "update with gradient 0, so that weight decay and momentum continue.",
     locations::objective<&ObjectiveSection::frozen_layers>,
     kStays,
     false,
     {},
     "skip_update|zero"},
    {"objective", "maintain_unlearned", "", "Each step also trains the layers of earlier phases.",
     locations::objective<&ObjectiveSection::maintain_unlearned>, kStays},
    {"objective",
     "target_seed",
     "",
     "Seed of the random targets.",
     locations::objective<&ObjectiveSection::target_seed>,
     kStays,
     false,
     {.low = 0, .high = 1e18}},
});

/// `fields`, with `more` inserted after those of their section.
template <std::size_t n, std::size_t m>
constexpr std::array<Field, n + m> with_fields(const std::array<Field, n>& fields,
                                               const std::array<Field, m>& more) {
  std::array<Field, n + m> all{};
  std::size_t end = 0;
  for (std::size_t i = 0; i < n; ++i) {
    end = fields[i].section == more.front().section ? i + 1 : end;
  }
  for (std::size_t i = 0; i < n + m; ++i) {
    all[i] = i < end ? fields[i] : i < end + m ? more[i - end] : fields[i - m];
  }
  return all;
}

}  // namespace train::configs
