#include "actors/head/run_registry.hpp"

#include <array>

namespace train::actors {
namespace {

#define TRAIN_RUN_ACTOR(name) add_##name,
constexpr auto kRunActors = std::to_array<AddToRun>({TRAIN_RUN_ACTORS(TRAIN_RUN_ACTOR)});
#undef TRAIN_RUN_ACTOR

}  // namespace

std::span<const AddToRun> registered_run_actors() { return kRunActors; }

}  // namespace train::actors
