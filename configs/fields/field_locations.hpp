#pragma once

#include "configs/fields/field_table.hpp"
#include "configs/run_config.hpp"

/// Accessors of each section's fields in a RunConfig: `run<&RunSection::name>` finds the key
/// run.name (Field::locate).
namespace train::configs::locations {

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
constexpr auto objective = at<&RunConfig::objective, Member>;
template <auto Member>
constexpr auto optimizer = at<&RunConfig::optimizer, Member>;
template <auto Member>
constexpr auto schedule = at<&RunConfig::schedule, Member>;
template <auto Member>
constexpr auto scaling = at<&RunConfig::scaling, Member>;
template <auto Member>
constexpr auto eval = at<&RunConfig::eval, Member>;
template <auto Member>
constexpr auto checkpoint = at<&RunConfig::checkpoint, Member>;
template <auto Member>
constexpr auto recovery = at<&RunConfig::recovery, Member>;
template <auto Member>
constexpr auto watchdog = at<&RunConfig::watchdog, Member>;
template <auto Member>
constexpr auto status = at<&RunConfig::status, Member>;
template <auto Member>
constexpr auto parallel = at<&RunConfig::parallel, Member>;
template <auto Member>
constexpr auto precision = at<&RunConfig::precision, Member>;
template <auto Member>
constexpr auto memory = at<&RunConfig::memory, Member>;
template <auto Member>
constexpr auto train = at<&RunConfig::train, Member>;
template <auto Member>
constexpr auto lora = at<&RunConfig::lora, Member>;
template <auto Member>
constexpr auto runtime = at<&RunConfig::runtime, Member>;

}  // namespace train::configs::locations
