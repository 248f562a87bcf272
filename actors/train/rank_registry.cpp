#include "actors/train/rank_registry.hpp"

#include <array>

namespace train::actors {
namespace {

#define TRAIN_RANK_ACTOR(name) add_##name,
constexpr auto kRankActors = std::to_array<AddToRank>({TRAIN_RANK_ACTORS(TRAIN_RANK_ACTOR)});
#undef TRAIN_RANK_ACTOR

}  // namespace

std::span<const AddToRank> registered_rank_actors() { return kRankActors; }

}  // namespace train::actors
