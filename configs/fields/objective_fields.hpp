#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "configs/fields/field_locations.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/objective_list.hpp"

// The keys of [objective] but its name.

namespace train::configs {

inline constexpr BetweenStarts kStays = BetweenStarts::stays;

inline constexpr Limits kAboveZero{.low = 0, .high = 1e6, .low_excluded = true};
inline constexpr Limits kFromZero{.low = 0, .high = 1e6};

inline constexpr auto kObjectiveFields = std::to_array<Field>({
    {"objective",
     "loss",
     "",
     "dpo: the loss of a pair.",
     locations::objective<&ObjectiveSection::loss>,
     kStays,
     false,
     {},
     kPairLosses},
    {"objective", "beta", "",
     "What log-probabilities are multiplied by as rewards; orpo: weight of the odds; "
     "sequential_unlearning with `npo`: by what the mean ratio of log-probabilities is multiplied.",
     locations::objective<&ObjectiveSection::beta>, kStays, false, kAboveZero},
    {"objective",
     "label_smoothing",
     "",
     "sft: share of a target that goes to the whole vocabulary; pairs: share of wrong labels.",
     locations::objective<&ObjectiveSection::label_smoothing>,
     kStays,
     false,
     {.low = 0, .high = 1, .high_excluded = true}},
    {"objective", "gamma_beta_ratio", "", "simpo: margin between both answers, over beta.",
     locations::objective<&ObjectiveSection::gamma_beta_ratio>, kStays, false, kFromZero},
    {"objective", "discopop_tau", "", "dpo with loss `discopop`: temperature of its mixture.",
     locations::objective<&ObjectiveSection::discopop_tau>, kStays, false, kAboveZero},
    {"objective", "desirable_weight", "", "kto: weight of the wanted answers' losses.",
     locations::objective<&ObjectiveSection::desirable_weight>, kStays, false, kFromZero},
    {"objective", "undesirable_weight", "", "kto: weight of the unwanted answers' losses.",
     locations::objective<&ObjectiveSection::undesirable_weight>, kStays, false, kFromZero},
    {"objective",
     "reference",
     "",
     "Log-probabilities of the model before the first step; `cache`: computed once, and kept in "
     "the run directory; `live`: in every step, with a frozen copy of the weights.",
     locations::objective<&ObjectiveSection::reference>,
     kStays,
     false,
     {},
     "cache|live"},

    {"objective",
     "first_layer",
     "layers",
     "Layer that is trained first; the model's are 0, 1, ...; -1: the last one.",
     locations::objective<&ObjectiveSection::first_layer>,
     kStays,
     false,
     {.low = -1, .high = 4096}},
    {"objective",
     "last_layer",
     "layers",
     "No layer below it is trained.",
     locations::objective<&ObjectiveSection::last_layer>,
     kStays,
     false,
     {.low = 0, .high = 4096}},
    {"objective",
     "layer_stride",
     "layers",
     "From one trained layer down to the next.",
     locations::objective<&ObjectiveSection::layer_stride>,
     kStays,
     false,
     {.low = 1, .high = 4096}},
    {"objective",
     "steps_per_layer",
     "steps",
     "Steps that train one layer; `run.steps` is that many for each.",
     locations::objective<&ObjectiveSection::steps_per_layer>,
     kStays,
     false,
     {.low = 1, .high = 1e9}},
    {"objective",
     "retain_loss",
     "",
     "Of the rows of `data.dir`; `nll`: cross-entropy; `kl`: divergence from the model before the "
     "first step, of which a frozen copy is kept; `l2`: distances of the trained layers' outputs "
     "from those of that copy.",
     locations::objective<&ObjectiveSection::retain_loss>,
     kStays,
     false,
     {},
     "nll|kl|l2"},
    {"objective",
     "forget_loss",
     "",
     "Of the rows of `data.forget_dir`; `random_targets`: cross-entropy with tokens that are "
     "drawn; "
     "`max_entropy`: with the uniform distribution; `top_k_entropy`: the same among the `top_k` "
     "likeliest tokens. All over the logarithm of the tokens' number. `npo`: negative preference "
     "optimisation against a frozen copy of the model before the first step. `max_update`: minus "
     "the distances of the trained layers' weights from those before the first step, without "
     "`data.forget_dir`.",
     locations::objective<&ObjectiveSection::forget_loss>,
     kStays,
     false,
     {},
     "random_targets|max_entropy|top_k_entropy|npo|max_update"},
    {"objective",
     "top_k",
     "tokens",
     "`top_k_entropy`: how many of the likeliest tokens.",
     locations::objective<&ObjectiveSection::top_k>,
     kStays,
     false,
     {.low = 2, .high = 1e9}},
    {"objective",
     "retain_coefficient",
     "",
     "Factor of the retain loss; a layer's first step has 1/4 of it, the last one nearly all.",
     locations::objective<&ObjectiveSection::retain_coefficient>,
     kStays,
     false,
     {.low = 0, .high = 1e6}},
    {"objective",
     "forget_coefficient",
     "",
     "Factor of the forget loss; a layer's first step has all of it, the last one a little above "
     "3/4.",
     locations::objective<&ObjectiveSection::forget_coefficient>,
     kStays,
     false,
     {.low = 0, .high = 1e6}},
    {"objective", "ramp_retain_from_zero", "",
     "A layer's first step has nothing of `retain_coefficient`.",
     locations::objective<&ObjectiveSection::ramp_retain_from_zero>, kStays},
    {"objective",
     "forget_layer_scale",
     "",
     "Above 1: `forget_coefficient` grows with the distance from `first_layer`, to so many times "
     "as "
     "much at layer 0.",
     locations::objective<&ObjectiveSection::forget_layer_scale>,
     kStays,
     false,
     {.low = 1, .high = 1e6}},
    {"objective", "l2sp_coefficient", "",
     "By what the squares of the distances of a trained layer's weights from those before the "
     "first "
     "step are multiplied: with their gradient the retain pass pulls them back.",
     locations::objective<&ObjectiveSection::l2sp_coefficient>, kStays, false, kFromZero},
    {"objective",
     "gradient_join",
     "",
     "Retain and forget gradients r, f by element; `sum`: r + f; `same_sign`: r + f where the "
     "signs "
     "agree, else 0; `same_sign_forget`: r + f where they agree, else r.",
     locations::objective<&ObjectiveSection::gradient_join>,
     kStays,
     false,
     {},
     "sum|same_sign|same_sign_forget"},
    {"objective",
     "frozen_layers",
     "",
     "What a step does to layers of other phases; `skip_update`: nothing; `zero`: an update with "
     "gradient 0, so that weight decay and momentum go on.",
     locations::objective<&ObjectiveSection::frozen_layers>,
     kStays,
     false,
     {},
     "skip_update|zero"},
    {"objective", "maintain_unlearned", "", "A step trains the layers of earlier phases, too.",
     locations::objective<&ObjectiveSection::maintain_unlearned>, kStays},
    {"objective",
     "target_seed",
     "",
     "Seed of drawn targets.",
     locations::objective<&ObjectiveSection::target_seed>,
     kStays,
     false,
     {.low = 0, .high = 1e18}},
});

/// `fields` with `more` behind those of their section.
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
